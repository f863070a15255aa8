"""Answers to what a task asks: checked by the gateway, and freed of secrets before anybody sees them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

import pytest
from a2a.client import Client as A2AClient
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from google.protobuf.json_format import MessageToJson, ParseDict
from pydantic import JsonValue
from temporalio.client import Client

from gateway.answers import Answers
from gateway.errors import AnswerInvalidError
from stores.memory_secrets import MemorySecrets
from stores.task_views import START, TaskViews
from tests.gateway.stage import REFUSED, RunningGateway, StoodIn, unique
from tests.stores.examples import answered, submitted
from tests.support.a2a_client import connected, request, send
from workflows.contract.messages import DataPart, Part, TextPart, ToolCall, UserMessage
from workflows.contract.questions import QUESTION, WITHHELD, Question, QuestionKind
from workflows.contract.tasks import TaskState, TaskStatus, TaskView

Begin = Callable[[Question], Awaitable[StoodIn]]

CALL = ToolCall(id="c1", name="deploy", arguments="{}")
SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 18}, "name": {"type": "string"}},
    "required": ["age"],
    "additionalProperties": False,
}


def ask(kind: QuestionKind, question_id: str = "q", **fields: object) -> Question:
    return Question.model_validate(
        {"id": question_id, "kind": kind, "text": "?", "call": CALL, "secret_name": question_id, **fields}
    )


def waiting(*questions: Question) -> TaskView:
    status = TaskStatus(state=TaskState.INPUT_REQUIRED, at=submitted().created_at, questions=questions)
    return answered(submitted("task"), "run", 1, status=status)


def says(*parts: Part | str | JsonValue, **metadata: JsonValue) -> UserMessage:
    """Return a message; a string is a text part, other JSON a data part."""
    read = [TextPart(text=p) if isinstance(p, str) else p for p in parts]
    data = [p if isinstance(p, TextPart | DataPart) else DataPart(data=p) for p in read]
    return UserMessage(message_id="m", parts=tuple(data), metadata=metadata)


WRONG_DATA = [
    ({"age": 7}, '{"minimum": 18} at $.age'),
    ({"age": "s3cret"}, '{"type": "integer"} at $.age'),
    ({"name": "s3cret"}, '{"required": ["age"]} at $;'),
    ({"age": 20, "extra": "s3cret"}, '{"additionalProperties": false} at $;'),
    ("s3cret", '{"type": "object"} at $;'),
    (["s3cret"], '{"type": "object"} at $;'),
]


@pytest.mark.parametrize(("data", "words"), WRONG_DATA)
async def test_data_that_do_not_fit_are_refused(data: JsonValue, words: str) -> None:
    """The error names the place, the rule and the whole schema, and repeats nothing of the answer."""
    answers = Answers(MemorySecrets())

    with pytest.raises(AnswerInvalidError) as refused:
        await answers.take_in(waiting(ask(QuestionKind.DATA, json_schema=SCHEMA)), says(data))

    assert words in str(refused.value)
    assert json.dumps(SCHEMA) in str(refused.value)
    assert "s3cret" not in str(refused.value)


FITTING = [
    says({"age": 18}),
    says('{"age": 18}'),
    says({"question": "q", "age": 18}),
    says({"question": "q", "answer": {"age": 18}}),
    says({"approved": False, "note": "no"}),
]


@pytest.mark.parametrize("message", FITTING)
async def test_data_that_fit_go_on_unchanged(message: UserMessage) -> None:
    """An answer as data, as JSON text, or beside the name of its question; declining needs to fit nothing."""
    answers = Answers(MemorySecrets())

    assert await answers.take_in(waiting(ask(QuestionKind.DATA, json_schema=SCHEMA)), message) is message


UNFIT = {
    "dangling": {"$ref": "#/$defs/nowhere"},
    "endless": {"$ref": "#"},
    "no schema": {"type": "nothing"},
    "no pattern": {"pattern": "("},
}


@pytest.mark.parametrize("schema", UNFIT.values(), ids=UNFIT.keys())
async def test_a_schema_that_is_unfit_checks_nothing(schema: Mapping[str, JsonValue]) -> None:
    """A task is not stuck with a question that nobody can answer."""
    message = says({"question": "q", "answer": "text"})

    assert (
        await Answers(MemorySecrets()).take_in(waiting(ask(QuestionKind.DATA, json_schema=schema)), message)
        is message
    )


async def test_no_schema_is_fetched() -> None:
    """A reference that leads out of the schema leads nowhere."""
    visitors: list[object] = []
    server = await asyncio.start_server(lambda _, writer: visitors.append(writer.close()), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        schema = {"$ref": f"http://{host}:{port}/schema.json"}
        await Answers(MemorySecrets()).take_in(waiting(ask(QuestionKind.DATA, json_schema=schema)), says({}))

    assert visitors == []


SECRETS: list[tuple[UserMessage, JsonValue]] = [
    (says("k3y"), "k3y"),
    (says({"token": "k3y"}), {"token": "k3y"}),
    (says("here it is", {"token": "k3y"}, key="k3y"), {"token": "k3y"}),
    (says({"question": "q", "answer": "k3y"}), "k3y"),
    (says({"question": "q", "user": "u", "password": "k3y"}), {"user": "u", "password": "k3y"}),
]


@pytest.mark.parametrize(("message", "secret"), SECRETS)
async def test_a_secret_is_taken_out(message: UserMessage, secret: JsonValue) -> None:
    """It is kept under the name of its question; neither parts nor metadata of the client go on."""
    secrets = MemorySecrets()

    taken = await Answers(secrets).take_in(waiting(ask(QuestionKind.AUTH)), message)

    assert taken.model_dump(exclude={"role"}) == {
        "message_id": "m",
        "parts": ({"kind": "text", "text": "(a secret was supplied)"},),
        "metadata": {QUESTION: "q", WITHHELD: True},
    }
    assert await secrets.get("task", "q") == secret


NO_SECRETS = {
    "empty text": (says("  "), "is empty"),
    "empty object": (says({}), "is empty"),
    "nothing but a name": (says({"question": "q"}), "is empty"),
    "null": (says(None), "is empty"),
    "another name": (says("k3y", question="other"), "no question 'other' is open"),
    "a name that is none": (says("k3y", question="x" * 300), "has 300 bytes"),
    "declined with text": (says("k3y", {"approved": False}), "to decline question 'q'"),
    "declined with more data": (says({"approved": False, "token": "k3y"}), "to decline question 'q'"),
}


@pytest.mark.parametrize(("message", "words"), NO_SECRETS.values(), ids=NO_SECRETS.keys())
async def test_what_may_hold_a_secret_is_refused_rather_than_passed_on(
    message: UserMessage, words: str
) -> None:
    """Whatever cannot be told for a secret, or for none, goes no further, and nothing is kept."""
    secrets = MemorySecrets()

    with pytest.raises((AnswerInvalidError, InvalidParamsError)) as refused:
        await Answers(secrets).take_in(waiting(ask(QuestionKind.AUTH)), message)

    assert words in str(refused.value)
    assert "k3y" not in str(refused.value)
    assert await secrets.get("task", "q") is None


async def test_a_client_may_decline_to_give_a_secret() -> None:
    """That goes on as it was said, but for the client's own metadata."""
    secrets = MemorySecrets()
    data: JsonValue = {"approved": False, "note": "not mine"}

    taken = await Answers(secrets).take_in(waiting(ask(QuestionKind.AUTH)), says(data, key="k3y"))

    assert taken == says(data, question="q")
    assert await secrets.get("task", "q") is None


async def test_of_several_questions_one_has_to_be_named() -> None:
    """A message that names none is refused, for it may hold a secret; each name leads to its own secret."""
    secrets = MemorySecrets()
    view = waiting(ask(QuestionKind.AUTH, "q1"), ask(QuestionKind.AUTH, "q2"), ask(QuestionKind.DATA, "q3"))
    answers = Answers(secrets)

    with pytest.raises(AnswerInvalidError, match="3 questions are open; name one") as refused:
        await answers.take_in(view, says("k3y"))
    await answers.take_in(view, says("one", question="q1"))
    await answers.take_in(view, says({"question": "q2", "answer": "two"}))
    plain = says("three", question="q3")

    assert "k3y" not in str(refused.value)
    assert await answers.take_in(view, plain) is plain
    assert [await secrets.get("task", name) for name in ("q1", "q2", "q3")] == ["one", "two", None]


async def test_a_task_that_asks_nothing_takes_any_message() -> None:
    """Only open questions make an answer of a message."""
    message = says("anything", question="old")

    assert await Answers(MemorySecrets()).take_in(waiting(), message) is message


@pytest.fixture
def begin(stand_in: RunningGateway, client: Client, views: TaskViews) -> Begin:
    """Return what starts a stand-in task that waits for an answer."""

    async def begin(question: Question) -> StoodIn:
        async with connected(stand_in.url, streaming=False) as a2a:
            task = StoodIn(client, views, await send(a2a, request(unique("ask"), return_immediately=True)))
        is_secret = question.kind is QuestionKind.AUTH
        state = TaskState.AUTH_REQUIRED if is_secret else TaskState.INPUT_REQUIRED
        await task.publish(state, questions=(question,))
        return task

    return begin


async def test_a_secret_reaches_the_tools_and_nobody_else(
    stand_in: RunningGateway, views: TaskViews, begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not Temporal, the view, the stream, the answer, or a log line; and repeating the message is safe."""
    task = await begin(ask(QuestionKind.AUTH))
    secret = unique("secret")
    message = request(secret, task_id=task.id, return_immediately=True)
    async with connected(stand_in.url, streaming=False) as a2a:
        await asyncio.gather(*(send(a2a, message) for _ in range(5)))
        (taken,) = (await task.messages())[1:]
        await task.publish(TaskState.WORKING, taken)
        await send(a2a, message)
        await task.publish(TaskState.COMPLETED)
        await task.end()
        last = await send(a2a, message)

    assert await stand_in.secrets.get(task.id, "q") == secret
    assert taken.metadata == {QUESTION: "q", WITHHELD: True}
    assert last.history[-1].message_id == message.message.message_id
    streamed = [entry.event.model_dump_json() for entry in await views.read({task.id: START}, wait=0)]
    output = capsys.readouterr()
    seen = [MessageToJson(last), *streamed, output.out, output.err, str(await task.history())]
    assert [text for text in seen if secret in text] == []


async def test_an_answer_that_comes_too_late_leaves_no_secret(stand_in: RunningGateway, begin: Begin) -> None:
    """The task has ended although its view still asks: what was kept for its tools is forgotten."""
    task = await begin(ask(QuestionKind.AUTH))
    await task.end()

    async with connected(stand_in.url, streaming=False) as a2a:
        with pytest.raises(UnsupportedOperationError, match="has ended"):
            await send(a2a, request("k3y", task_id=task.id))

    assert await stand_in.secrets.get(task.id, "q") is None


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
    """Whether the gateway sees it or the workflow: the client reads how to answer, and may try again."""
    task = await begin(question)

    async with connected(stand_in.url, streaming=False) as a2a:
        with pytest.raises(InvalidParamsError, match=words):
            await send(a2a, request(text, task_id=task.id))

    assert len(await task.messages()) == 1


async def test_a_client_cannot_say_that_its_secret_was_withheld(a2a: A2AClient) -> None:
    """The mark is the gateway's own."""
    message = request("hello")
    ParseDict({WITHHELD: True}, message.message.metadata)

    with pytest.raises(InvalidParamsError, match=r"message\.metadata\.withheld is for this server to set"):
        await anext(a2a.send_message(message))
