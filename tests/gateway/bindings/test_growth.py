"""The work that an unauthenticated request causes grows at most linearly with its size."""

import asyncio
from collections.abc import Callable, Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from _pytest.mark.structures import ParameterSet
from starlette.applications import Starlette
from temporalio.client import Client
from uvicorn.server import ServerState

from everloop.agents.registry import AgentRegistry
from everloop.gateway.app import build_app
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.api_keys import ApiKeyScheme, add_key, new_key
from everloop.gateway.auth.jwt import JwtScheme, OneKey, TokenRules, VerificationKey
from everloop.gateway.auth.schemes import Authenticator, ProxyCertificateScheme
from everloop.gateway.context import CallHeaders
from everloop.gateway.http.server import GatewayProtocol
from everloop.gateway.settings import GatewaySettings
from everloop.stores.log.log_store import TaskViews
from tests.gateway.harness import AGENT, NO_ATTACHMENTS
from tests.support.growth import assert_grows_no_faster, work_of
from tests.support.stores import stores_of

MANY = 80
LONG = 1_200


def _list(of: bytes, size: int) -> bytes:
    return b",".join([of] * (size // (len(of) + 1)))


HEADS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "the same header": (MANY, lambda n: b"a: b\r\n" * n),
    "different headers": (MANY, lambda n: b"".join(b"x-%d: y\r\n" % i for i in range(n))),
    "credentials": (MANY, lambda n: b"Authorization: Bearer x\r\n" * n),
    "cookies": (LONG, lambda n: b"Cookie: " + b"a=b;" * (n // 4)),
    "what is accepted": (LONG, lambda n: b"Accept: " + _list(b"a/b;q=1", n)),
    "tags": (LONG, lambda n: b"If-None-Match: " + _list(b'"x"', n)),
    "a time": (LONG, lambda n: b"If-Modified-Since: Mon, " + b"1 " * (n // 2)),
    "ranges": (LONG, lambda n: b"Range: bytes=" + _list(b"0-1", n)),
    "parameters": (LONG, lambda n: b"Content-Type: application/json" + b";a=b" * (n // 4)),
    "extensions": (LONG, lambda n: b"A2A-Extensions: " + _list(b"x", n)),
    "commas before a token": (LONG, lambda n: b"Authorization: " + b", " * (n // 2) + b"bearer"),
    "a token": (LONG, lambda n: b"Authorization: Bearer " + b"x" * n),
    "a key": (LONG, lambda n: b"X-API-Key: " + b"x" * n),
    "certificates": (LONG, lambda n: b"X-Forwarded-Client-Cert: " + b"By=a;" * (n // 5)),
    "a trace": (LONG, lambda n: b"traceparent: 00-" + b"0" * n),
    "the state of a trace": (
        LONG,
        lambda n: b"tracestate: " + b",".join(b"k%d=v" % i for i in range(n // 8)),
    ),
    "baggage": (LONG, lambda n: b"baggage: " + b",".join(b"k%d=v" % i for i in range(n // 8))),
    "options of a connection": (LONG, lambda n: b"Connection: " + _list(b"x", n)),
    "a host": (LONG, lambda n: b"X-Forwarded-Host: " + b"a." * (n // 2)),
    "an origin": (LONG, lambda n: b"Origin: http://" + b"a." * (n // 2)),
}

CONDITIONS = {"tags", "a time"}
"""Requests for agent cards."""

ADDRESSES: dict[str, Callable[[int], bytes]] = {
    "a path": lambda n: b"/" + b"x" * n,
    "steps of a path": lambda n: b"/tasks" + b"/x" * (n // 2),
    "colons": lambda n: b"/tasks/" + b":cancel" * (n // 7),
    "escapes": lambda n: b"/tasks/" + b"%41" * (n // 3),
    "an agent": lambda n: b"/agents/" + b"x" * n + b"/tasks/y",
    "an artifact": lambda n: b"/artifacts/" + b"x" * (n // 2) + b"/" + b"y" * (n // 2) + b"/parts/1",
    "a query": lambda n: b"/tasks?" + b"a=b&" * (n // 4),
    "escapes in a query": lambda n: b"/tasks?pageToken=" + b"%00" * (n // 3),
}


class _Transport(asyncio.Transport):
    """Records writes, and reports the address of a proxy as the peer."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 -- as asyncio has it
        return ("127.0.0.1", 1) if name in {"peername", "sockname"} else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written = getattr(self, "written", b"") + bytes(data)

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@pytest.fixture
def app(client: Client, views: TaskViews, tmp_path: Path) -> Starlette:
    """A gateway that authenticates callers by each of its schemes."""
    keys = tmp_path / "keys"
    add_key(keys, new_key("ann", ["tasks:read"], None)[1])
    schemes = [
        ProxyCertificateScheme("X-Forwarded-Client-Cert", [ip_network("127.0.0.1")]),
        ApiKeyScheme(keys),
        JwtScheme(OneKey(VerificationKey(b"s" * 64, ("HS256",))), TokenRules("me", "you")),
    ]
    access = AccessControl(Authenticator(schemes))
    return build_app(
        GatewaySettings(), client, stores_of(views), AgentRegistry([AGENT]), NO_ATTACHMENTS, access=access
    )


def _answered(app: Starlette, sent: bytes) -> Callable[[], bytes]:
    """Return what reads a request and answers it as far as a stranger gets; it returns the answer."""

    async def serve() -> bytes:
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none")
        state, transport = ServerState(), _Transport()
        protocol = GatewayProtocol(config, state, {})
        protocol.connection_made(transport)
        protocol.data_received(sent)
        while state.tasks:
            await asyncio.gather(*state.tasks)
        protocol.connection_lost(None)
        return transport.written

    return lambda: asyncio.run(serve())


def _get(path: bytes, headers: bytes = b"") -> bytes:
    return b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % (path, headers.rstrip(b"\r\n"))


async def _check(app: Starlette, request: Callable[[int], bytes], size: int) -> None:
    # In a thread of its own, where nothing else is counted.
    await asyncio.to_thread(assert_grows_no_faster, lambda n: _answered(app, request(n)), size)
    answer = await asyncio.to_thread(_answered(app, request(4 * size)))
    assert answer.split()[1] != b"431"  # or nothing was read, and nothing is proved


GATE = {
    "the same header",
    "credentials",
    "what is accepted",
    "tags",
    "a time",
    "extensions",
    "certificates",
} | {"commas before a token", "a token", "a key", "an origin", "steps of a path", "escapes", "a query"}
"""One of each kind of reading; the others are measured in `make test-all`."""


def _each(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=[] if name in GATE else [pytest.mark.slow]) for name in names]


@pytest.mark.parametrize("name", _each(HEADS))
async def test_work_on_headers_grows_with_their_size(app: Starlette, name: str) -> None:
    """Whatever the headers contain; agent cards, which are public, have conditions."""
    path = b"/.well-known/agent-card.json" if name in CONDITIONS else b"/tasks/x"
    size, head = HEADS[name]
    await _check(app, lambda n: _get(path, head(n)), size)


@pytest.mark.parametrize("name", _each(ADDRESSES))
async def test_work_on_an_address_grows_with_its_size(app: Starlette, name: str) -> None:
    """On its path and its query."""
    await _check(app, lambda n: _get(ADDRESSES[name](n)), LONG)


@pytest.mark.parametrize("escape", [b"%2f", b"%41", b"%25"])
async def test_a_path_is_decoded_once_for_all_routes(app: Starlette, escape: bytes) -> None:
    """The cost of an escape does not depend on the number of routes."""

    def steps(of: Starlette) -> int:
        few, many = (work_of(_answered(of, _get(b"/" + escape * n))).steps for n in (100, 500))
        return many - few

    no_routes = Starlette()
    for each in (app, no_routes):  # one-time work, such as filling caches, is not counted
        await asyncio.to_thread(_answered(each, _get(b"/" + escape)))
    # The server decodes the path once, and so do we.
    assert await asyncio.to_thread(steps, app) < 3 * await asyncio.to_thread(steps, no_routes)


async def test_work_on_a_body_grows_with_its_size(app: Starlette) -> None:
    """Also if each byte comes as a piece of its own: it arrives before anybody knows whose it is."""
    head = (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    await _check(app, lambda n: head + b"1\r\nx\r\n" * n, 100)


async def test_baggage_is_not_read(app: Starlette, caplog: pytest.LogCaptureFixture) -> None:
    """The library for it reads in quadratic time, and logs malformed baggage."""
    with caplog.at_level("WARNING", "opentelemetry"):
        await asyncio.to_thread(_answered(app, _get(b"/tasks/x", b"baggage: a" + b" " * 8_000 + b"b")))
        await asyncio.to_thread(_answered(app, _get(b"/tasks/x", b"tracestate: " + b"%" * 8_000)))
    # The span exporter, which an earlier test of this process may have shut down, logs that for each span.
    assert not [record for record in caplog.records if not record.name.startswith("opentelemetry.sdk.")]


def test_headers_that_are_repeated_are_joined_once() -> None:
    """In their order, and it is known which they are."""
    headers = CallHeaders([("a", "1"), ("b", "2"), ("a", "3"), ("a", "")])
    assert headers == {"a": "1, 3, ", "b": "2"}
    assert headers.repeated == {"a"}
