"""Answers that clients send to a gateway, and the secrets in them."""

from collections.abc import Awaitable, Callable

import pytest
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from google.protobuf.json_format import ParseDict
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.questions import QUESTION, WITHHELD, Question, QuestionKind
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import REFUSED, RunningGateway, StoodIn, running_gateway, stand_in_worker, unique
from tests.gateway.messages.questions import SCHEMA, ask, kept
from tests.support.a2a_client import connected, request, send

Begin = Callable[[Question], Awaitable[StoodIn]]


@pytest.fixture
def begin(stand_in: RunningGateway, client: Client, views: TaskViews) -> Begin:
    """Return a script that starts a stand-in task with a question."""

    async def begin(question: Question) -> StoodIn:
        async with connected(stand_in.url, streaming=False) as a2a:
            task = StoodIn(client, views, await send(a2a, request(unique("ask"), return_immediately=True)))
        is_secret = question.kind is QuestionKind.AUTH
        state = TaskState.AUTH_REQUIRED if is_secret else TaskState.INPUT_REQUIRED
        await task.publish(state, questions=(question,))
        return task

    return begin


async def test_an_answer_that_comes_too_late_leaves_no_secret(stand_in: RunningGateway, begin: Begin) -> None:
    """The task has ended although its view still asks: the secret stored for its tools is deleted."""
    task = await begin(ask(QuestionKind.AUTH))
    await task.end()
    message = request("secret: k3y", task_id=task.id)
    async with connected(stand_in.url, streaming=False) as a2a:
        with pytest.raises(UnsupportedOperationError, match="has ended"):
            await send(a2a, message)
    assert await kept(stand_in.secrets, message.message.message_id, task_id=task.id) is None


async def test_a_repeated_secret_is_not_passed_on_by_an_agent_that_takes_repeats(
    client: Client, views: TaskViews
) -> None:
    """Its question is answered, so that it would look like any message."""
    queue, agent = unique("repeats"), Agent(id="repeats", name="R", description="R.", deduplicate=False)
    async with (
        stand_in_worker(client, queue),
        running_gateway(client, views, queue=queue, agent=agent) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = StoodIn(client, views, await send(a2a, request("ask", return_immediately=True)))
        await task.publish(TaskState.AUTH_REQUIRED, questions=(ask(QuestionKind.AUTH),))
        message = request("secret: k3y", task_id=task.id, return_immediately=True)
        await send(a2a, message)
        await task.publish(TaskState.WORKING, *(await task.messages())[1:])
        await send(a2a, message)
        assert await task.texts() == ["ask", "(a secret was supplied)"]
        await task.end()


@pytest.mark.parametrize(
    ("question", "text", "words"),
    [
        (ask(QuestionKind.CONFIRMATION), "perhaps", 'answer "yes" or "no"'),
        (ask(QuestionKind.SELECTION, options=("red", "blue")), "green", "answer with one of: red, blue"),
        (ask(QuestionKind.DATA, json_schema=SCHEMA), "{}", "breaks the rule"),
        (ask(QuestionKind.CLARIFICATION), REFUSED, "expected: an answer"),
    ],
)
async def test_an_invalid_answer_is_refused_with_what_is_expected(
    stand_in: RunningGateway, begin: Begin, question: Question, text: str, words: str
) -> None:
    """The gateway or the workflow refuses it.

    The error has the expected form, and the client may try again.
    """
    task = await begin(question)
    async with connected(stand_in.url, streaming=False) as a2a:
        with pytest.raises(InvalidParamsError, match=words):
            await send(a2a, request(text, task_id=task.id))
    assert len(await task.messages()) == 1


@pytest.mark.parametrize("text", ["OK", "OK thanks. But do not send any money yet."])
async def test_what_was_said_while_the_task_worked_answers_nothing(
    stand_in: RunningGateway, client: Client, views: TaskViews, text: str
) -> None:
    """It was taken in as a message, and is not an answer when it is repeated after the question."""
    async with connected(stand_in.url, streaming=False) as a2a:
        task = StoodIn(client, views, await send(a2a, request(unique("ask"), return_immediately=True)))
        await task.publish(TaskState.WORKING)
        message = request(text, task_id=task.id, return_immediately=True)
        await send(a2a, message)
        await task.publish(TaskState.INPUT_REQUIRED, questions=(ask(QuestionKind.CONFIRMATION),))
        asked = await send(a2a, message)
    assert asked.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
    assert [said.answers for said in await task.messages()][1:] == [""] * (len(await task.messages()) - 1)
    assert {said.message_id for said in (await task.messages())[1:]} == {message.message.message_id}


async def test_an_answer_without_a_task_starts_none(a2a: A2AClient) -> None:
    """The client may have forgotten the taskId of a secret."""
    message = request("k3y")
    ParseDict({QUESTION: "q"}, message.message.metadata)
    with pytest.raises(InvalidParamsError, match=r"but message\.taskId is missing; give the id of the task"):
        await anext(a2a.send_message(message))


async def test_a_client_cannot_say_that_its_secret_was_withheld(a2a: A2AClient) -> None:
    """The mark is the gateway's own."""
    message = request("hello")
    ParseDict({WITHHELD: True}, message.message.metadata)
    with pytest.raises(InvalidParamsError, match=r"message\.metadata\.withheld is for this server to set"):
        await anext(a2a.send_message(message))
