"""Bounds for answers of other servers, by their size in memory: bytes, and values of JSON."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from everloop import mcp
from everloop.agents.peer.peer_plugin import peer
from everloop.gateway.auth.jwt import PUBLIC_ALGORITHMS, Jwks
from everloop.gateway.errors import UnavailableNowError
from everloop.models.catalogue import Provider
from everloop.models.chat import Chat
from everloop.models.interface import ModelRequest, UnreadableReplyError
from everloop.runtime.outbound.bounds import MAX_ANSWER, MAX_VALUES
from tests.support.rigs.mcp_rig import Caller
from tests.support.rigs.peer_rig import PeerRig
from tests.support.servers.bombs import CHUNK, Bomb, running_bomb

MEBI = 1024 * 1024


@pytest_asyncio.fixture
async def bomb() -> AsyncGenerator[Bomb]:
    async with running_bomb() as running:
        yield running


async def ask_peer(url: str) -> str:
    """Return the error of the tool that asks a peer."""
    return await PeerRig(peer(url, name="ann")).fail("hello")


async def ask_mcp(url: str) -> str:
    """Return the error of listing an MCP server's tools."""
    server = mcp(url, name="tools")
    try:
        await Caller(server).call("any")
    except Exception as error:  # noqa: BLE001 -- whatever it is
        return str(error)
    finally:
        await server.close()
    return ""


async def ask_issuer(url: str) -> str:
    """Return the error of fetching keys."""
    with capture_logs() as logs, pytest.raises(UnavailableNowError):
        await Jwks(url, PUBLIC_ALGORITHMS).find("key")
    return str(logs[-1].get("error"))


async def ask_model(url: str) -> str:
    """Return the error of the activity."""
    chat = Chat(Provider("test", base_url=url))
    try:
        async with aclosing(
            chat.stream(ModelRequest("m", ({"role": "user", "content": "hi"},)), "m")
        ) as deltas:
            return str([delta async for delta in deltas])
    except UnreadableReplyError as error:
        return str(error)
    finally:
        await chat.close()


Ask = Callable[[str], Awaitable[str]]


def compressed(bomb: Bomb) -> None:
    bomb.compress(b'{"a": "' + b" " * (MAX_ANSWER // 4) + b'"}')


def large(bomb: Bomb) -> None:
    bomb.piece, bomb.repeated = b" " * CHUNK, 4 * MAX_ANSWER // CHUNK


def many(bomb: Bomb) -> None:
    """Return JSON whose values take a hundred bytes for each three on the wire."""
    bomb.piece, bomb.repeated = b"{" + b",[]" * (CHUNK // 3), 2 * MAX_VALUES // (CHUNK // 3)


@pytest.mark.parametrize(
    ("load", "told"), [(compressed, "compressed"), (large, "more than"), (many, "values of JSON")]
)
@pytest.mark.parametrize("ask", [ask_peer, ask_mcp, ask_issuer, ask_model])
async def test_an_answer_that_is_too_much_is_refused(
    bomb: Bomb, ask: Ask, load: Callable[[Bomb], None], told: str
) -> None:
    """An answer beyond its bound is refused before it is unpacked or parsed, and not read further."""
    load(bomb)
    assert ("AnswerTooLarge" if ask is ask_issuer else told) in await ask(bomb.url)
    assert bomb.sent < MAX_ANSWER + 16 * MEBI  # bytes in transit between the two are added
    assert all(b"accept-encoding: identity" in asked.lower() for asked in bomb.asked)


@pytest.mark.parametrize("line", [f"'x' * {2 * MAX_ANSWER}", f"',[]' * {MAX_VALUES}"], ids=["large", "many"])
async def test_a_line_of_an_mcp_server_is_bounded(tmp_path: Path, line: str) -> None:
    """A long line of an MCP command is refused, and the session ends."""
    program = tmp_path / "server.py"
    program.write_text(f"import sys\nsys.stdin.readline()\nsys.stdout.write({line})\nsys.stdin.read()\n")
    server = mcp(command=[sys.executable, str(program)], name="tools")
    with capture_logs() as logs, pytest.raises(Exception, match="ended while it was opened"):
        async with asyncio.timeout(60):
            await Caller(server).call("any")
    await server.close()
    assert logs[0]["event"] == "MCP server ended"
