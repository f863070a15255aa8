"""Ends of gRPC streams while their task goes on."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import grpc
import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.grpc import GrpcServer
from everloop.gateway.http.server import AddressInUseError
from everloop.gateway.settings import GatewaySettings
from everloop.gateway.tasks.fanout import EventFanout
from everloop.local.servers import LOOPBACK
from everloop.stores.log.log_store import TaskViews
from tests.gateway.grpc_harness import GrpcGateway, running_grpc_gateway
from tests.gateway.harness import PromptModel, unique
from tests.support.a2a_client import connected, request, send
from tests.support.servers.processes import until

NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))
"""Options of a client with small buffers for unread data."""


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> AsyncGenerator[GrpcGateway]:
    async with running_grpc_gateway(client, views, queue=queue, stalled_after=0.5) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="session")
async def caller(gateway: GrpcGateway) -> AsyncGenerator[A2AClient]:
    async with connected(gateway.url, binding="GRPC", streaming=False) as caller:
        yield caller


async def task_of(caller: A2AClient, prompt: str) -> str:
    """Start a task without subscribers, and return its id."""
    return (await send(caller, request(prompt, return_immediately=True))).id


async def end_of(events: AsyncIterator[pb.StreamResponse]) -> grpc.aio.AioRpcError:
    """Read a stream up to its end, which is a status."""
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        [event async for event in events]
    return ended.value


def is_left(fanout: EventFanout) -> Callable[[], bool]:
    """Return True once there is no subscriber."""
    return lambda: fanout.subscribed_tasks == 0


async def test_a_client_that_leaves_costs_nothing_more(
    gateway: GrpcGateway, caller: A2AClient, model: PromptModel
) -> None:
    """Its subscription ends, and so does the wait of its blocking send."""
    prompt, gate = unique("left"), asyncio.Event()
    model.scripts[prompt] = ["one ", gate]
    task_id = await task_of(caller, prompt)
    stream = gateway.subscribe(task_id)
    await anext(aiter(stream))
    await until(lambda: gateway.http.fanout.subscribed_tasks == 1)
    stream.cancel()
    await until(is_left(gateway.http.fanout))
    sending = asyncio.create_task(send(caller, request(prompt)))
    await until(lambda: gateway.http.fanout.subscribed_tasks == 1)
    sending.cancel()
    await until(is_left(gateway.http.fanout))
    gate.set()


async def test_a_server_that_stops_says_to_subscribe_again(
    gateway: GrpcGateway, caller: A2AClient, model: PromptModel
) -> None:
    """Open streams end as unavailable, with RetryInfo; new calls cannot connect."""
    prompt, gate = unique("stopped"), asyncio.Event()
    model.scripts[prompt] = ["one ", gate]
    events = aiter(gateway.subscribe(await task_of(caller, prompt)))
    await anext(events)
    gateway.stop()
    ended = await end_of(events)
    await gateway.server.stopped()
    refused = await end_of(aiter(gateway.subscribe("x")))
    gate.set()
    assert ended.code() is grpc.StatusCode.UNAVAILABLE
    assert "call SubscribeToTask" in (ended.details() or "")
    assert retry_of(ended).retry_delay.seconds == 1
    assert refused.code() is grpc.StatusCode.UNAVAILABLE


def retry_of(error: grpc.aio.AioRpcError) -> RetryInfo:
    content, retry = dict(error.trailing_metadata())["grpc-status-details-bin"], RetryInfo()
    assert isinstance(content, bytes)
    assert Status.FromString(content).details[1].Unpack(retry)
    return retry


async def test_a_client_that_takes_nothing_is_left(
    gateway: GrpcGateway, caller: A2AClient, model: PromptModel
) -> None:
    """The stream of a client that does not read ends, so that nothing is kept for it.

    Others get all events.
    """
    prompt, gate = unique("stalled"), asyncio.Event()
    texts = [f"{n:06}" + "x" * 20_000 for n in range(100)]
    model.scripts[prompt] = ["one ", gate, *texts]
    task_id = await task_of(caller, prompt)
    async with grpc.aio.insecure_channel(f"{LOOPBACK}:{gateway.server.port}", NARROW) as channel:
        stalled = aiter(gateway.subscribe(task_id, channel=channel))
        await anext(stalled)
        reader = aiter(gateway.subscribe(task_id))
        await anext(reader)
        gate.set()
        seen = [update.artifact_update.artifact.parts[0].text async for update in reader if is_text(update)]
        await until(is_left(gateway.http.fanout))
        ended = await end_of(stalled)
    assert seen[-len(texts) :] == texts
    assert ended.code() is grpc.StatusCode.UNAVAILABLE
    assert "took no events" in (ended.details() or "")


def is_text(update: pb.StreamResponse) -> bool:
    return update.artifact_update.append and bool(update.artifact_update.artifact.parts[0].text)


async def test_a_port_that_is_taken_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """Two servers cannot share it; the only output is our own line."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(AddressInUseError, match=f"gRPC on {LOOPBACK}:{port}: .*EVERLOOP_GRPC_PORT"):
            GrpcServer(GatewaySettings(grpc_port=port), AccessControl())
    assert not capfd.readouterr().err
