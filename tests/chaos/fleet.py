"""Workers and gateways in places of their own: a process that ends is restarted, as by supervisors."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from everloop.local.servers import LOOPBACK, free_port
from tests.chaos.census import Census, take_census
from tests.support.servers.processes import ServerProcess

TIMEOUT = 300.0
"""Timeout of a process's start in seconds, restarts included."""


SETTLING = 0.5
"""Seconds without a new asyncio task after which a ready process has begun all of its own."""


@dataclass
class Seat:
    """A process that is restarted whenever it ends.

    `before` are the resources of the current process when it was ready, `exits` the unexpected exits.
    """

    name: str
    command: list[str]
    log: Path
    environment: Mapping[str, str]
    is_ready: Callable[["Seat"], Awaitable[bool]]
    before: Census | None = None
    exits: list[str] = field(default_factory=list[str])
    pids: list[int] = field(default_factory=list[int])
    process: ServerProcess = field(init=False)

    def __post_init__(self) -> None:
        self.process = ServerProcess(self.command, self.log, self.environment)

    async def start(self) -> float:
        """Start the process, again if it ends meanwhile, and return the seconds until it was ready."""
        begin = time.monotonic()
        self.before = None
        while True:
            self._launch()
            while self.process.is_running() and time.monotonic() < begin + TIMEOUT:
                if await self.is_ready(self):
                    self.before = await self._census()
                    return time.monotonic() - begin
                await asyncio.sleep(0.1)
            if time.monotonic() >= begin + TIMEOUT:
                raise TimeoutError(f"{self.name} was not ready within {TIMEOUT:.0f} s; see {self.log}")
            # A server was away during its start.
            await asyncio.sleep(0.5)

    async def until_ready(self) -> None:
        """Wait until the current process is ready."""
        while not await self.is_ready(self):  # noqa: ASYNC110 -- another process is looked at
            await asyncio.sleep(0.1)

    @property
    def news(self) -> str:
        """The output of the current process."""
        return self.process.output[self._said_before :]

    def kill(self) -> None:
        self.process.kill()

    async def stop(self) -> int:
        """SIGTERM; return the exit code."""
        return await asyncio.to_thread(self.process.stop)

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def _launch(self) -> None:
        self._said_before = len(self.process.output) if self.log.exists() else 0
        self.process.start()
        self.pids.append(self.process.pid)

    async def _census(self) -> Census:
        """Return the resources of the process once it has begun all of its permanent work."""
        while True:
            before = await take_census(self.process.pid, self.log.parent)
            await asyncio.sleep(SETTLING)
            now = await take_census(self.process.pid, self.log.parent)
            if now.tasks.total() <= before.tasks.total():
                return now


@dataclass
class Fleet:
    """All seats, by name."""

    seats: dict[str, Seat] = field(default_factory=dict[str, Seat])
    urls: list[str] = field(default_factory=list[str])

    def add_worker(self, directory: Path, environment: Mapping[str, str]) -> None:
        """Add a worker without starting it."""
        name = f"worker-{sum(each.startswith('worker') for each in self.seats)}"
        command = [sys.executable, "worker.py"]
        self.seats[name] = Seat(name, command, directory / f"{name}.log", environment, _says_ready)

    def add_gateway(self, directory: Path, environment: Mapping[str, str]) -> None:
        """Add a gateway with a fixed address, without starting it."""
        name, port = f"gateway-{len(self.urls)}", free_port()
        url = f"http://{LOOPBACK}:{port}"
        self.urls.append(url)
        variables = {**environment, "EVERLOOP_PORT": str(port), "EVERLOOP_PUBLIC_URL": url}
        command = [sys.executable, "-m", "everloop.gateway"]
        self.seats[name] = Seat(name, command, directory / f"{name}.log", variables, _answers_ready(url))

    async def stop(self) -> dict[str, int]:
        """End all processes by SIGTERM; return their exit codes."""
        seats = [seat for seat in self.seats.values() if seat.process.is_running()]
        codes = await asyncio.gather(*(seat.stop() for seat in seats))
        return {seat.name: code for seat, code in zip(seats, codes, strict=True)}


@asynccontextmanager
async def running_fleet(fleet: Fleet) -> AsyncGenerator[Fleet]:
    """Start all seats; at the end kill all that still run."""
    try:
        await asyncio.gather(*(seat.start() for seat in fleet.seats.values()))
        yield fleet
    finally:
        for seat in fleet.seats.values():
            if seat.pids and seat.process.is_running():
                seat.kill()


async def _says_ready(seat: Seat) -> bool:
    return "worker ready" in seat.news


def _answers_ready(url: str) -> Callable[[Seat], Awaitable[bool]]:
    async def is_ready(_: Seat) -> bool:
        async with httpx.AsyncClient(timeout=2) as http:
            try:
                return (await http.get(f"{url}/readyz")).is_success
            except httpx.TransportError:
                return False

    return is_ready
