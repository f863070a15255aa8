"""SendStreamingMessage and SubscribeToTask: each event once, in order; narrations and sub-agents, too."""

import asyncio
import gc
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import SubscribeToTaskRequest
from a2a.types.a2a_pb2 import TaskState as A2AState
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue
from temporalio.client import Client

from everloop.gateway.http.requests import A2ARequest
from everloop.gateway.requests.incoming_messages import IncomingMessage
from everloop.gateway.tasks.fanout import EventFanout
from everloop.runtime.redis import connect_redis
from everloop.stores.keys import log_key
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import Narrated, ProviderToolRan, TaskEvent
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import (
    PromptModel,
    RunningGateway,
    StoodIn,
    running_gateway,
    stand_in_worker,
    unique,
)
from tests.gateway.streams.followed_tasks import FollowedTask, working_task
from tests.gateway.streams.sse import stream
from tests.stores.examples import status
from tests.support.a2a_client import Answer, connected, request, response_of, send


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def both(
    client: Client, views: TaskViews, queue: str, gateway: RunningGateway
) -> AsyncGenerator[dict[str, RunningGateway]]:
    async with running_gateway(client, views, queue=queue) as other:
        yield {"the same gateway": gateway, "another gateway": other}


WORDS = [f"word{n} " for n in range(50)]
TEXT = "".join(WORDS)


async def test_a_stream_does_not_hold_the_message_that_began_it(a2a: A2AClient, model: PromptModel) -> None:
    """Bodies are counted until they are read: bytes that streams kept would not be counted."""
    prompt, gate = unique("held"), asyncio.Event()
    model.scripts[prompt] = [WORDS[0], gate, WORDS[1]]
    answer, stream = Answer(), a2a.send_message(request(prompt))
    while answer.text != WORDS[0]:
        answer.add(await anext(stream))
    alive = gc.get_objects()
    requests = (vars(each) for each in alive if isinstance(each, A2ARequest))
    texts = (value for fields in requests for value in fields.values() if isinstance(value, bytes))
    assert not [text for text in texts if prompt.encode() in text]
    assert not [each for each in alive if isinstance(each, IncomingMessage) and prompt in str(each.message)]
    gate.set()
    assert (await answer.read(stream)).text == "".join(WORDS[:2])


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029", "\r\n"])
async def test_any_character_can_be_streamed(a2a: A2AClient, model: PromptModel, end: str) -> None:
    """Also those at which the official client ends a line."""
    prompt = f"{unique('line')}{end}end"
    model.scripts[prompt] = ["one", f"{end}two"]
    answer = await Answer().read(a2a.send_message(request(prompt)))
    assert answer.text == f"one{end}two"
    assert answer.responses[0].task.history[0].parts[0].text == prompt


@pytest.mark.parametrize("joined", ["the same gateway", "another gateway"])
async def test_a_subscriber_joins_in_the_middle_without_gap_or_repeat(
    a2a: A2AClient, model: PromptModel, both: dict[str, RunningGateway], joined: str
) -> None:
    """Snapshot plus the updates after it is the whole text, whenever the client joins, at any gateway."""
    prompt, gate = unique("join"), asyncio.Event()
    model.scripts[prompt] = [*WORDS[:25], gate, *WORDS[25:]]
    other = both[joined]
    first, second = Answer(), Answer()
    stream = a2a.send_message(request(prompt))
    while first.text != "".join(WORDS[:25]):
        first.add(await anext(stream))
    async with connected(other.url) as late:
        subscription = late.subscribe(SubscribeToTaskRequest(id=first.task_id))
        second.add(await anext(subscription))
        gate.set()
        await asyncio.gather(first.read(stream), second.read(subscription))
    assert first.text == second.text == TEXT
    assert response_of(second.responses[0].task) == "".join(WORDS[:25])
    assert second.states[-1] == A2AState.TASK_STATE_COMPLETED


async def test_a_client_that_leaves_while_it_waits_is_not_worked_for(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> None:
    """A blocking request ends with its connection, not with the blocking timeout."""
    prompt, gate = unique("gone"), asyncio.Event()
    model.scripts[prompt] = [gate]
    async with running_gateway(client, views, queue=queue) as gateway:
        async with connected(gateway.url, streaming=False) as a2a:
            waiting = asyncio.create_task(send(a2a, request(prompt)))
            while not gateway.fanout.subscribed_tasks:  # noqa: ASYNC110 -- a fact of another task, no event
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await _until_nobody_listens(gateway)
        gate.set()


async def test_a_gateway_that_stops_ends_streams_and_waits(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> None:
    """At shutdown streams end without an error and blocking calls get the task as it stands."""
    prompt, other, begun, gate = unique("stop"), unique("other"), asyncio.Event(), asyncio.Event()
    model.scripts[prompt], model.scripts[other] = [begun, "half", gate], [gate]
    async with (
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url) as a2a,
        connected(gateway.url, streaming=False) as polling,
    ):
        stream = a2a.send_message(request(prompt))
        waiting = asyncio.create_task(send(polling, request(other)))
        async for response in stream:
            begun.set()
            if response.HasField("artifact_update"):
                break
        while gateway.fanout.subscribed_tasks < 2:  # noqa: ASYNC110 -- a fact of another task, no event
            await asyncio.sleep(0)
        gateway.server.stop()
        assert (await waiting).status.state in {A2AState.TASK_STATE_SUBMITTED, A2AState.TASK_STATE_WORKING}
        assert [response async for response in stream] == []
    gate.set()


async def _until_nobody_listens(gateway: RunningGateway) -> None:
    while gateway.fanout.subscribed_tasks:  # noqa: ASYNC110 -- a fact of other tasks, no event; bounded by the test's timeout
        await asyncio.sleep(0)


SUBSCRIBE = "SubscribeToTask"
EXTENDED = {"A2A-Extensions": EVENTS_EXTENSION}
NARRATION = Narrated(text="Reading the minutes")


async def say(task: FollowedTask, *events: TaskEvent) -> None:
    await task.views.publish(task.id, "run", events)


async def test_a_narration_is_a_status_with_a_message(gateway: RunningGateway, views: TaskViews) -> None:
    """Each client gets it at once, and marked; with the extension also as an event of its own."""
    task = await working_task(views)
    for headers in ({}, EXTENDED):
        async with stream(gateway, SUBSCRIBE, {"id": task.id}, **headers) as events:
            await anext(events)
            await say(task, NARRATION)
            update = (await anext(events)).response.status_update
        assert update.status.state == A2AState.TASK_STATE_WORKING
        assert update.status.message.parts[0].text == "Reading the minutes"
        assert MessageToDict(update.status.message.metadata) == {"narration": True}
        known = MessageToDict(update.metadata).get(EVENTS_EXTENSION, {})
        assert known.pop("at", None) == (MessageToDict(update.status)["timestamp"] if headers else None)
        assert known == ({"kind": "narration", "text": "Reading the minutes"} if headers else {})


async def test_a_tool_of_the_provider_is_an_event_of_the_extension(
    gateway: RunningGateway, views: TaskViews
) -> None:
    """Clients that activate it get all of it; others get nothing of it."""
    task = await working_task(views)
    detail: JsonValue = {"action": {"type": "search", "query": "Köln 🜁"}}
    ran = ProviderToolRan(iteration=1, id="ws_1", name="web_search", status="completed", detail=detail)
    params = {"id": task.id}
    async with (
        stream(gateway, SUBSCRIBE, params) as plain,
        stream(gateway, SUBSCRIBE, params, **EXTENDED) as extended,
    ):
        await anext(plain)
        await anext(extended)
        await say(task, ran, NARRATION)
        first = (await anext(plain)).response.status_update
        told = MessageToDict((await anext(extended)).response.status_update.metadata)[EVENTS_EXTENSION]
    assert first.status.message.parts[0].text == NARRATION.text
    del told["at"]
    assert told == ran.model_dump(mode="json")


async def test_nothing_is_narrated_after_a_question_or_the_end(
    gateway: RunningGateway, views: TaskViews
) -> None:
    """A client that waits for its turn, or has got the end, gets no working status."""
    task = await working_task(views)
    async with stream(gateway, SUBSCRIBE, {"id": task.id}) as events:
        await anext(events)
        await say(task, status(2, TaskState.INPUT_REQUIRED), NARRATION, status(3), NARRATION)
        await say(task, status(4, TaskState.COMPLETED), NARRATION)
        updates = [event.response.status_update.status async for event in events]
    assert [(each.state, each.message.message_id != "") for each in updates] == [
        (A2AState.TASK_STATE_INPUT_REQUIRED, False),
        (A2AState.TASK_STATE_WORKING, False),
        (A2AState.TASK_STATE_WORKING, True),
        (A2AState.TASK_STATE_COMPLETED, False),
    ]


class CountingViews(TaskViews):
    """Signals when a subscriber without events has read its stream a few times."""

    looks = 0

    def count(self, looks: int) -> asyncio.Event:
        self.looks, self.counted = looks, asyncio.Event()
        return self.counted

    async def holds(self, task_id: str, position: str) -> bool:
        self.looks -= 1
        if not self.looks:
            self.counted.set()
        return await super().holds(task_id, position)


async def test_a_stream_that_has_expired_tells_nothing_again(
    client: Client, views: TaskViews, redis_url: str
) -> None:
    """No event was missed; the client gets the end, as an event or a snapshot."""
    queue = unique("lost")
    async with connect_redis(redis_url) as redis:
        looking = CountingViews(redis)
        async with (
            stand_in_worker(client, queue),
            running_gateway(
                client, views, queue=queue, fanout=EventFanout(looking, idle_check=0.05)
            ) as gateway,
            connected(gateway.url) as a2a,
            connected(gateway.url, streaming=False) as blocking,
        ):
            sent = await send(blocking, request(unique("wait"), return_immediately=True))
            task, events = StoodIn(client, views, sent), a2a.subscribe(SubscribeToTaskRequest(id=sent.id))
            await anext(events)
            await redis.delete(log_key(task.id))
            await looking.count(5).wait()
            await task.publish(TaskState.COMPLETED)
            rest = [each async for each in events]
            await task.end()

    said = [each.task if each.HasField("task") else each.status_update for each in rest]
    assert [each.status.state for each in said] == [A2AState.TASK_STATE_COMPLETED]
