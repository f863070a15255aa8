"""SendStreamingMessage and SubscribeToTask: every client sees every event once, in order."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.client import ClientCallContext
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types.a2a_pb2 import StreamResponse, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import UnsupportedOperationError
from google.protobuf.json_format import MessageToDict
from temporalio.client import Client

from everloop.gateway.http.requests import A2ARequest
from everloop.gateway.requests.messages import IncomingMessage
from everloop.runtime.protocol.tasks import EVENTS_EXTENSION
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import ToolCalled
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


async def test_a_stream_is_the_task_then_its_updates_then_the_end(a2a: A2AClient, model: PromptModel) -> None:
    """The first event is the task, the last one its terminal status, and the text in between is whole."""
    prompt = unique("stream")
    model.scripts[prompt] = WORDS
    answer = await Answer().read(a2a.send_message(request(prompt)))
    assert [response.HasField("task") for response in answer.responses].count(True) == 1
    assert answer.responses[0].HasField("task")
    assert answer.text == TEXT
    assert answer.finals == 1
    assert answer.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert answer.responses[-1].HasField("status_update")


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


async def test_a_message_repeated_after_the_end_streams_the_task_alone(a2a: A2AClient) -> None:
    """A stream for a finished task is the task and nothing else."""
    message = request(unique("again"))
    await Answer().read(a2a.send_message(message))
    (only,) = (await Answer().read(a2a.send_message(message))).responses
    assert only.task.status.state == TaskState.TASK_STATE_COMPLETED


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


async def test_clients_that_leave_leave_nothing_behind(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> None:
    """After 500 connects and disconnects nobody is subscribed, and the task still streams."""
    prompt, gate = unique("leave"), asyncio.Event()
    model.scripts[prompt] = [gate, "still here"]
    async with running_gateway(client, views, queue=queue) as gateway, connected(gateway.url) as a2a:
        async with connected(gateway.url, streaming=False) as polling:
            task = await send(polling, request(prompt, return_immediately=True))

        async def come_and_go() -> None:
            stream = a2a.subscribe(SubscribeToTaskRequest(id=task.id))
            async with aclosing(cast("AsyncGenerator[StreamResponse]", stream)) as open_stream:
                assert (await anext(open_stream)).task.id == task.id

        for _ in range(25):
            await asyncio.gather(*(come_and_go() for _ in range(20)))
        await _until_nobody_listens(gateway)
        stream = a2a.subscribe(SubscribeToTaskRequest(id=task.id))
        answer = Answer()
        answer.add(await anext(stream))
        gate.set()
        await answer.read(stream)
    assert answer.text == "still here"


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


async def test_the_extension_shows_every_event(gateway: RunningGateway, model: PromptModel) -> None:
    """A client that activates it gets the other events as metadata; its header is confirmed."""
    prompt = unique("tools")
    event = ToolCalled(iteration=1, call_id="c1", name="search", arguments="{}")
    model.scripts[prompt] = [event, "found"]
    context = ClientCallContext(
        service_parameters=ServiceParametersFactory.create([with_a2a_extensions([EVENTS_EXTENSION])])
    )
    async with connected(gateway.url) as a2a:
        answer = await Answer().read(a2a.send_message(request(prompt), context=context))
    card = await gateway.http.get(".well-known/agent-card.json")
    plain = await gateway.call("ListTasks", {}, **{"A2A-Extensions": EVENTS_EXTENSION})
    metadata = [
        MessageToDict(response.status_update.metadata)
        for response in answer.responses
        if response.status_update.metadata.fields
    ]
    others = [m[EVENTS_EXTENSION] for m in metadata if EVENTS_EXTENSION in m]
    (shown,) = [other for other in others if other["kind"] == "tool-call"]
    assert ToolCalled.model_validate(shown) == event
    assert card.json()["capabilities"]["extensions"][0]["uri"] == EVENTS_EXTENSION
    assert plain.headers["A2A-Extensions"] == EVENTS_EXTENSION


async def test_without_the_extension_other_events_stay_inside(a2a: A2AClient, model: PromptModel) -> None:
    """A client of plain A2A sees statuses, with what the task has used, and artifacts only."""
    prompt = unique("plain")
    model.scripts[prompt] = [ToolCalled(iteration=1, call_id="c1", name="search", arguments="{}"), "found"]
    answer = await Answer().read(a2a.send_message(request(prompt)))
    shown = {key for response in answer.responses for key in response.status_update.metadata.fields}
    assert shown == {"usage"}
    assert answer.text == "found"


async def test_a_finished_task_cannot_be_subscribed_to(a2a: A2AClient, blocking: A2AClient) -> None:
    """A2A 1.0 §3.1.6: subscribing to a terminal task is unsupported."""
    task = await send(blocking, request(unique("done")))
    with pytest.raises(UnsupportedOperationError, match="is completed and publishes nothing more"):
        await Answer().read(a2a.subscribe(SubscribeToTaskRequest(id=task.id)))


async def _until_nobody_listens(gateway: RunningGateway) -> None:
    while gateway.fanout.subscribed_tasks:  # noqa: ASYNC110 -- a fact of other tasks, no event; bounded by the test's timeout
        await asyncio.sleep(0)
