"""SendStreamingMessage and SubscribeToTask: every client sees every event once, in order."""

import asyncio
import gc
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import SubscribeToTaskRequest, TaskState
from temporalio.client import Client

from everloop.gateway.http.requests import A2ARequest
from everloop.gateway.requests.messages import IncomingMessage
from everloop.stores.views.interface import TaskViews
from tests.gateway.harness import PromptModel, RunningGateway, running_gateway, unique
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
    """Bodies are counted until they are read: what streams kept of them, nobody would count."""
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
    assert second.states[-1] == TaskState.TASK_STATE_COMPLETED


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
        assert (await waiting).status.state in {TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING}
        assert [response async for response in stream] == []
    gate.set()


async def _until_nobody_listens(gateway: RunningGateway) -> None:
    while gateway.fanout.subscribed_tasks:  # noqa: ASYNC110 -- a fact of other tasks, no event; bounded by the test's timeout
        await asyncio.sleep(0)
