"""HTTP clients in unusual environments: proxies, certificates and credentials."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.agents.peer.peer_connection import _http_client
from everloop.client import Client, InvalidError, UnreachableError
from everloop.client.http import HttpClient, system_tls
from everloop.models.catalogue import Provider
from everloop.models.provider_client import ProviderClient
from tests.support.rigs.mcp_rig import served

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
PLATFORM = "127.0.0.1,fd07:b51a:cc66:f0::/64,[fd00::1]:8080,*.svc,.cluster.local,10.0.0.0/8,a b"
"""As set by OpenShift and Docker Desktop, and worse."""


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    for name in (*VARIABLES, *map(str.lower, VARIABLES)):
        monkeypatch.delenv(name, raising=False)
    system_tls.cache_clear()
    yield
    system_tls.cache_clear()


@pytest.mark.parametrize("make", [HttpClient, _http_client, lambda: ProviderClient(Provider("p"))._client])
async def test_what_no_proxy_names_in_another_form_is_left_out(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], httpx.AsyncClient]
) -> None:
    """As curl does: an IPv6 network made every client fail, also for other servers."""
    monkeypatch.setenv("NO_PROXY", PLATFORM)
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with make() as http:
        with pytest.raises(Exception, match="connection attempts failed"):  # that of the proxy
            await http.get("http://elsewhere.example/")


async def test_a_socks_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It resolves names itself."""

    async def answer(request: Request) -> Response:
        return JSONResponse({"host": request.headers["host"]})

    async with served(answer) as url, _socks_proxy(httpx.URL(url).port or 0) as (port, asked):
        monkeypatch.setenv("ALL_PROXY", f"socks5://127.0.0.1:{port}")
        async with HttpClient() as http:
            assert (await http.get("http://agents.example/mcp")).json() == {"host": "agents.example"}
    assert asked == [b"agents.example"]


@asynccontextmanager
async def _socks_proxy(target: int) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Yield the port of a proxy (RFC 1928) to one server of this test, and the requested hosts."""
    asked: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        methods = (await reader.readexactly(2))[1]
        await reader.readexactly(methods)
        writer.write(b"\5\0")
        head = await reader.readexactly(5)
        asked.append(await reader.readexactly(head[4]))
        await reader.readexactly(2)
        writer.write(b"\5\0\0\1\0\0\0\0\0\0")
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], asked


@pytest.mark.parametrize("proxy", ["socks://127.0.0.1:9", "http://user:hunter2@nonsense:port", "ftp://x"])
def test_a_proxy_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """By the names of the variables, without their values."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InvalidError, match=r"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is no address") as told:
        Client("http://agents.example")
    assert "hunter2" not in str(told.value)


def test_certificates_that_are_gone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable that names them, not by arguments that were not given."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(InvalidError, match=r"SSL_CERT_FILE .*/nowhere/ca\.pem.*correct or unset it"):
        Client("http://agents.example")
    with pytest.raises(InvalidError, match="cert= or ca= cannot be used"):
        Client("http://agents.example", ca="/nowhere/else.pem")


@pytest.mark.parametrize("credentials", [{"api_key": "schl\udcfcssel"}, {"token": "schl\udcfcssel"}], ids=str)
async def test_a_key_that_no_header_can_hold_is_told(credentials: dict[str, str]) -> None:
    """Without the key."""
    async with Client("http://127.0.0.1:9", **credentials) as client:  # pyright: ignore[reportArgumentType] -- texts
        with pytest.raises(InvalidError, match=r"no header can have") as told:
            await client.card()
    assert "schl" not in str(told.value)
    with pytest.raises(InvalidError, match=r"headers="):
        Client("http://127.0.0.1:9", headers={"x-tenant": "gr\udcfcn"})


async def test_a_model_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are for other hosts."""

    async def answer(_: Request) -> Response:
        return JSONResponse({})

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with served(answer) as url, ProviderClient(Provider("ollama", base_url=url)) as client:
        assert await client.get(url, cast_to=object) == {}
    async with Client("http://agents.example") as client:
        with pytest.raises(UnreachableError):
            await client.card()
