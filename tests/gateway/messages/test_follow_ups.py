"""Messages that name a task: accepted, refused, and the end of the reply to one."""

import asyncio

import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import Role, SendMessageRequest, TaskState
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from temporalio.client import Client

from everloop.gateway.operations import handler
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import PromptModel, RunningGateway, StoodIn, unique
from tests.support.a2a_client import Answer, connected, request, response_of, send


async def waiting_task(gateway: RunningGateway, client: Client, views: TaskViews) -> StoodIn:
    """Start a stand-in task that waits for its user."""
    async with connected(gateway.url, streaming=False) as a2a:
        task = StoodIn(client, views, await send(a2a, request(unique("ask"), return_immediately=True)))
    await task.publish(State.INPUT_REQUIRED)
    return task


async def test_a_message_to_a_working_task_is_answered_too(blocking: A2AClient, model: PromptModel) -> None:
    """A message while the agent works becomes part of the same task."""
    first, second = unique("one"), unique("two")
    begun, gate = asyncio.Event(), asyncio.Event()
    model.scripts[first] = [begun.set, gate, "first answer"]
    task = await send(blocking, request(first, return_immediately=True))
    await begun.wait()
    follow_up = request(second, message_id=unique("message"), task_id=task.id)
    await send(blocking, _immediately(follow_up))
    gate.set()
    done = await send(blocking, follow_up)
    assert done.id == task.id
    assert response_of(done) == second
    assert {message.parts[0].text for message in done.history} == {first, "first answer", second}


async def test_a_repeated_message_is_taken_in_once(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """The messageId of a message is its update id: a client's retry changes nothing."""
    task = await waiting_task(stand_in, client, views)
    message = request(unique("once"), task_id=task.id, return_immediately=True)
    async with connected(stand_in.url, streaming=False) as a2a:
        await asyncio.gather(*(send(a2a, message) for _ in range(5)))
    assert (await task.texts())[1:] == [message.message.parts[0].text]


async def test_other_content_under_a_known_id_is_refused(blocking: A2AClient, model: PromptModel) -> None:
    """The second message is refused with the reason, whether or not the task shows the first one yet."""
    first, second = unique("one"), unique("two")
    begun, gate = asyncio.Event(), asyncio.Event()
    model.scripts[first] = [begun.set, gate, "first answer"]
    task = await send(blocking, request(first, message_id="first", return_immediately=True))
    await begun.wait()
    await send(blocking, _immediately(request(second, message_id="second", task_id=task.id)))
    for known in ("first", "second"):
        other = _immediately(request(unique("other"), message_id=known, task_id=task.id))
        with pytest.raises(InvalidParamsError, match=f"message '{known}' has come with other content before"):
            await send(blocking, other)
    gate.set()
    done = await send(blocking, request(second, message_id="second", task_id=task.id))
    assert [m.parts[0].text for m in done.history if m.role == Role.ROLE_USER] == [first, second]


async def test_a_repeated_message_is_answered_after_the_end(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """A client that lost the answer to its last message gets the task, though it has ended."""
    task = await waiting_task(stand_in, client, views)
    message = request(unique("last"), task_id=task.id, return_immediately=True)
    async with connected(stand_in.url, streaming=False) as a2a:
        await send(a2a, message)
        await task.publish(State.COMPLETED, message)
        await task.end()
        assert (await send(a2a, message)).status.state == TaskState.TASK_STATE_COMPLETED


@pytest.mark.parametrize("streaming", [False, True])
async def test_the_question_that_a_message_answers_is_not_its_reply(
    stand_in: RunningGateway, client: Client, views: TaskViews, *, streaming: bool
) -> None:
    """After a follow-up the old "input required" is passed over; the next one, or the end, is the reply."""
    task = await waiting_task(stand_in, client, views)
    message = request(unique("answer"), task_id=task.id)
    async with connected(stand_in.url, streaming=streaming) as a2a:
        replying = asyncio.create_task(Answer().read(a2a.send_message(message)))
        async with connected(stand_in.url, streaming=False) as other:
            await send(other, _immediately(message))
        await task.publish(State.WORKING, message)
        await task.publish(State.INPUT_REQUIRED)
        reply = await replying
    assert reply.states[-1] == TaskState.TASK_STATE_INPUT_REQUIRED
    first = reply.responses[0].task
    assert message.message.message_id in {each.message_id for each in first.history}


async def test_the_stream_of_an_answer_begins_although_nobody_takes_it_in(
    stand_in: RunningGateway, client: Client, views: TaskViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for long: the client gets the task as it is."""
    monkeypatch.setattr(handler, "ANSWER_WAIT", 0.01)
    task = await waiting_task(stand_in, client, views)
    async with connected(stand_in.url) as a2a:
        stream = a2a.send_message(request(unique("answer"), task_id=task.id))
        first = await anext(stream)
    assert first.task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED


async def test_a_task_that_ends_before_its_view_says_so_takes_no_messages(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """The workflow decides: no message is lost because of a stale view."""
    task = await waiting_task(stand_in, client, views)
    await task.end()
    async with connected(stand_in.url, streaming=False) as a2a:
        with pytest.raises(UnsupportedOperationError, match="has ended"):
            await send(a2a, request("more", task_id=task.id))


def _immediately(message: SendMessageRequest) -> SendMessageRequest:
    copy = SendMessageRequest()
    copy.CopyFrom(message)
    copy.configuration.return_immediately = True
    return copy
