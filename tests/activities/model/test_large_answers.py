"""What other servers answer is bounded by what it becomes in memory: bytes, and values of JSON."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError

from everloop import mcp
from everloop.activities.model.failures import PROVIDER_ERRORS, provider_failure
from everloop.activities.model.provider import ModelProvider, ModelSettings, make_openai_client, read_stream
from everloop.activities.model.reply import ReplyAssembler
from everloop.agents.peer.plugin import peer
from everloop.gateway.auth.jwt import PUBLIC_ALGORITHMS, Jwks
from everloop.gateway.errors import UnavailableNowError
from everloop.runtime.bounded_answers import MAX_ANSWER, MAX_VALUES
from everloop.workflows.contract.tasks import TaskRef
from tests.support.rigs.mcp_rig import Caller
from tests.support.rigs.peer_rig import PeerRig
from tests.support.servers.bombs import CHUNK, Bomb, running_bomb

MEBI = 1024 * 1024


@pytest_asyncio.fixture
async def bomb() -> AsyncGenerator[Bomb]:
    async with running_bomb() as running:
        yield running


async def ask_peer(url: str) -> str:
    """Return what the tool that asks a peer fails with."""
    return await PeerRig(peer(url, name="ann")).fail("hello")


async def ask_mcp(url: str) -> str:
    """Return what the list of an MCP server's tools fails with."""
    server = mcp(url, name="tools")
    try:
        await Caller(server).call("any")
    except Exception as error:  # noqa: BLE001 -- whatever it is
        return str(error)
    finally:
        await server.close()
    return ""


async def ask_issuer(url: str) -> str:
    """Return what the fetching of keys fails with."""
    with capture_logs() as logs, pytest.raises(UnavailableNowError):
        await Jwks(url, PUBLIC_ALGORITHMS).find("key")
    return str(logs[-1].get("error"))


async def ask_model(url: str) -> str:
    """Return what the activity would fail with."""
    client = make_openai_client(ModelSettings.model_validate({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url}))
    assembler, provider = ReplyAssembler(0), ModelProvider(client, None)
    task = TaskRef.model_construct(task_id="t", run_id="r", agent_id="a", context_id="c")
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with client:
        try:
            async with provider.stream(task, request, assembler) as chunks:  # pyright: ignore[reportArgumentType] -- a request as it is sent
                await read_stream(chunks, assembler, lambda deltas: None)
        except PROVIDER_ERRORS as error:
            failure: ApplicationError = provider_failure(error, "m", 1, 0.5)
            return failure.message
    return ""


Ask = Callable[[str], Awaitable[str]]


def compressed(bomb: Bomb) -> None:
    bomb.compress(b'{"a": "' + b" " * (MAX_ANSWER // 4) + b'"}')


def large(bomb: Bomb) -> None:
    bomb.piece, bomb.repeated = b" " * CHUNK, 4 * MAX_ANSWER // CHUNK


def many(bomb: Bomb) -> None:
    """Three bytes of JSON become a hundred."""
    bomb.piece, bomb.repeated = b",[]" * (CHUNK // 3), 2 * MAX_VALUES // (CHUNK // 3)


@pytest.mark.parametrize(
    ("load", "told"), [(compressed, "compressed"), (large, "more than"), (many, "values of JSON")]
)
@pytest.mark.parametrize("ask", [ask_peer, ask_mcp, ask_issuer, ask_model])
async def test_an_answer_that_is_too_much_is_refused(
    bomb: Bomb, ask: Ask, load: Callable[[Bomb], None], told: str
) -> None:
    """Before it is unpacked or parsed, and read no further than its bound; all ask for it as it is."""
    load(bomb)
    assert ("AnswerTooLarge" if ask is ask_issuer else told) in await ask(bomb.url)
    assert bomb.sent < MAX_ANSWER + 16 * MEBI  # what is under way between the two comes on top
    assert all(b"accept-encoding: identity" in asked.lower() for asked in bomb.asked)


@pytest.mark.parametrize("line", [f"'x' * {2 * MAX_ANSWER}", f"',[]' * {MAX_VALUES}"], ids=["large", "many"])
async def test_a_line_of_an_mcp_server_is_bounded(tmp_path: Path, line: str) -> None:
    """One that a command starts; the session ends."""
    program = tmp_path / "server.py"
    program.write_text(f"import sys\nsys.stdin.readline()\nsys.stdout.write({line})\nsys.stdin.read()\n")
    server = mcp(command=[sys.executable, str(program)], name="tools")
    with capture_logs() as logs, pytest.raises(Exception, match="ended while it was opened"):
        async with asyncio.timeout(60):
            await Caller(server).call("any")
    await server.close()
    assert logs[0]["event"] == "MCP server ended"
