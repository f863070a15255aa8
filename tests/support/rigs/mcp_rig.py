"""A rig for MCP: servers, callers, and results of calls."""

import asyncio
import fcntl
import getpass
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn import Config, Server

from everloop import HookContext, Plugin, ToolContext
from everloop.agents.hooks import ANYBODY
from everloop.agents.tool_context import Content, ToolArtifacts
from everloop.local.servers import LOOPBACK, free_port
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.tasks import Identity
from tests.support.servers.processes import ServerProcess, wait_until_answers
from tests.support.servers.relay import Connection, Relay

SERVERS = Path(__file__).parents[1] / "servers/mcp_servers"
STDIO = [sys.executable, str(SERVERS / "full.py"), "stdio"]
QUICK_STDIO = [sys.executable, str(SERVERS / "quick.py")]
SMALL_STDIO = [sys.executable, str(SERVERS / "small.py"), "stdio"]

EVERYTHING = "@modelcontextprotocol/server-everything"
EVERYTHING_VERSION = "2026.8.31"
_CACHE = Path(tempfile.gettempdir()) / f"everloop-npm-{getpass.getuser()}-{EVERYTHING_VERSION}"


def asker(caller: Identity = ANYBODY) -> HookContext:
    """Return the task of this caller, as plugins get it."""
    return HookContext(task_id="task", context_id="context", owner="owner", agent_id="agent", auth=caller)


class KeptArtifacts:
    """Stores the files of a call, the only artifacts of tools of MCP servers."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, str, Content]] = {}
        self.shown: list[str] = []
        self.refuses = False

    @property
    def of_a_tool(self) -> ToolArtifacts:
        return cast("ToolArtifacts", self)

    async def write_file(
        self, artifact_id: str, content: Content, *, media_type: str = "", filename: str = "", name: str = ""
    ) -> StoredArtifact:
        if self.refuses:
            raise ValueError("the quota is used up")
        self.files[artifact_id] = (filename, media_type, content)
        return StoredArtifact.model_construct(artifact_id=artifact_id)

    async def show(self, artifact_id: str) -> None:
        self.shown.append(artifact_id)


async def _say_nothing(_text: str) -> None:
    return None


@dataclass
class Caller:
    """Calls the tools of a plugin, as a task does."""

    plugin: Plugin
    identity: Identity = ANYBODY
    artifacts: KeptArtifacts = field(default_factory=KeptArtifacts)
    progress: Callable[[str], Awaitable[None]] = _say_nothing

    async def call(self, tool: str, **arguments: JsonValue) -> str:
        """Return the result of a call as the model reads it."""
        found = await self.plugin.get_tool(tool, asker(self.identity))
        assert found, f"there is no tool {tool!r}"
        call_id = uuid4().hex
        context = ToolContext(
            task_id="task",
            context_id="context",
            owner="owner",
            call_id=call_id,
            attempt=1,
            idempotency_key=f"task/{call_id}",
            progress=self.progress,
            artifacts=self.artifacts.of_a_tool,
            auth=self.identity,
        )
        text = await found.function(arguments=arguments, context=context)
        assert isinstance(text, str)
        return text


@asynccontextmanager
async def opened(plugin: Plugin) -> AsyncGenerator[Plugin]:
    """Close the sessions of a plugin at the end of a block."""
    try:
        yield plugin
    finally:
        await plugin.close()


@asynccontextmanager
async def http_server(directory: Path, script: str = "full.py") -> AsyncGenerator[tuple[ServerProcess, str]]:
    """Yield a listening test server, and its URL."""
    port = free_port()
    command = [sys.executable, str(SERVERS / script), "http", str(port)]
    server = ServerProcess(command, directory / f"mcp-{port}.log")
    async with listening(server, port):
        yield server, f"http://{LOOPBACK}:{port}/mcp"


@asynccontextmanager
async def served(answer: Callable[[Request], Awaitable[Response]]) -> AsyncGenerator[str]:
    """Yield the URL of a server that gives each request this answer."""
    app = Starlette(routes=[Route("/mcp", answer, methods=["GET", "POST", "DELETE"])])
    port = free_port()
    server = Server(Config(app, host=LOOPBACK, port=port, log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:  # noqa: ASYNC110 -- uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield f"http://{LOOPBACK}:{port}/mcp"
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def everything_server(directory: Path) -> AsyncGenerator[tuple[ServerProcess, str]]:
    """Yield the reference server and its URL."""
    port = free_port()
    command = ["node", str(everything_script()), "streamableHttp"]
    server = ServerProcess(command, directory / f"everything-{port}.log", {"PORT": str(port)})
    async with listening(server, port):
        yield server, f"http://{LOOPBACK}:{port}/mcp"


@asynccontextmanager
async def listening(server: ServerProcess, port: int) -> AsyncGenerator[None]:
    """Run a server for a block, which starts when it accepts connections."""
    server.start()
    try:
        await wait_until_answers(server, lambda: accepts(f"http://{LOOPBACK}:{port}"), "the MCP server")
        yield
    finally:
        server.stop()


async def restart(server: ServerProcess, url: str) -> None:
    """Kill a server and start it again."""
    server.kill()
    server.start()
    await wait_until_answers(server, lambda: accepts(url), "the MCP server")


async def accepts(url: str) -> bool:
    """Return True if a server listens at the host and port of a URL."""
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    return True


@dataclass
class WatchedRelay(Relay):
    """A relay that records which connection carried `word`, and can break it."""

    word: bytes = b""
    _carrier: Connection | None = None

    async def asked(self, connection: Connection, piece: bytes) -> bytes:
        if self.word in piece:
            self._carrier = connection
        return piece

    def break_off(self) -> None:
        """Reset the connection that carried the word."""
        assert self._carrier
        self._carrier.cut()


def everything_script() -> Path:
    """Return the script of the reference server; npm fetches it once for each user of a machine.

    The test is skipped if npm or the package is unavailable.
    """
    script = _CACHE / "node_modules" / EVERYTHING / "dist" / "index.js"
    done = _CACHE / "done"
    if not shutil.which("npm"):
        pytest.skip("no npm here, which fetches the reference server of MCP")
    _CACHE.mkdir(mode=0o700, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            command = [
                "npm",
                "install",
                "--prefix",
                str(_CACHE),
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
            ]
            fetched = subprocess.run(
                [*command, f"{EVERYTHING}@{EVERYTHING_VERSION}"], capture_output=True, text=True, check=False
            )
            if fetched.returncode:
                pytest.skip(f"npm cannot fetch {EVERYTHING}: {fetched.stderr[-500:]}")
            done.touch()
    return script
