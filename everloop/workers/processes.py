"""Several worker processes under one parent: Python uses one core per process."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from everloop.agents.mcp import launcher
from everloop.runtime.telemetry.telemetry_settings import Address

STEADY_AFTER = 60.0
"""Seconds after which a failing process is restarted rather than taken for misconfigured. On a busy
machine reading its settings may take a third of that."""

PAUSE = 1.0
"""Seconds until an ended process is restarted."""

_METRICS_ADDRESS = "EVERLOOP_METRICS_ADDRESS"

_log = structlog.get_logger()


@dataclass(frozen=True)
class WorkerProcesses:
    """`count` processes of one `command`, the first one at `metrics_address` (None: no metrics).

    Each further one has the next port. They end with the parent, however that ends (on Linux).
    """

    command: Sequence[str]
    count: int
    metrics_address: Address | None = None

    async def run(self) -> int:
        """Run the processes until SIGTERM or SIGINT, then let each finish; return the exit code.

        A process that ends or is killed is restarted. One that fails soon after its first start is
        misconfigured and has logged why: all are ended with its exit code.
        """
        stopping = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stopping.set)
        codes = await asyncio.gather(*(self._keep(number, stopping) for number in range(self.count)))
        return max(codes)

    async def _keep(self, number: int, stopping: asyncio.Event) -> int:
        environment, is_proven = {**os.environ, **self._address_of(number)}, False
        while not stopping.is_set():
            began = time.monotonic()
            process = await self._start(environment)
            await _first_of(process.wait(), stopping.wait())
            if stopping.is_set():
                return await _end(process)
            _log.warning("worker process ended", number=number, pid=process.pid, code=process.returncode)
            is_proven = is_proven or time.monotonic() - began >= STEADY_AFTER
            if process.returncode and process.returncode > 0 and not is_proven:
                stopping.set()
                return process.returncode
            await _first_of(asyncio.sleep(PAUSE), stopping.wait())
        return 0

    async def _start(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, launcher.__file__, str(os.getpid()), *self.command, env=environment
        )

    def _address_of(self, number: int) -> dict[str, str]:
        first = self.metrics_address
        return {_METRICS_ADDRESS: str(Address(first.host, first.port + number))} if first else {}


async def _end(process: asyncio.subprocess.Process) -> int:
    """Send SIGTERM and wait until the calls of a process have ended."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    code = await process.wait()
    return 0 if code == -signal.SIGTERM else abs(code)  # it had only begun


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
