"""Limits of HTTP itself: heads and bodies of bounded size, in bounded time."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import uvicorn
import uvloop
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from everloop.agents.registry import AgentRegistry
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.bindings.endpoint import Endpoint
from everloop.gateway.context import MAX_HEAD_BYTES, MAX_HEADERS, MAX_TARGET_BYTES, Caller
from everloop.gateway.errors import UnauthenticatedError
from everloop.gateway.http.requests import BODIES_AT_ONCE, SMALL_BODY, A2ARequest, BodyLimits, HttpContext
from everloop.gateway.http.server import TURN_BYTES, GatewayProtocol, Turns, listen
from everloop.gateway.settings import GatewaySettings
from tests.gateway.harness import AGENT, RunningGateway


class Echo(Endpoint):
    """Answers with what it read."""

    async def answer(self, request: A2ARequest) -> Response:
        return JSONResponse(await request.json())

    def error(self, error: A2AError, request: A2ARequest) -> Response:
        return JSONResponse(build_rest_error_payload(error))


class Doorman(Authenticator):
    """Authenticates every caller except one with the header `x-stranger`."""

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        if "x-stranger" in headers:
            raise UnauthenticatedError("nothing says who calls")
        return Caller()


class Impatient(GatewayProtocol):
    """Waits for heads as short as a test can."""

    head_seconds = 1.0


@pytest.fixture(scope="module")
def limits() -> BodyLimits:
    return BodyLimits(max_bytes=2 * SMALL_BODY, seconds=1)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def impatient(limits: BodyLimits) -> AsyncGenerator[str]:
    """A server that gives bodies and heads a second."""
    app = Echo(HttpContext(AccessControl(Doorman()), limits), AgentRegistry([AGENT]))
    config = uvicorn.Config(app, http=Impatient, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with listen(GatewaySettings(port=0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await serving


HEAD = b"POST /message:send HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def exchange(url: str, sent: bytes) -> tuple[bytes, bytes]:
    """Return the status line and the last body that a server answers with before it closes the connection."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0], answer.rpartition(b"\r\n\r\n" if b"chunked" not in answer else b"{")[
        2
    ]


async def test_a_large_body_in_small_pieces_is_read(impatient: str) -> None:
    """The whole body is read in order, though in turns; so is the next request."""
    content = json.dumps([*range(4_000)]).encode()
    chunks = b"".join(b"5\r\n%s\r\n" % content[at : at + 5] for at in range(0, len(content), 5))
    padded = chunks + b"%x\r\n%s\r\n0\r\n\r\n" % (5, b" " * 5)
    assert len(content) % 5 == 0
    second = HEAD + b"Connection: close\r\nContent-Length: 7\r\n\r\n" + b'"again"'
    address = urlsplit(impatient)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + padded + second)
    answer = await reader.read()
    writer.close()
    first, second = answer.split(b"HTTP/1.1 200 OK")[1:]
    assert json.loads(first.partition(b"\r\n\r\n")[2]) == [*range(4_000)]
    assert second.endswith(b'"again"')


class Noting(GatewayProtocol):
    """Records the bytes read in each turn of the loop; the first turn lasts until all has been sent."""

    def __init__(self, sent: threading.Event, read: dict[int, int], **made: Any) -> None:  # noqa: ANN401 -- as of its base
        super().__init__(**made)
        self._sent, self._read, self._turn = sent, read, 0

    def data_received(self, data: bytes) -> None:
        self._sent.wait()
        self._read[self._turn] = self._read.get(self._turn, 0) + len(data)
        self.loop.call_soon(self._end_turn, self._turn + 1)
        super().data_received(data)

    def _end_turn(self, turn: int) -> None:
        self._turn = turn


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_comes_at_once_is_read_in_turns(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """However much one connection sends at once, others get a turn after a bounded part of it."""
    chunks, sent, read = b"1\r\nx\r\n" * 30_000, threading.Event(), dict[int, int]()
    request = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks

    async def answer(_scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    def send(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            count = client.send(request)
            sent.set()
            client.setblocking(True)
            client.sendall(request[count:] + b"0\r\n\r\n")
            return client.recv(100)

    async def serve() -> None:
        def protocol(**made: Any) -> Turns:  # noqa: ANN401 -- as uvicorn makes them
            return Turns(Noting(sent, read, **made))

        made = cast("type[asyncio.Protocol]", protocol)
        server = uvicorn.Server(uvicorn.Config(answer, http=made, lifespan="off", log_config=None))
        with listen(GatewaySettings(port=0)) as listener:
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            answered = await asyncio.to_thread(send, listener.getsockname()[1])
            server.should_exit = True
            await serving
        assert answered.startswith(b"HTTP/1.1 200 OK")

    run(serve())
    assert sum(read.values()) == len(request) + 5
    assert max(read.values()) == TURN_BYTES


HEADS: dict[str, bytes] = {
    "a long address": b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long query": b"GET /tasks?x=" + b"y" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long header": HEAD + b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
    "large headers": HEAD + b"X: %s\r\n" % (b"y" * 990) * 1_000 + b"\r\n",
    "different headers": HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(30_000)) + b"\r\n",
    "empty headers": b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 20_000 + b"\r\n",
}


@pytest.mark.parametrize("sent", [b"GET /tasks/%s", b"GET /tasks?x=%s", b"POST http://x/%s", b"OPTIONS %s"])
async def test_an_address_over_the_limit_is_refused(gateway: RunningGateway, sent: bytes) -> None:
    """414 in JSON, and the connection ends; one within the limit is read."""
    escapes = b"%2f" * (MAX_TARGET_BYTES // 3 + 1)
    head = sent % escapes + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    status, body = await exchange(gateway.url, head)
    assert status == b"HTTP/1.1 414 Request-URI Too Long"
    assert f"longer than the {MAX_TARGET_BYTES} bytes" in json.loads(body)["error"]["message"]
    shorter = head.replace(b"%2f" * 10, b"", 1)
    assert (await exchange(gateway.url, shorter))[0].split()[1] != b"414"


@pytest.mark.parametrize("name", HEADS)
async def test_headers_over_the_limit_are_refused(gateway: RunningGateway, name: str) -> None:
    """431 in JSON, the text names the limit, and the connection ends."""
    status, body = await exchange(gateway.url, HEADS[name])
    assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
    error = json.loads(body)["error"]
    assert (error["code"], f"more than {MAX_HEADERS}; send less" in error["message"]) == (431, True)


@pytest.mark.parametrize("path", ["/tasks", "/healthz", "/artifacts/x", "/.well-known/agent-card.json"])
async def test_hundreds_of_headers_are_read(gateway: RunningGateway, path: str) -> None:
    """More headers than proxies accept are read; larger numbers are refused at every address."""
    many = {f"x-{n}": "y" for n in range(MAX_HEADERS + 1)}
    some = dict([*many.items()][:-20])
    assert (await gateway.http.get(path, headers=some)).status_code != 431
    assert (await gateway.http.get(path, headers=many)).status_code == 431


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\xff\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: odd\r\n\r\n",
        HEAD + b"Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused(impatient: str, sent: bytes) -> None:
    """400, and the connection ends."""
    status, _ = await exchange(impatient, sent)
    assert status == b"HTTP/1.1 400 Bad Request"


async def test_a_body_that_does_not_come_is_not_waited_for(impatient: str) -> None:
    """408, and the connection ends."""
    status, body = await exchange(impatient, HEAD + b'Content-Length: 100\r\n\r\n{"drop": ')
    assert status == b"HTTP/1.1 408 Request Timeout"
    error = json.loads(body)["error"]
    assert error["details"][0]["reason"] == "CONTENT_TOO_SLOW"
    assert "did not arrive within 1 s" in error["message"]


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half a head"])
async def test_a_head_that_does_not_come_is_not_waited_for(impatient: str, sent: bytes) -> None:
    """The connection ends without an answer."""
    assert await exchange(impatient, sent) == (b"", b"")


async def test_a_body_that_nobody_reads_is_not_waited_for(impatient: str) -> None:
    """A stranger is answered at once, and loses the connection however slowly the rest comes."""
    address = urlsplit(impatient)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(HEAD + b"X-Stranger: x\r\nContent-Length: 50\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
    sent = 0
    while not reader.at_eof() and sent < 50:
        writer.write(b"x")
        sent += 1
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.1):
                await reader.read()
    writer.close()
    assert sent < 50


async def test_a_second_request_may_begin_late_and_is_waited_for_as_long(impatient: str) -> None:
    """Between requests a connection may idle; half a head ends it as it would have at first."""
    address = urlsplit(impatient)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    for _ in range(2):
        writer.write(HEAD + b"Content-Length: 2\r\n\r\n{}")
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200 OK")
    writer.write(b"POST / HTTP/1.1\r\n")
    assert await reader.read() == b""
    writer.close()


async def test_a_body_that_there_is_no_room_for_is_refused(impatient: str, limits: BodyLimits) -> None:
    """503 as long as others fill what there is; small bodies are read all the same."""
    large = b'"' + b"x" * (limits.max_bytes - 2) + b'"'
    sent = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(large) + large
    assert (await exchange(impatient, sent))[0] == b"HTTP/1.1 200 OK"
    assert limits.held == 0
    limits.held = BODIES_AT_ONCE * limits.max_bytes
    status, answer = await exchange(impatient, sent)
    small, _ = await exchange(impatient, HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
    limits.held = 0
    assert status == b"HTTP/1.1 503 Service Unavailable"
    assert b"as much as it can at once" in answer
    assert small == b"HTTP/1.1 200 OK"
