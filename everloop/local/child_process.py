"""A child process of the supervisor: start, supervision, and end, with all its own children."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage

from everloop.local.keeper import dies_with

FIRST_DELAY = 0.5
LONGEST_DELAY = 10.0
STEADY_AFTER = 30.0
TAIL_LINES = 20
LEAST_SPACE = 1024 * 1024
"""Bytes; a disk with less counts as full."""


IsReady = Callable[[float], Awaitable[bool]]
"""Whether a process that was started at a time, in seconds since the epoch, is ready."""


@dataclass(frozen=True)
class Service:
    """Command of a service, and its dependencies.

    `environment` None means the supervisor's own. `needs`: services that have to be ready before it
    starts. `is_prepared`: its command is one of `everloop.local.preloaded`, which waits for a line
    before it starts. `files` are descriptors that the process inherits. `leaves_at`: the signal at
    which it ends after its current work.
    """

    name: str
    command: Sequence[str]
    is_ready: IsReady
    environment: Mapping[str, str] | None = None
    needs: Sequence[str] = ()
    is_prepared: bool = False
    files: Sequence[int] = ()
    leaves_at: signal.Signals = signal.SIGTERM


class ChildProcess:
    """A service and its current process, in a process group of its own."""

    def __init__(self, service: Service, log: Path, say: Callable[[str], None]) -> None:
        self.name = service.name
        self.needs = service.needs
        self._service = service
        self._log = log
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._started_at = 0.0
        self._log_size = 0
        self._waits = False  # for its start, prepared
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The id of the current, or else the last, process; 0 before the first start."""
        return self._process.pid if self._process else 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def exit_status(self) -> str:
        code = self._process.returncode if self._process else None
        return signal.Signals(-code).name if code and code < 0 else f"exit code {code}"

    def rotate_log(self) -> None:
        """Start a new log, and keep that of the run before as `NAME.log.previous`."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._log.replace(self._log.with_name(f"{self._log.name}.previous"))

    @property
    def output(self) -> str:
        """Log output since the last start, of this process and of others that write to the same log."""
        with contextlib.suppress(FileNotFoundError), self._log.open("rb") as log:
            log.seek(self._log_size)
            return log.read().decode(errors="replace")
        return ""

    def tail(self) -> str:
        """Return the end of the log, and its path."""
        lines: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            lines = self._log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"The end of {self._log}:", *(f"  {line}" for line in lines or ["(empty)"])])

    async def is_ready(self) -> bool:
        """Whether the current process runs and is ready."""
        return self.is_running and await self._service.is_ready(self._started_at)

    async def prepare(self) -> None:
        """Load modules in a process before its start, if its command supports that.

        Raises:
            OSError: it cannot be started, or its log cannot be written.
        """
        if self._service.is_prepared:
            await self._spawn()

    async def start(self) -> None:
        """Start the process, or the prepared one.

        Raises:
            OSError: it cannot be started, or its log cannot be written.
        """
        if not (self.is_running and self._waits):
            await self._spawn()
        self._started_at, self._waits = time.time(), False
        self._log_size = self._log.stat().st_size
        if self._process and self._process.stdin:
            self._process.stdin.write(b"begin\n")
            self._process.stdin.close()

    async def _spawn(self) -> None:
        self._waits = True
        stdin = asyncio.subprocess.PIPE if self._service.is_prepared else asyncio.subprocess.DEVNULL
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._service.command,
                env=self._service.environment,
                stdin=stdin,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=self._service.files,
                process_group=0,  # so that Ctrl-C in a terminal reaches only the supervisor
                preexec_fn=dies_with(os.getpid()),
            )

    def keep_running(self) -> None:
        """Restart the process from now on whenever it ends."""
        self._keeper = asyncio.create_task(self._start_again_and_again())

    async def let_end(self) -> None:
        """Stop restarting the process."""
        if self._keeper:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])  # a start in progress is undone before this returns
            self._keeper = None

    async def stop(self, timeout: float) -> None:  # noqa: ASYNC109 -- it escalates after the timeout
        """Send SIGTERM, and SIGKILL to the remaining processes after `timeout` seconds."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout):
                await self._end()
        except TimeoutError:
            self._say(f"{self.name} did not stop within {timeout:g} s; it is killed")
            await self.kill()

    async def leave(self) -> None:
        """Signal the process to finish, and wait for its end without a limit."""
        self._signal(self._service.leaves_at)
        await self._end()

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self.kill_now()
        await self._end()

    def kill_now(self) -> None:
        """Send SIGKILL, without waiting."""
        self._signal(signal.SIGKILL)

    async def _start_again_and_again(self) -> None:
        delay = FIRST_DELAY
        while True:
            await self._end()
            if time.time() - self._started_at >= STEADY_AFTER:
                delay = FIRST_DELAY
            why = self._no_space()
            self._say(f"{self.name} ended ({self.exit_status}{why}); it is started again in {delay:g} s")
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY)
            try:
                await self.start()
            except OSError as error:
                self._say(f"{self.name} cannot be started: {error}")
            else:
                self._say(f"{self.name} runs again (process {self.pid})")

    def _no_space(self) -> str:
        """Return an error if the disk is full, which a server cannot write into its log; empty otherwise."""
        folder = self._log.parent
        with contextlib.suppress(OSError):
            if disk_usage(folder).free < LEAST_SPACE:
                return f": no space is left on the disk of {folder}"
        return ""

    async def _end(self) -> None:
        """Wait until the process has ended, and end the rest of its group."""
        if self._process and self.is_running:
            await self._process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group, but never an ended one: its number may have been reused."""
        if self._process and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
