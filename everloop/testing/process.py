"""A worker in its own process, which can be killed as an out-of-memory killer would.

It imports the agents again, so they need a name: `agent = Agent(…)` at the top of a module. The test
does not see changes in its memory; files, databases and servers are shared.
"""

import asyncio
import importlib
import importlib.util
import logging
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

import structlog

from everloop.agents.agent import Agent
from everloop.agents.registry import AgentRegistry
from everloop.models.catalogue import Catalogue
from everloop.testing.errors import WorkerProcessError
from everloop.worker import run_loop, working
from everloop.workers.settings import WorkerSettings

_READY = b"ready"


@dataclass(frozen=True)
class FoundAgent:
    """The place of an agent for another process: module name, file, attribute, version.

    `index`: its position, if the attribute is a sequence.
    """

    module: str
    file: str
    attribute: str
    index: int | None
    version: str

    def load(self) -> Agent:
        """Import the agent.

        Raises:
            WorkerProcessError: it differs from that of the test.
        """
        value: object = getattr(_imported(self.module, self.file), self.attribute, None)
        found = cast("Sequence[object]", value)[self.index] if self.index is not None else value
        if not isinstance(found, Agent) or found.spec.version != self.version:
            raise WorkerProcessError(
                f"{self.module}:{self.attribute} is not the same agent when another process imports it: let "
                "the module make it of itself, whoever imports it"
            )
        return cast("Agent", found)


@dataclass(frozen=True)
class _WorkerPlan:
    path: list[str]
    agents: list[FoundAgent]
    queues: tuple[str, ...]
    catalogue: Catalogue


@contextmanager
def quiet_logs() -> Generator[None]:
    """Log warnings only while the block runs, to stderr, unless logging is configured."""
    is_ours = not structlog.is_configured()
    if is_ours:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger("warning"),
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
            cache_logger_on_first_use=False,
        )
    activities = logging.getLogger("temporalio.activity")
    level = activities.level
    if level == logging.NOTSET:
        # Everloop says of a call that failed what there is to say; here it would be forty lines.
        activities.setLevel(logging.ERROR)
    try:
        yield
    finally:
        activities.setLevel(level)
        if is_ours:
            structlog.reset_defaults()


class WorkerUnderTest:
    """A worker in its own process, with this process's environment."""

    def __init__(self, agents: Sequence[Agent], queues: tuple[str, ...], catalogue: Catalogue) -> None:
        """Locate the agents.

        Raises:
            WorkerProcessError: an agent has no name.
        """
        found = [_found(agent) for agent in agents]
        self._plan = pickle.dumps(_WorkerPlan(sys.path, found, queues, catalogue))
        self._environment = dict(os.environ)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 without a process."""
        return self._process.pid if self._process else 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the worker while the block runs.

        Raises:
            WorkerProcessError: it ended during its start.
        """
        try:
            await self.start()
            yield
        finally:
            await self.kill()

    async def start(self) -> None:
        """Start the worker, and wait until it is ready.

        Raises:
            WorkerProcessError: it ended during its start.
        """
        await asyncio.to_thread(self._start)

    async def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        if self._process:
            self._process.kill()
            await asyncio.to_thread(self._process.communicate)
        self._process = None

    def _start(self) -> None:
        heard, told = os.pipe()
        command = [sys.executable, "-m", __spec__.name, str(told)]
        self._process = subprocess.Popen(  # noqa: S603 -- our own module
            command, stdin=subprocess.PIPE, env=self._environment, pass_fds=[told]
        )
        os.close(told)
        assert self._process.stdin  # noqa: S101 -- a pipe was asked for
        self._process.stdin.write(len(self._plan).to_bytes(8, "big") + self._plan)
        self._process.stdin.flush()  # it stays open: when it closes, the test is over
        with os.fdopen(heard, "rb") as reader:
            said = reader.read()
        if not said.startswith(_READY):
            raise WorkerProcessError(f"the worker's process ended while it started:\n{said.decode()}")


def _found(agent: Agent) -> FoundAgent:
    for module in list(sys.modules.values()):
        for attribute, index, value in _agents_of(module):
            if value is agent and (file := getattr(module, "__file__", None)):
                return FoundAgent(module.__name__, file, attribute, index, agent.spec.version)
    raise WorkerProcessError(
        f"agent {agent.id!r} cannot be in a process of its own, for that has no name to import it by: write "
        "`agent = Agent(…)` at the top of a module, not in a function, and give running(…) that one. What "
        "its tools need from the test can go by files, or by running(…, settings={…})"
    )


def _agents_of(module: ModuleType) -> Iterator[tuple[str, int | None, object]]:
    for attribute, value in list(getattr(module, "__dict__", {}).items()):
        if isinstance(value, Agent):
            yield attribute, None, value
        elif isinstance(value, list | tuple):
            for index, each in enumerate(cast("Sequence[object]", value)):
                yield attribute, index, each


# In that process.


def _imported(name: str, file: str) -> ModuleType:
    """Import a module as the test has, or its file if its name is not importable, as of scripts and tests."""
    if name != "__main__":
        try:
            module = importlib.import_module(name)
        except ImportError:
            pass
        else:
            if Path(module.__file__ or "").resolve() == Path(file).resolve():
                return module
    spec = importlib.util.spec_from_file_location("everloop_test" if name == "__main__" else name, file)
    assert spec  # noqa: S101 -- it is a file of Python's
    assert spec.loader  # noqa: S101 -- as above
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(told: int) -> None:
    """Run the plan on stdin until stdin closes; report the start on the descriptor `told`."""
    try:
        size = int.from_bytes(sys.stdin.buffer.read(8), "big")
        written = sys.stdin.buffer.read(size)
        threading.Thread(target=_end_with_the_test, daemon=True).start()
        run_loop(_work(pickle.loads(written), told))  # noqa: S301 -- the test wrote it
    except BaseException:  # noqa: BLE001 -- whatever it is, the test is told
        os.write(told, traceback.format_exc().encode())
    os._exit(1)


def _end_with_the_test() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


async def _work(plan: _WorkerPlan, told: int) -> None:
    sys.path[:] = plan.path
    agents = AgentRegistry([each.load() for each in plan.agents])
    settings = WorkerSettings(shutdown_grace=0)
    with quiet_logs():
        async with working(agents, plan.queues, settings, plan.catalogue):
            os.write(told, _READY)
            os.close(told)
            await asyncio.Event().wait()


if __name__ == "__main__":
    # Under its own name, by which the plan knows its classes.
    importlib.import_module("everloop.testing.process").main(int(sys.argv[1]))
