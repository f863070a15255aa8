"""Streams on every binding over HTTP: ids, resuming, errors, shutdown, and limits."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import pytest_asyncio
from sse_starlette import EventSourceResponse
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.errors import TooManyRequestsError, UnavailableNowError
from everloop.gateway.operations.operation import OpenStreams
from everloop.gateway.tasks.fanout import EventFanout, OnIdle, Subscription
from everloop.stores.log.log_store import TaskViews
from tests.gateway.harness import Named, PromptModel, RunningGateway, running_gateway, unique
from tests.gateway.streams.followed_tasks import working_task
from tests.gateway.streams.sse import all_of, message, stream
from tests.support.wires.events import Event
from tests.support.wires.operations import params_of
from tests.support.wires.wires import JSONRPC, OVER_HTTP, HttpWire, http_wires

every_binding = pytest.mark.parametrize("binding", OVER_HTTP)
SEND, SUBSCRIBE = "SendStreamingMessage", "SubscribeToTask"


def wire_of(gateway: RunningGateway, binding: str) -> HttpWire:
    return http_wires(gateway.http)[binding]


def task_of(event: Event) -> str:
    """Return the id of the task that a stream begins with."""
    return event.result.get("task", event.result)["id"]


@every_binding
async def test_a_client_goes_on_behind_any_event(
    gateway: RunningGateway, model: PromptModel, binding: str
) -> None:
    """Every event has an id, and exactly the rest follows it, in each form of the request.

    On JSON-RPC each is an answer to the request, on REST the bare response.
    """
    wire, prompt = wire_of(gateway, binding), unique("ids")
    model.scripts[prompt] = ["one ", "two ", "three"]
    params = message(prompt)
    sent = await all_of(wire, SEND, params)
    assert "".join(each.text for each in sent) == "one two three"
    ids = [each.id for each in sent]
    assert len(set(ids)) == len(ids)
    envelopes = [each.data.keys() for each in sent]
    if wire.binding == JSONRPC:
        assert envelopes == [{"jsonrpc", "id", "result"}] * len(sent)
    else:
        assert {len(keys) for keys in envelopes} == {1}
    for operation, again in ((SEND, params), (SUBSCRIBE, {"id": task_of(sent[0])})):
        assert await all_of(wire, operation, again, ids[1]) == sent[2:]


class BrokenFanout(EventFanout):
    """Fails when a client subscribes to the events after the snapshot."""

    @asynccontextmanager
    async def subscribe(
        self, task_id: str, position: str, on_idle: OnIdle | None = None
    ) -> AsyncGenerator[Subscription]:
        raise RuntimeError("secret")
        yield  # pragma: no cover -- it makes a generator of the function


async def test_a_stream_that_fails_ends_with_an_error(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> None:
    """Its last event is the error, without an id and without internals. On each binding."""
    prompt, gate = unique("fails"), asyncio.Event()
    model.scripts[prompt] = [gate]
    async with running_gateway(client, views, queue=queue, fanout=BrokenFanout(views)) as gateway:
        ends = {
            each: await all_of(wire_of(gateway, each), SEND, message(prompt, unique("m")))
            for each in OVER_HTTP
        }
    gate.set()
    for binding, (task, last) in ends.items():
        assert (task.id != "", last.id) == (True, "")
        assert ("event" in last.fields) is (binding != "JSON-RPC 0.3")
        error = last.data["error"]
        assert error["code"] == (500 if binding.startswith("REST") else -32603)
        assert error["message"].startswith("internal error, reference ")
        assert "secret" not in last.fields["data"]


@every_binding
async def test_a_server_that_stops_asks_its_clients_to_come_back(
    client: Client, views: TaskViews, queue: str, model: PromptModel, binding: str
) -> None:
    """Streams end with a comment and a retry time; a client misses nothing elsewhere."""
    prompt, begun, gate = unique("stops"), asyncio.Event(), asyncio.Event()
    model.scripts[prompt] = [begun, "half ", gate, "whole"]  # "half " is an event, not in the first view
    heard: list[Event] = []
    async with running_gateway(client, views, queue=queue) as gateway:
        params = message(prompt)
        async with stream(wire_of(gateway, binding), SEND, params) as sent:
            async for each in sent:
                heard.append(each)
                begun.set()
                if each.text:
                    break
            gateway.server.stop()
            farewell = [each async for each in sent][-1]
    assert farewell.fields["retry"] == "1000"
    assert "connect again" in farewell.fields[""]
    async with running_gateway(client, views, queue=queue) as other:
        gate.set()
        rest = await all_of(wire_of(other, binding), SEND, params, heard[-1].id)
    assert "".join(each.text for each in [*heard, *rest]) == "half whole"
    assert all("retry" not in each.fields for each in rest)


@every_binding
async def test_what_keeps_a_silent_stream_open_ends_no_event(
    gateway: RunningGateway, views: TaskViews, binding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """httpx-sse, in a2a-sdk 0.3, takes each blank line for an event once it has read an id."""
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 0.01)
    task, wire, text = await working_task(views), wire_of(gateway, binding), ""
    async with wire.http.stream(**wire.call(SUBSCRIBE, {"id": task.id}, {})) as response:
        pieces = response.aiter_text()
        while text.count("\r\n:") < MANY:
            text += await anext(pieces)
        await task.complete()
        text += "".join([piece async for piece in pieces])
    *events, _ = text.split("\r\n\r\n")
    fields = [[line.partition(":")[0] for line in event.split("\r\n")] for event in events]
    assert [[name for name in names if name] for names in fields] == [["id", "data"]] * 2


MANY = 3
MOST = 2


def test_streams_are_counted_as_long_as_they_last() -> None:
    """Of each owner, and of all together; other owners have room up to the total."""
    streams = OpenStreams(most=3, most_of_owner=2)
    with streams.hold("ann"), streams.hold("ann"):
        with pytest.raises(TooManyRequestsError, match="2 streams"), streams.hold("ann"):
            pass
        with streams.hold("bob"), pytest.raises(UnavailableNowError), streams.hold("cid"):
            pass
    with streams.hold("ann"), streams.hold("ann"):
        pass


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    async with running_gateway(
        client, views, queue="none", access=AccessControl(Named()), max_streams_per_owner=MOST
    ) as gateway:
        yield gateway


@every_binding
async def test_a_stream_too_many_is_refused(small: RunningGateway, views: TaskViews, binding: str) -> None:
    """By 429 and a retry time; closed streams make room. A refused message has no effect."""
    task, wire = await working_task(views), wire_of(small, binding)
    params = params_of(SEND)
    for _ in range(2):
        async with AsyncExitStack() as held:
            opened = [stream(wire, SUBSCRIBE, {"id": task.id}) for _ in range(MOST)]
            streams = [await held.enter_async_context(each) for each in opened]
            for each in streams:  # which would be closed with the last reference to them
                await anext(each)
            replies = [await wire.send(SUBSCRIBE, {"id": task.id}), await wire.send(SEND, params)]
            listed = await small.call("ListTasks", {})
        for refused in replies:
            assert (refused.status, refused.headers["retry-after"]) == (429, "10")
            assert f"{MOST} streams" in refused.body.decode()
        assert task.id in listed.text
        assert params["message"]["messageId"] not in listed.text
    await task.complete()
