"""What HTTP itself allows: heads and bodies of bounded size, in bounded time."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import uvicorn
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError
from starlette.responses import JSONResponse, Response

from everloop.agents.registry import AgentRegistry
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.bindings.endpoint import Endpoint
from everloop.gateway.context import MAX_HEAD_BYTES, MAX_HEADERS, Caller
from everloop.gateway.errors import UnauthenticatedError
from everloop.gateway.http.requests import BODIES_AT_ONCE, SMALL_BODY, A2ARequest, BodyLimits, HttpContext
from everloop.gateway.http.server import GatewayProtocol, listen
from everloop.gateway.settings import GatewaySettings
from tests.gateway.harness import AGENT, RunningGateway


class Echo(Endpoint):
    """Answers with what it read."""

    async def answer(self, request: A2ARequest) -> Response:
        return JSONResponse(await request.json())

    def error(self, error: A2AError, request: A2ARequest) -> Response:
        return JSONResponse(build_rest_error_payload(error))


class Doorman(Authenticator):
    """Knows everybody but who says that nobody does."""

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


HEADS: dict[str, bytes] = {
    "a long address": b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long query": b"GET /tasks?x=" + b"y" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long header": HEAD + b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
    "large headers": HEAD + b"X: %s\r\n" % (b"y" * 990) * 1_000 + b"\r\n",
    "different headers": HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(30_000)) + b"\r\n",
    "empty headers": b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 20_000 + b"\r\n",
}


@pytest.mark.parametrize("name", HEADS)
async def test_headers_over_the_limit_are_refused(gateway: RunningGateway, name: str) -> None:
    """431 in JSON, the text names the limit, and the connection ends."""
    status, body = await exchange(gateway.url, HEADS[name])
    assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
    error = json.loads(body)["error"]
    assert (error["code"], f"more than {MAX_HEADERS}; send less" in error["message"]) == (431, True)


@pytest.mark.parametrize("path", ["/tasks", "/healthz", "/artifacts/x", "/.well-known/agent-card.json"])
async def test_hundreds_of_headers_are_read(gateway: RunningGateway, path: str) -> None:
    """More than proxies take; what is beyond is refused, wherever it is sent to."""
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
