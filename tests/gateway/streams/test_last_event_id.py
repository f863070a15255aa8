"""A client that lost its connection resumes: no event is lost, and none comes twice."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2 import TaskState as A2AState
from temporalio.client import Client

from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged, ToolCalled, Warned
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.questions import QuestionKind
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import PromptModel, RunningGateway, StoodIn, running_gateway, unique
from tests.gateway.messages.questions import ask
from tests.gateway.streams.sse import all_of, message, stream
from tests.support.a2a_client import connected, request, send
from tests.support.wires.events import Event
from tests.support.wires.wires import Refusal

WORDS = [f"word{number} " for number in range(12)]
EXTENDED = {"A2A-Extensions": EVENTS_EXTENSION}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def another(
    client: Client, views: TaskViews, queue: str, gateway: RunningGateway
) -> AsyncGenerator[RunningGateway]:
    async with running_gateway(client, views, queue=queue) as other:
        yield other


def ids_of(events: Sequence[Event]) -> list[str]:
    return [event.id for event in events if event.id]


@pytest.mark.parametrize("method", ["SubscribeToTask", "SendStreamingMessage"])
@pytest.mark.parametrize("extended", [False, True])
async def test_whoever_goes_on_gets_exactly_the_rest(
    gateway: RunningGateway, model: PromptModel, method: str, *, extended: bool
) -> None:
    """After each id of a finished task: the same events with the same ids, and no task before them."""
    prompt, headers = unique("rest"), EXTENDED if extended else {}
    call = ToolCalled(iteration=1, call_id="c1", name="search", arguments="{}")
    model.scripts[prompt] = [*WORDS[:3], call, *WORDS[3:]]
    params = message(prompt)
    events = await all_of(gateway, "SendStreamingMessage", params, **headers)
    task_id = events[0].response.task.id
    again = {"id": task_id} if method == "SubscribeToTask" else params
    for number, event in enumerate(events[:-1]):
        rest = await all_of(gateway, method, again, event.id, **headers)
        assert _comparable(rest) == _comparable(events[number + 1 :])
    kinds = [event.response.WhichOneof("payload") for event in events]
    assert kinds.count("task") == 1
    assert "".join(event.text for event in events) == "".join(WORDS)


def _comparable(events: Sequence[Event]) -> list[tuple[str, pb.StreamResponse]]:
    """Leave out the time of a status in repeated events of the extension: it is not stored."""
    compared = [(event.id, event.response) for event in events]
    for _, response in compared:
        update = response.status_update
        if EVENTS_EXTENSION in update.metadata.fields:
            update.status.ClearField("timestamp")
    return compared


async def test_behind_the_end_there_is_nothing(gateway: RunningGateway) -> None:
    """A subscriber after the end gets the error for it; a repeated send gets an empty stream."""
    params = message(unique("end"))
    events = await all_of(gateway, "SendStreamingMessage", params)
    task_id, last_id = events[0].response.task.id, events[-1].id
    with pytest.raises(Refusal, match="publishes nothing more"):
        await all_of(gateway, "SubscribeToTask", {"id": task_id}, last_id)
    assert await all_of(gateway, "SendStreamingMessage", params, last_id) == []


async def test_who_resumes_behind_an_event_that_is_lost_gets_the_ended_task(gateway: RunningGateway) -> None:
    """Redis has lost the event of the client, and the task has ended since: the client gets its end."""
    events = await all_of(gateway, "SendStreamingMessage", message(unique("lost")))
    task_id, last_id = events[0].response.task.id, events[-1].id
    milliseconds = int(last_id.partition("-")[0])
    (event,) = await all_of(gateway, "SubscribeToTask", {"id": task_id}, f"{milliseconds - 60_000}-0")
    assert event.response.task.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("joined", ["the same gateway", "another gateway"])
async def test_a_client_that_is_cut_off_in_the_middle_misses_nothing(
    gateway: RunningGateway, another: RunningGateway, model: PromptModel, joined: str
) -> None:
    """It comes back while the answer goes on, at any gateway, any number of times."""
    prompt = unique("cut")
    gates = [asyncio.Event() for _ in WORDS]
    model.scripts[prompt] = [step for pair in zip(gates, WORDS, strict=True) for step in pair]
    heard: list[Event] = []
    again = another if joined == "another gateway" else gateway
    async with stream(gateway, "SendStreamingMessage", message(prompt)) as events:
        heard.append(await anext(events))
    task_id = heard[0].response.task.id
    for gate in gates:
        gate.set()
        async with stream(again, "SubscribeToTask", {"id": task_id}, heard[-1].id) as events:
            async for event in events:
                heard.append(event)
                if event.text:
                    break
    heard += await all_of(again, "SubscribeToTask", {"id": task_id}, heard[-1].id)
    assert "".join(event.text for event in heard) == "".join(WORDS)
    assert [event.text for event in heard if event.text] == WORDS
    assert heard[-1].response.status_update.status.state == A2AState.TASK_STATE_COMPLETED
    assert len(set(ids_of(heard))) == len(heard)
    appends = [event.response.artifact_update.append for event in heard if event.text]
    assert appends == [False, *[True] * (len(WORDS) - 1)]


@pytest.mark.parametrize("last_id", ["nonsense", "1-1", "99999999999999-0", "0-0", f"{2**64}-0"])
async def test_an_id_that_the_stream_does_not_hold_gets_the_whole_task(
    gateway: RunningGateway, model: PromptModel, last_id: str
) -> None:
    """A fresh task first, as without an id; behind the very beginning all events there were."""
    prompt, gate = unique("unknown"), asyncio.Event()
    model.scripts[prompt] = ["half ", gate, "whole"]
    async with connected(gateway.url, streaming=False) as a2a:
        task = await send(a2a, request(prompt, return_immediately=True))
    async with stream(gateway, "SubscribeToTask", {"id": task.id}, last_id) as events:
        first = await anext(events)
        gate.set()
        rest = [event async for event in events]
    is_whole = first.response.HasField("task")
    assert is_whole == (last_id != "0-0")
    texts = [part.text for artifact in first.response.task.artifacts for part in artifact.parts]
    assert "".join([*texts, first.text, *(event.text for event in rest)]) == "half whole"


async def test_the_reply_to_a_message_ends_where_it_did(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """SendStreamingMessage goes on to the question that answers it, and no further."""
    params = message(unique("turn"))
    async with stream(stand_in, "SendStreamingMessage", params) as events:
        first = await anext(events)
    task = StoodIn(client, views, first.response.task)
    await task.publish(TaskState.WORKING)
    await task.publish(TaskState.INPUT_REQUIRED, questions=(ask(QuestionKind.CLARIFICATION),))
    rest = await all_of(stand_in, "SendStreamingMessage", params, first.id)
    after = await all_of(stand_in, "SendStreamingMessage", params, rest[-1].id)
    states = [event.response.status_update.status.state for event in rest]
    assert states == [A2AState.TASK_STATE_WORKING, A2AState.TASK_STATE_INPUT_REQUIRED]
    assert after == []
    await task.end()


async def test_of_updates_that_belong_together_the_last_has_the_id(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """Who got only the first of them gets both again, and misses nothing."""
    async with stream(stand_in, "SendStreamingMessage", message(unique("failed"))) as events:
        first = await anext(events)
        task = StoodIn(client, views, first.response.task)
        chunk = ArtifactChunk(
            artifact_id="draft", mode="replace", position=1, attempt=1, index=0, part=TextPart(text="half")
        )
        await views.publish(task.id, "run", [chunk])
        await task.publish(TaskState.FAILED)
        half, failed, status = [event async for event in events]
    await task.end()
    assert (half.text, half.id != "", failed.id) == ("half", True, "")
    assert failed.response.artifact_update.artifact.metadata.fields["status"].string_value == "failed"
    assert status.response.status_update.status.state == A2AState.TASK_STATE_FAILED
    assert await all_of(stand_in, "SubscribeToTask", {"id": task.id}, half.id) == [failed, status]


async def test_who_goes_on_from_behind_the_end_is_not_kept_waiting(
    stand_in: RunningGateway, client: Client, views: TaskViews
) -> None:
    """An activity may still publish after it; the stream ends with that event, without a second end."""
    async with stream(stand_in, "SendStreamingMessage", message(unique("behind"))) as events:
        first = await anext(events)
    task = StoodIn(client, views, first.response.task)
    for state in (TaskState.WORKING, TaskState.COMPLETED):
        await task.publish(state)
    (*_, end) = await views.read({task.id: START}, wait=0)
    await views.publish(task.id, "run", [Warned(text="late")])
    await task.end()
    assert await all_of(stand_in, "SubscribeToTask", {"id": task.id}, end.position) == []


@pytest.mark.parametrize("is_over", [False, True])
async def test_an_end_that_a_reset_has_taken_back_ends_no_stream(
    stand_in: RunningGateway, client: Client, views: TaskViews, *, is_over: bool
) -> None:
    """A client that resumes before it gets the whole task as it is now, and later events; not that end."""
    params = message(unique("reset"))
    async with stream(stand_in, "SendStreamingMessage", params) as events:
        first = await anext(events)
    task = StoodIn(client, views, first.response.task)
    await task.publish(TaskState.WORKING)
    await task.publish(TaskState.FAILED)

    async def publish_later(version: int, state: TaskState) -> None:
        status = StatusChanged(version=version, state=state, at=datetime.now(UTC))
        await views.publish(task.id, "a later run", [status])

    await publish_later(1, TaskState.WORKING)
    if is_over:
        await publish_later(2, TaskState.COMPLETED)
    async with stream(stand_in, "SendStreamingMessage", params, first.id) as events:
        heard = [await anext(events), await anext(events)]
        if not is_over:
            await publish_later(2, TaskState.COMPLETED)
        heard += [event async for event in events]
    await task.end()
    shown = [e.response.task.status.state or e.response.status_update.status.state for e in heard]
    now = (
        [A2AState.TASK_STATE_COMPLETED]
        if is_over
        else [A2AState.TASK_STATE_WORKING, A2AState.TASK_STATE_COMPLETED]
    )
    assert shown == [A2AState.TASK_STATE_WORKING, *now]
    assert [event.response.HasField("task") for event in heard[:2]] == [False, True]


async def test_a_new_message_is_not_mistaken_for_one_that_goes_on(
    gateway: RunningGateway, model: PromptModel
) -> None:
    """An id of another task's event is ignored."""
    prompt = unique("new")
    events = await all_of(gateway, "SendStreamingMessage", message(unique("other")))
    fresh = await all_of(gateway, "SendStreamingMessage", message(prompt), events[2].id)
    assert fresh[0].response.HasField("task")
    assert "".join(event.text for event in fresh) == prompt
