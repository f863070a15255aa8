"""The command as users run it: in a pipe, or in a terminal of a certain size."""

import asyncio
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.servers.fork_server import Forked, can_fork, forked
from tests.support.servers.processes import until

COMMAND = (sys.executable, "-m", "everloop")
ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07|[=>])")
OURS = ("EVERLOOP_", "TEMPORAL_", "NO_COLOR", "COLUMNS", "LINES")
TIMEOUT = 60.0

ENTER, DOWN, UP, CTRL_C, CTRL_D, ALT_ENTER = "\r", "\x1b[B", "\x1b[A", "\x03", "\x04", "\x1b\r"


@dataclass(frozen=True)
class Ran:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """A folder and an environment of its own."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands, without variables of the test run that would change them."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        return {
            **inherited,
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONPATH": str(Path.cwd()),
            "TERM": "xterm-256color",
            **self.variables,
        }

    async def run(self, *arguments: str, stdin: str | bytes = "", command: Sequence[str] = COMMAND) -> Ran:
        """Run a command with its output in files or pipes, as a copy of a loaded process if possible."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        if can_fork((*command, *arguments), self.environment):
            return await self._run_copy((*command, *arguments), given)
        process = await asyncio.create_subprocess_exec(
            *command,
            *arguments,
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(given)
        return Ran(process.returncode or 0, out.decode(), err.decode())

    async def _run_copy(self, command: Sequence[str], given: bytes) -> Ran:
        with TemporaryDirectory() as folder:
            stdin, out, err = files = [Path(folder, name) for name in ("in", "out", "err")]
            os.mkfifo(stdin)
            process = forked(command, files, self.environment, self.folder)
            with suppress(BrokenPipeError):  # not all commands read it
                await asyncio.to_thread(stdin.write_bytes, given)
            await until(lambda: process.poll() is not None)
            return Ran(process.returncode or 0, out.read_text(), err.read_text())

    @asynccontextmanager
    async def terminal(
        self, *arguments: str, columns: int = 80, command: Sequence[str] = COMMAND, **variables: str
    ) -> "AsyncGenerator[Terminal]":
        """Run a command in a terminal; kill it if it is still running at the end."""
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = self._start((*command, *arguments), {**self.environment, **variables}, slave)
        terminal = Terminal(master, process)
        try:
            yield terminal
        finally:
            terminal.close()
            os.close(slave)  # not before: a copy opens it by its name
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(TIMEOUT)

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str], terminal: int
    ) -> subprocess.Popen[bytes] | Forked:
        """Start a command in a terminal, as a copy of a loaded process if possible."""
        if can_fork(command, environment):
            return forked(command, [Path(os.ttyname(terminal))] * 3, environment, self.folder)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 -- nothing else makes a terminal that of a session
        )


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A terminal that runs a command."""

    def __init__(self, master: int, process: subprocess.Popen[bytes] | Forked) -> None:
        self.raw = ""
        """All output, with control sequences."""
        self._master = master
        self._process = process
        self._seen = 0
        asyncio.get_running_loop().add_reader(master, self._read)

    @property
    def text(self) -> str:
        """All output, without control sequences."""
        return ESCAPE.sub("", self.raw)

    async def until(self, words: str) -> None:
        """Wait until the terminal shows words that are new since the last call."""
        async with asyncio.timeout(TIMEOUT):
            await until(lambda: words in ESCAPE.sub("", self.raw[self._seen :]))
        place = self.raw.find(words, self._seen)
        self._seen = place + len(words) if place >= 0 else len(self.raw)

    def type(self, keys: str) -> None:
        """Press keys, all at once, like pasted text."""
        os.write(self._master, keys.encode())

    async def press(self, *keys: str) -> None:
        """Press keys one by one, each after the terminal has reacted to the one before."""
        for key in keys:
            shown = len(self.raw)
            self.type(key)
            async with asyncio.timeout(TIMEOUT):
                await until(lambda: len(self.raw) > shown)  # noqa: B023 -- it is waited for here
            await asyncio.sleep(0.1)  # earlier keys count as pasted

    async def ended(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        async with asyncio.timeout(TIMEOUT):
            await until(lambda: self._process.poll() is not None)
        return self._process.wait(TIMEOUT)

    def close(self) -> None:
        """Close the terminal."""
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            self.raw += os.read(self._master, 65_536).decode(errors="replace")
        except OSError:  # the command has ended
            asyncio.get_running_loop().remove_reader(self._master)
