"""What takes more than its share, or is made to confuse, is refused in the words of each binding."""

import asyncio
import json
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl, LimitSettings, RequestLimits
from everloop.gateway.bindings.grpc import GrpcServer
from everloop.gateway.context import MAX_HEADERS
from everloop.gateway.settings import GatewaySettings
from everloop.runtime.redis import connect_redis
from everloop.stores.quotas import Quotas
from everloop.stores.views.interface import TaskViews
from tests.gateway.bindings.abuses import Json, MessageWires
from tests.gateway.grpc_harness import running_grpc_gateway
from tests.gateway.harness import running_gateway, stand_in_worker, unique
from tests.gateway.named_callers import Named
from tests.gateway.wire_requests import Ask
from tests.gateway.wires import Reply, Wire, all_wires

BODY_BYTES = 4_000_000
MESSAGE_BYTES = 2_000_000

_CODES: dict[str, tuple[int | str, int]] = {
    "JSON-RPC 1.0": (-32602, 200),
    "JSON-RPC 0.3": (-32602, 200),
    "REST 1.0": (400, 400),
    "REST 0.3": (400, 400),
    "gRPC 1.0": ("INVALID_ARGUMENT", 0),
    "gRPC 0.3": ("INVALID_ARGUMENT", 0),
}
"""What each binding says of parameters that do not fit, and the status of HTTP."""

every_wire = pytest.mark.parametrize("wire", _CODES)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def wires(client: Client, views: TaskViews) -> AsyncGenerator[MessageWires]:
    """A gateway that takes messages of two megabytes, and has no worker: nothing here gets that far."""
    settings = GatewaySettings(
        grpc_port=0, shutdown_grace=1, max_message_bytes=MESSAGE_BYTES, max_body_bytes=BODY_BYTES
    )
    server = GrpcServer(settings, AccessControl())
    async with (
        running_gateway(
            client, views, queue="none", max_message_bytes=MESSAGE_BYTES, max_body_bytes=BODY_BYTES
        ) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        await server.start(gateway.app.state.handler)
        yield MessageWires(gateway.http, channel)
        await server.stopped()


def _nested(depth: int) -> Any:  # noqa: ANN401 -- JSON
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


TEXT = {"text": "hi"}
LONG = "x" * 1_000_000

ABUSES: dict[str, tuple[Json, str]] = {
    "a part too many": ({"parts": [TEXT] * 1_001}, "1000"),
    "10,000 parts": ({"parts": [TEXT] * 10_000}, "1000"),
    "10,000 lists": ({"parts": [{"data": []}] * 10_000}, "1000"),
    "a file too many": ({"parts": [{"raw": "aGk="}] * 101}, "has 101 files; one message may have 100"),
    "a large part": ({"parts": [{"text": "y" * MESSAGE_BYTES}]}, f"this server takes {MESSAGE_BYTES}"),
    "large parts": ({"parts": [{"text": "y" * 20_000}] * 101}, f"this server takes {MESSAGE_BYTES}"),
    "a long messageId": ({"messageId": LONG}, "message.messageId has 1000000 bytes; an id may have 255"),
    "a long contextId": ({"contextId": LONG}, "message.contextId has 1000000 bytes; an id may have 255"),
    "a long taskId": ({"taskId": LONG}, "message.taskId has 1000000 bytes; an id may have 255"),
    "NUL in messageId": ({"messageId": "a\0b"}, "message.messageId has control characters"),
    "a line in contextId": ({"contextId": "a\r\nb"}, "message.contextId has control characters"),
    "C1 in taskId": ({"taskId": "a\x85b"}, "message.taskId has control characters"),
    "a step in contextId": ({"contextId": ".."}, "message.contextId is a step of a path"),
    "a step in taskId": ({"taskId": "."}, "message.taskId is a step of a path"),
}


def message(changes: Json) -> Json:
    return {"messageId": unique("m"), "role": "ROLE_USER", "parts": [TEXT], **changes}


@every_wire
@pytest.mark.parametrize(("changes", "words"), ABUSES.values(), ids=ABUSES)
async def test_a_message_that_is_too_much_is_refused(
    wires: MessageWires, wire: str, changes: Json, words: str
) -> None:
    """The text names the field and the limit, and repeats nothing."""
    told = await wires.send(wire, message(changes))

    assert (told.code, told.status) == _CODES[wire]
    assert words in told.text
    assert told.size < 1_000


@pytest.mark.parametrize("wire", [wire for wire in _CODES if not wire.startswith("gRPC")])
@pytest.mark.parametrize("depth", [120, 400])
async def test_data_that_is_nested_too_deeply_is_refused(wires: MessageWires, wire: str, depth: int) -> None:
    """Deeper than protobuf reads; a client of gRPC cannot even write it."""
    told = await wires.send(wire, message({"parts": [{"data": _nested(depth)}]}))

    assert (told.code, told.status) == _CODES[wire]
    assert "nested too deeply" in told.text


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/tasks/%00", 400, "control characters"),
        ("GET", "/tasks/a%0d%0ab:subscribe", 400, "control characters"),
        ("GET", "/tasks/%2e%2e", 400, "a step of a path"),
        ("GET", f"/tasks/{'x' * 300}", 400, "id has 300 bytes"),
        ("GET", "/tasks/a%2Fb", 404, "nothing is at"),
        ("GET", "/tasks/..%2f..%2fetc%2fpasswd", 404, "nothing is at"),
        ("GET", "/tasks?pageSize=" + "9" * 5_000, 400, "pageSize has to be"),
        ("GET", "/tasks?pageToken=%00%ff", 400, "pageToken"),
        ("GET", "/tasks?contextId=%0a", 400, "control characters"),
        ("GET", "/" + "x" * 60_000, 404, "nothing is at"),
        ("PUT", "/", 405, "takes POST"),
        ("TRACE", "/", 405, "takes POST"),
        ("X" * 1_000, "/message:send", 405, "takes POST"),
        ("DELETE", "/tasks/x", 405, "takes GET"),
    ],
)
async def test_an_address_that_is_made_to_confuse_is_refused(
    wires: MessageWires, method: str, path: str, status: int, words: str
) -> None:
    """It is read once, as what it says, and never echoed at length."""
    answer = await wires.http.request(method, path)

    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
    assert len(answer.content) < 1_000


HEADS: dict[str, bytes] = {
    "a long address": b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long query": b"GET /tasks?x=" + b"y" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long header": b"GET /tasks HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "many headers": b"GET /tasks HTTP/1.1\r\nHost: x\r\n" + b"X: %s\r\n" % (b"y" * 990) * 1_000 + b"\r\n",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
async def test_a_head_of_a_megabyte_is_refused(wires: MessageWires, head: bytes) -> None:
    """In JSON, and the connection ends."""
    address = urlsplit(str(wires.http.base_url))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(head)
    answer = await reader.read()
    writer.close()

    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert (error["code"], "the headers are larger" in error["message"]) == (431, True)


@pytest.mark.parametrize(("count", "status"), [(MAX_HEADERS - 20, 200), (MAX_HEADERS + 1, 431)])
async def test_hundreds_of_headers_are_read(wires: MessageWires, count: int, status: int) -> None:
    """More than proxies take; what is beyond is refused."""
    answer = await wires.http.get("/tasks", headers={f"x-{n}": "y" for n in range(count)})

    assert answer.status_code == status


async def test_clients_that_stall_keep_nobody_waiting(wires: MessageWires) -> None:
    """Neither those that send their bodies drop by drop, nor those that read no answers."""
    address = urlsplit(str(wires.http.base_url))
    head = (
        b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
    )
    reading = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: [::]\r\n\r\n" * 2_000
    connections = [await asyncio.open_connection(address.hostname, address.port) for _ in range(100)]
    for number, (_, writer) in enumerate(connections):
        writer.write(reading if number % 2 else head)

    answer = await wires.http.get("/tasks")

    for _, writer in connections:
        writer.transport.abort()
    assert answer.status_code == 200


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def limited(client: Client, views: TaskViews, redis_url: str) -> AsyncGenerator[dict[str, Wire]]:
    """A gateway that takes two requests a minute of each owner, and one open task."""
    settings = LimitSettings(requests_per_minute=2, max_open_tasks=1)
    queue = unique("limited")
    async with connect_redis(redis_url) as redis:
        access = AccessControl(Named(), RequestLimits(settings, Quotas(redis)))
        async with (
            stand_in_worker(client, queue),
            running_grpc_gateway(client, views, queue=queue, access=access) as gateway,
        ):
            yield all_wires(gateway.http.http, gateway.channel)


@every_wire
async def test_requests_over_the_rate_are_told_when_to_come_back(limited: dict[str, Wire], wire: str) -> None:
    """429 and Retry-After over HTTP, RESOURCE_EXHAUSTED with the same in its details over gRPC."""
    headers = {"owner": unique("owner")}
    replies = [await limited[wire].send(Ask("on_get_task", "nobody"), headers) for _ in range(3)]

    assert all(limited[wire].is_not_found(reply) for reply in replies[:2])
    _is_told_to_wait(replies[2])
    assert b"2 a minute" in replies[2].body


@every_wire
async def test_more_open_tasks_than_a_share_are_refused(limited: dict[str, Wire], wire: str) -> None:
    """The first stays; the second message is to come again when it has ended."""
    headers = {"owner": unique("owner")}
    first, second = [await limited[wire].send(Ask("on_message_send"), headers) for _ in range(2)]

    assert first.status in {200, "OK"}
    _is_told_to_wait(second)
    assert b"too many open tasks" in second.body


def _is_told_to_wait(reply: Reply) -> None:
    if isinstance(reply.status, int):
        assert reply.status == HTTPStatus.TOO_MANY_REQUESTS
        assert int(reply.headers["retry-after"]) > 0
    else:
        assert reply.status == "RESOURCE_EXHAUSTED"
        assert "google.rpc.RetryInfo" in reply.headers["grpc-status-details-bin"]
