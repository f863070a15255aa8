"""Reload of worker and gateway after changes: new processes start beside the old ones, which then end."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from everloop.local.child_process import ChildProcess, Service
from everloop.local.stack_errors import NotReadyError
from everloop.local.supervisor import POLL_INTERVAL, READY_TIMEOUT

STOP_TIMEOUT = 5.0
"""Seconds that running calls get at the end."""


class Reloader:
    """Replaces the processes of services by new ones, which load the changes.

    Each service logs `"NAME ready"` when it is. The next processes are prepared in advance, so that
    they have loaded all unchanging modules. A replaced process ends its calls, however long they take.
    One that dies is restarted.
    """

    def __init__(self, services: Sequence[Service], logs: Path, say: Callable[[str], None]) -> None:
        self._services = services
        self._logs = logs
        self._say = say
        self._current: list[ChildProcess] = []
        self._next: list[ChildProcess] = []
        self._leaving: dict[ChildProcess, asyncio.Task[None]] = {}

    @property
    def leaving(self) -> int:
        """Number of old processes that still end their calls."""
        return len(self._leaving)

    def pid(self, name: str) -> int:
        """Return the id of the serving process; 0 without one."""
        return next((child.pid for child in self._current if child.name == name), 0)

    async def prepare(self) -> None:
        """Load unchanging modules in the next processes."""
        if not self._next:
            self._next = [
                ChildProcess(each, self._logs / f"{each.name}.log", self._say) for each in self._services
            ]
            for child in self._next:
                if not self._current:
                    child.rotate_log()
                await child.prepare()

    async def change(self, services: Sequence[Service]) -> None:
        """Replace the prepared processes, after a change of their environment."""
        self._services = services
        for child in self._next:
            await child.kill()
        self._next = []

    async def replace(self) -> None:
        """Start the next processes, and end the current ones once all of the new ones are ready.

        Raises:
            NotReadyError: one ended, or was not ready in time. The message is its output for people, and the
                current ones go on.
        """
        await self.prepare()
        fresh, self._next = self._next, []
        try:
            for child in fresh:
                await child.start()
            await asyncio.gather(*map(_wait_until_ready, fresh))
        except BaseException:
            for child in fresh:
                await child.kill()
            raise
        former, self._current = self._current, fresh
        for child in fresh:
            child.keep_running()
        for child in former:
            await child.let_end()
            self._leaving[child] = asyncio.create_task(self._leave(child))

    async def stop(self) -> None:
        """End all processes: SIGTERM, and SIGKILL to the remaining ones after 5 s."""
        every = [*self._current, *self._leaving, *self._next]
        for leaving in self._leaving.values():
            leaving.cancel()
        try:
            for child in every:
                await child.let_end()
            await asyncio.gather(*(child.stop(STOP_TIMEOUT) for child in every))
        finally:  # when a second Ctrl-C interrupts the waiting
            for child in every:
                child.kill_now()

    async def _leave(self, child: ChildProcess) -> None:
        await child.leave()
        del self._leaving[child]


async def _wait_until_ready(child: ChildProcess) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(READY_TIMEOUT):
            while f'"{child.name} ready"' not in child.output:
                if not child.is_running:
                    raise NotReadyError(_words(child.output) or f"{child.name} ended ({child.exit_status})")
                await asyncio.sleep(POLL_INTERVAL / 4)
            return
    raise NotReadyError(f"{child.name} was not ready after {READY_TIMEOUT:g} s.\n{child.tail()}")


def _words(output: str) -> str:
    """Return the output of a process for people: its log lines are JSON."""
    return "\n".join(line for line in output.splitlines() if line and not line.startswith("{"))
