"""Sessions with MCP servers: opened when needed, shared, replaced, closed; with headers for each caller."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import pytest_asyncio
from mcp_types import CallToolResult
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from structlog.testing import capture_logs

from everloop import Plugin, mcp
from everloop.agents.mcp.mcp_client import SessionPool
from everloop.agents.mcp.mcp_definition import McpDefinition
from everloop.agents.mcp.mcp_errors import (
    McpError,
    McpLostError,
    McpProtocolError,
    McpRefusedError,
    McpUnavailableError,
)
from everloop.agents.mcp.sessions import McpSession
from everloop.workflows.contract.tasks import Identity
from tests.support.rigs.mcp_rig import (
    QUICK_STDIO,
    Caller,
    WatchedRelay,
    accepts,
    asker,
    http_server,
    opened,
    served,
)
from tests.support.servers.processes import ROOT, ServerProcess, until, wait_until_answers
from tests.support.servers.relay import running_relay

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
    plugin = mcp(command=QUICK_STDIO, name="own")
    yield plugin
    await plugin.close()


async def test_a_call_that_may_be_repeated_survives_the_death_of_its_server(tmp_path: Path) -> None:
    """A repeatable call is repeated once after the death of its server; another's outcome is unknown."""
    marks = str(tmp_path / "began")
    async with opened(mcp(command=QUICK_STDIO, idempotent=["die_once"])) as server:
        careful = mcp(command=QUICK_STDIO)
        assert await Caller(server).call("die_once", mark=marks) == "alive"
        Path(marks).unlink()
        with pytest.raises(McpLostError):
            await Caller(careful).call("die_once", mark=marks)
        assert await Caller(careful).call("die_once", mark=marks) == "alive"
        await careful.close()


async def test_closing_ends_the_server_and_its_calls(server: Plugin, tmp_path: Path) -> None:
    """Closing ends the server and its calls; the next use starts it again."""
    caller = Caller(server)
    process = psutil.Process(int(await caller.call("pid")))
    hanging = asyncio.create_task(caller.call("hang", flag=str(flag := tmp_path / "it hangs")))
    await until(flag.exists)
    await server.close()
    assert not process.is_running()
    with pytest.raises(McpLostError):
        await hanging
    assert int(await caller.call("pid")) != process.pid


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
async def test_a_killed_worker_leaves_no_server(tmp_path: Path) -> None:
    """A killed worker leaves no server behind, even one that no longer reads its input."""
    flag = tmp_path / "flag"
    worker = ServerProcess(
        [sys.executable, "-c", _WORKER, str(flag), *QUICK_STDIO], tmp_path / "log", {"PYTHONPATH": str(ROOT)}
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
    """A restarted server gets a new session; while it is away, the error says so."""
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
    """A broken connection fails one call; others in the session and new ones succeed."""
    async with http_server(tmp_path, "small.py") as (_, direct):
        at = urlsplit(direct)
        relay = WatchedRelay(at.port or 0, word=b'{"name":"doomed"}')
        async with (
            running_relay(relay),
            opened(mcp(f"http://{relay.address}{at.path}", name="own")) as server,
        ):
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
    """A command that is not a server is named with a remedy.

    The log has it too, unless the server wrote the reason itself.
    """
    with capture_logs() as logged:
        async with opened(mcp(command=command)) as server:
            with pytest.raises(error, match=told):
                await server.list_tools(asker())
    (problem,) = (each.get("problem", "") for each in logged if each["event"] == "MCP session ended")
    assert (told in problem) == (error is McpUnavailableError)


async def test_a_caller_who_gives_up_leaves_the_session_to_others() -> None:
    """A caller that gives up does not end the opening of a session that others wait for."""
    pool = SessionPool(McpDefinition(command=QUICK_STDIO))

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
    """A server gets the environment of its definition, not the worker's, and its secrets are redacted."""
    monkeypatch.setenv("EVERLOOP_SECRET", "of-the-worker")
    async with opened(
        mcp(command=QUICK_STDIO, env={"API_KEY": "of-the-server", "MODE": "fast-mode"})
    ) as server:
        told = await Caller(server).call("environment")
        assert "of-the-worker" not in told
        assert "'API_KEY': '[secret]'" in told
        assert "'MODE': 'fast-mode'" in told


# Headers for MCP servers: separate for each caller, and redacted everywhere.

SECRET = "Bearer a-token-that-nobody-may-see"
ALICE, BOB = Identity(subject="alice"), Identity(subject="bob")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with http_server(tmp_path_factory.mktemp("mcp")) as (_, url):
        yield url


async def _headers_of(caller: Identity) -> Mapping[str, str]:
    await asyncio.sleep(0)
    return {"x-user": caller.subject}


@pytest.mark.parametrize("is_async", [False, True])
async def test_each_caller_has_headers_of_its_own(url: str, *, is_async: bool) -> None:
    """Concurrent callers each send their own headers."""
    async with opened(
        mcp(url, headers=_headers_of if is_async else lambda caller: {"x-user": caller.subject})
    ) as server:
        callers = [Caller(server, identity) for identity in (ALICE, BOB) * 5]
        told = await asyncio.gather(*(caller.call("header", name="x-user") for caller in callers))
        assert told == ["alice", "bob"] * 5


def refuse(caller: Identity) -> Mapping[str, str]:
    raise LookupError(SECRET)


def unsendable(_: Identity) -> Mapping[str, str]:
    return {"x-token": f"{SECRET}\n"}


@pytest.mark.parametrize(
    ("headers", "told"),
    [(refuse, "the function that makes them raised LookupError"), (unsendable, "'x-token'")],
    ids=["their function raises", "cannot be sent"],
)
async def test_callers_without_headers_are_told_so(
    url: str, headers: Callable[[Identity], Mapping[str, str]], told: str
) -> None:
    """An error about missing headers names them, without a value or the text of their function's error."""
    with pytest.raises(McpUnavailableError, match=told) as refused:
        await mcp(url, name="own", headers=headers).list_tools(asker())
    assert SECRET not in str(refused.value)
    assert refused.value.__suppress_context__ or not refused.value.__context__


async def test_a_result_that_repeats_a_secret_is_blacked_out(url: str) -> None:
    """Secrets of headers that a server repeats are redacted in the result, which is stored in the history."""
    async with opened(mcp(url, headers={"authorization": SECRET, "x-tenant": "acme"})) as server:
        assert await Caller(server).call("header", name="x-tenant") == "acme"
        assert await Caller(server).call("header", name="authorization") == "[secret]"


@asynccontextmanager
async def answering(respond: Response) -> AsyncGenerator[str]:
    """Yield the URL of a server that gives each request the same answer."""

    async def answer(_request: Request) -> Response:
        return respond

    async with served(answer) as url:
        yield url


ANSWERS: dict[str, tuple[Response, type[McpError], str]] = {
    "401": (PlainTextResponse(SECRET, 401), McpRefusedError, "'own' refuses this caller.*401.*headers"),
    "403": (JSONResponse({"error": SECRET}, 403), McpRefusedError, "'own' refuses this caller.*403"),
    "no MCP there": (PlainTextResponse("not found", 404), McpProtocolError, "'own' answered HTTP 404"),
    "broken": (PlainTextResponse("oops", 500), McpProtocolError, "'own' answered HTTP 500"),
    "a page": (
        HTMLResponse("welcome"),
        McpProtocolError,
        "'own' answered HTTP 200 with text/html, where MCP has JSON or events; see that its url",
    ),
    "something": (Response("welcome"), McpProtocolError, "'own' answered HTTP 200 with a body of no type"),
    "an error that repeats a secret": (
        JSONResponse(
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": f"{SECRET} has expired"}}, 400
        ),
        McpProtocolError,
        r"\[secret\] has expired",
    ),
}


@pytest.mark.parametrize(("answer", "error", "told"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_a_server_that_refuses_is_named(
    answer: Response, error: type[McpError], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal names the server and what to check.

    No log or error has a header or credentials of the URL.
    """
    caplog.set_level(logging.DEBUG)
    async with answering(answer) as url:
        with_password = url.replace("http://", "http://user:url-password@")
        async with opened(mcp(with_password, name="own", headers={"authorization": SECRET})) as server:
            with pytest.raises(error, match=told) as refused:
                await server.list_tools(asker())
    logged = [record.getMessage() for record in caplog.records]
    for text in (str(refused.value), repr(refused.value), repr(server), *logged):
        assert SECRET not in text
        assert "url-password" not in text


async def test_sessions_of_callers_are_bounded(url: str) -> None:
    """The number of callers' sessions is bounded; the one idle the longest is closed, never one in use."""
    pool = SessionPool(McpDefinition(url=url), most=2)
    sessions = list[McpSession]()
    try:
        async with pool.session({"x": "in use"}) as in_use:
            for number in range(4):
                async with pool.session({"x": str(number)}) as session:
                    await session.tools.get()
                sessions.append(session)
            assert [session.has_ended for session in sessions] == [True, True, True, False]
            await in_use.tools.get()
        async with pool.session({"x": "in use"}) as again:
            assert again is in_use
        await asyncio.wait([session.owner for session in sessions[:3]])
    finally:
        await pool.close()


async def test_a_closed_pool_opens_no_session(url: str) -> None:
    """A closed pool opens no session, so that a late call does not start a server again."""
    pool = SessionPool(McpDefinition(url=url))
    await pool.close()
    with pytest.raises(McpUnavailableError, match="is closed"):
        async with pool.session({}):
            pass
