"""Sessions with MCP servers: opened when needed, shared, replaced when they are lost, and ended."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from mcp_types import CallToolResult

from everloop import Plugin, mcp
from everloop.agents.mcp.client import SessionPool
from everloop.agents.mcp.definition import McpDefinition
from everloop.agents.mcp.errors import McpLostError, McpProtocolError, McpUnavailableError
from everloop.agents.mcp.sessions import McpSession
from tests.support.rigs.mcp_rig import SMALL_STDIO, Caller, Relay, accepts, asker, http_server, opened
from tests.support.servers.processes import ROOT, ServerProcess, wait_until_answers

_WORKER = """
import asyncio, sys
from everloop import mcp
from tests.support.rigs.mcp_rig import opened, Caller

async def work():
    await Caller(mcp(command=sys.argv[2:])).call("stick", flag=sys.argv[1])

asyncio.run(work())
"""


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncGenerator[Plugin]:
    plugin = mcp(command=SMALL_STDIO, name="own")
    yield plugin
    await plugin.close()


async def test_a_call_that_may_be_repeated_survives_the_death_of_its_server(tmp_path: Path) -> None:
    """It is repeated once; one that may not be is told as unknown."""
    marks = str(tmp_path / "began")
    async with opened(mcp(command=SMALL_STDIO, idempotent=["die_once"])) as server:
        careful = mcp(command=SMALL_STDIO)
        assert await Caller(server).call("die_once", mark=marks) == "alive"
        Path(marks).unlink()
        with pytest.raises(McpLostError):
            await Caller(careful).call("die_once", mark=marks)
        assert await Caller(careful).call("die_once", mark=marks) == "alive"
        await careful.close()


async def test_closing_ends_the_server_and_its_calls(server: Plugin) -> None:
    """Whoever needs it afterwards starts it again."""
    caller = Caller(server)
    process = psutil.Process(int(await caller.call("pid")))
    hanging = asyncio.create_task(caller.call("hang", name="until the end"))
    await caller.call("wait_for", event="until the end began")
    await server.close()
    assert not process.is_running()
    with pytest.raises(McpLostError):
        await hanging
    assert int(await caller.call("pid")) != process.pid


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
async def test_a_killed_worker_leaves_no_server(tmp_path: Path) -> None:
    """Not even one that does not look at its input any more."""
    flag = tmp_path / "flag"
    worker = ServerProcess(
        [sys.executable, "-c", _WORKER, str(flag), *SMALL_STDIO], tmp_path / "log", {"PYTHONPATH": str(ROOT)}
    )
    worker.start()
    try:
        await wait_until_answers(worker, lambda: _is_written(flag), "the worker")
        server = psutil.Process(int(flag.read_text()))
    finally:
        worker.kill()
    server.wait(timeout=20)


async def _is_written(flag: Path) -> bool:
    return flag.exists() and bool(flag.read_text())


async def test_a_server_that_was_restarted_is_found_again(tmp_path: Path) -> None:
    """Its sessions are gone with it; while it is away, the error says so."""
    async with http_server(tmp_path, "small.py") as (process, url), opened(mcp(url, name="own")) as server:
        caller = Caller(server)
        first = await caller.call("pid")
        process.kill()
        with pytest.raises(McpUnavailableError, match="'own' cannot be reached"):
            await caller.call("pid")
        process.start()
        await wait_until_answers(process, lambda: accepts(url), "the server")
        assert await caller.call("pid") != first


async def test_a_connection_that_breaks_costs_one_call(tmp_path: Path) -> None:
    """Others in the same session go on, and new ones come through."""
    async with http_server(tmp_path, "small.py") as (_, direct):
        relay = Relay(direct, b'{"name":"doomed"}')
        async with relay.running() as url, opened(mcp(url, name="own")) as server:
            caller = Caller(server)
            other = asyncio.create_task(caller.call("wait_for", event="the end"))
            doomed = asyncio.create_task(caller.call("hang", name="doomed"))
            await caller.call("wait_for", event="doomed began")
            relay.break_off()
            with pytest.raises(McpLostError, match="'own' was lost"):
                await doomed
            await caller.call("happen", event="the end")
            assert await other == "the end"


UNUSABLE = {
    "no such command": (
        ["no-such-server"],
        McpUnavailableError,
        "'no-such-server' was not found; install it",
    ),
    "ends at once": (["false"], McpUnavailableError, "'false' ended while it was opened; run its command"),
    "speaks something else": (["cat"], McpProtocolError, "'cat' says"),
}


@pytest.mark.parametrize(("command", "error", "told"), UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_a_command_that_is_no_server_is_named(
    command: list[str], error: type[Exception], told: str
) -> None:
    """The error says what to do."""
    async with opened(mcp(command=command)) as server:
        with pytest.raises(error, match=told):
            await server.list_tools(asker())


async def test_a_caller_who_gives_up_leaves_the_session_to_others() -> None:
    """It goes on opening, though who asked for it first did not wait."""
    session = McpSession(McpDefinition(command=SMALL_STDIO), {})
    pool = SessionPool("own", lambda _: session)

    async def ask() -> CallToolResult:
        async with pool.session({}) as shared:
            return await shared.call("pid", {}, _hear_nothing, 30)

    try:
        impatient, patient = asyncio.create_task(ask()), asyncio.create_task(ask())
        await asyncio.sleep(0)
        impatient.cancel()
        assert not (await patient).is_error
        with pytest.raises(asyncio.CancelledError):
            await impatient
    finally:
        await pool.close()


async def _hear_nothing(progress: float, total: float | None, message: str | None) -> None:
    return None


async def test_a_server_gets_its_own_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the worker knows, a server must not; what its definition gives, it has, and may not repeat."""
    monkeypatch.setenv("EVERLOOP_SECRET", "of-the-worker")
    async with opened(
        mcp(command=SMALL_STDIO, env={"API_KEY": "of-the-server", "MODE": "fast-mode"})
    ) as server:
        told = await Caller(server).call("environment")
        assert "of-the-worker" not in told
        assert "'API_KEY': '[secret]'" in told
        assert "'MODE': 'fast-mode'" in told
