"""Supervision of processes: ordered start, restart after a crash, and complete end."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path

from everloop.local.child_process import ChildProcess, Service
from everloop.local.stack_errors import NotReadyError

READY_TIMEOUT = 60.0
STOP_TIMEOUT = 10.0
POLL_INTERVAL = 0.1


class Supervisor:
    """Keeps services running.

    Services start side by side, each once those that it needs are ready, and stop in reverse order. One
    that dies is restarted after 0.5 s, doubling to 10 s, and after 0.5 s again once it stayed up for 30
    s. When the supervisor itself dies, even by SIGKILL, Linux kills its children; on other systems only
    an orderly end stops them. Output of a service goes to `NAME.log` in `logs`; `say` gets one line for
    each event.
    """

    def __init__(
        self,
        services: Sequence[Service],
        logs: Path,
        say: Callable[[str], None],
        *,
        ready_timeout: float = READY_TIMEOUT,
        stop_timeout: float = STOP_TIMEOUT,
    ) -> None:
        self._children = {
            service.name: ChildProcess(service, logs / f"{service.name}.log", say) for service in services
        }
        self._say = say
        self._ready_timeout = ready_timeout
        self._stop_timeout = stop_timeout

    async def start(self) -> None:
        """Start every service, each once those that it needs are ready.

        Raises:
            NotReadyError: one ended, or was not ready in time; others may run, or be starting.
        """
        ready = {name: asyncio.Event() for name in self._children}
        starts = [asyncio.create_task(self._start(child, ready)) for child in self._children.values()]
        try:
            for start in asyncio.as_completed(starts):
                await start
        finally:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)

    async def _start(self, child: ChildProcess, ready: Mapping[str, asyncio.Event]) -> None:
        try:
            child.rotate_log()
            await child.prepare()
            for needed in child.needs:
                await ready[needed].wait()
            await child.start()
        except OSError as error:
            raise NotReadyError(f"{child.name} cannot be started: {error}") from error
        await self._wait_until_ready(child, may_restart=False)
        self._say(f"{child.name} is ready (process {child.pid})")
        child.keep_running()
        ready[child.name].set()

    async def stop(self) -> None:
        """Stop all services in reverse order: SIGTERM, and SIGKILL to the remaining processes after 10 s."""
        children = list(reversed(self._children.values()))
        try:
            for child in children:
                await child.let_end()
            for child in children:
                await child.stop(self._stop_timeout)
        finally:  # when a second Ctrl-C interrupts the waiting
            for child in children:
                child.kill_now()

    def pid(self, name: str) -> int:
        """Return the id of the service's current, or else last, process."""
        return self._children[name].pid

    async def kill(self, name: str) -> None:
        """End a service by SIGKILL, as an out-of-memory killer would; it is restarted."""
        await self._children[name].kill()

    async def wait_until_ready(self, name: str) -> None:
        """Wait until the service is ready, over any number of starts.

        Raises:
            NotReadyError: it was not ready in time.
        """
        await self._wait_until_ready(self._children[name], may_restart=True)

    async def _wait_until_ready(self, child: ChildProcess, *, may_restart: bool) -> None:
        try:
            async with asyncio.timeout(self._ready_timeout):
                while not await child.is_ready():
                    if not child.is_running and not may_restart:
                        raise NotReadyError(
                            f"{child.name} ended ({child.exit_status}) while it started.\n{child.tail()}"
                        )
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError:
            raise NotReadyError(
                f"{child.name} was not ready after {self._ready_timeout:g} s.\n{child.tail()}"
            ) from None


# Orderly end on Ctrl-C and on the signals of service managers.

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_signal(work: Coroutine[None, None, None]) -> bool:
    """Run the work; cancel it at SIGINT, SIGTERM or SIGHUP. Return whether it completed.

    A second signal interrupts the rest of the work after the first.
    """
    return asyncio.run(_run(work))


async def _run(work: Coroutine[None, None, None]) -> bool:
    running = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        return False
    return True
