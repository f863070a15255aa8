"""Starts workers, gateways and commands as copies of a process with their imports, which takes 2 s.

A copy has an environment, output and memory of its own from its first line on, and is killed like any
process. Run by `forked`: `python -m tests.support.servers.fork_server FD`.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypedDict

PRELOADED = (
    *("everloop.worker", "everloop.gateway.__main__", "everloop.cli.commands"),
    *("everloop.client.sync", "everloop.cli.client.turns", "everloop.cli.doctor.findings"),
)

COPIES = (["worker.py"], ["-m", "everloop.gateway"], ["-m", "everloop"])
"""Commands that can be started as a copy: their beginning after Python's name."""

TERMINALS = "/dev/pts/"


class Start(TypedDict):
    """The command to run, with its environment."""

    command: list[str]
    files: list[str]
    environment: dict[str, str]
    directory: str


class Forked:
    """A process that is not a child of this one, used as a `subprocess.Popen`."""

    def __init__(self, server: "_ForkServer", pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def can_fork(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return True if a copy can run this: libraries read OpenTelemetry's variables when imported."""
    is_known = any(list(command[1 : 1 + len(begin)]) == begin for begin in COPIES)
    is_as_imported = not any(name.startswith("OTEL_") for name in environment)
    return sys.platform == "linux" and command[0] == sys.executable and is_known and is_as_imported


def forked(
    command: Sequence[str], files: Sequence[Path], environment: Mapping[str, str], directory: Path
) -> Forked:
    """Start a copy that runs this command; the files are its stdin, stdout and stderr."""
    for output in files[1:]:
        output.touch()
    server = _fork_server()
    start: Start = {
        "command": list(command),
        "files": [str(file.absolute()) for file in files],
        "environment": dict(environment),
        "directory": str(directory),
    }
    return Forked(server, server.ask({"start": start}) or 0)


class _ForkServer:
    """The process that is copied; it ends with this one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            directory = Path(__file__).parents[3]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=directory)
        self._connection, self._lock = ours, threading.Lock()
        self._lines = ours.makefile("rw", encoding="utf-8")
        atexit.register(self._end)

    def ask(self, question: Mapping[str, object]) -> int | None:
        with self._lock:
            self._lines.write(f"{json.dumps(question)}\n")
            self._lines.flush()
            return json.loads(self._lines.readline())

    def _end(self) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)
        self._process.wait()


@cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


def serve(connection: socket.socket) -> Start | None:
    """Start and reap copies until the other side ends; in a copy, return the command to run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when the other side does
    for module in PRELOADED:
        __import__(module)
    gc.collect()
    gc.freeze()  # otherwise each copy writes to the pages of all objects in garbage collection
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("an import has started a thread, which a copy would not have")
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            question = json.loads(line)
            if "start" in question:
                answer = os.fork() or None
                if answer is None:
                    return question["start"]
            else:
                answer = _poll(question["poll"])
            lines.write(f"{json.dumps(answer)}\n")
            lines.flush()
    return None


def _poll(pid: int) -> int | None:
    """Return the exit status of a process, as `Popen.returncode` does."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def run(start: Start) -> None:
    """Turn this copy into the command."""
    if start["files"][0].startswith(TERMINALS):
        os.setsid()  # the terminal that it opens first becomes that of the session
    for number, (name, how) in enumerate(zip(start["files"], ("rb", "ab", "ab"), strict=True)):
        with Path(name).open(how) as file:
            os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 -- its own
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115 -- its own
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(start["directory"])
    os.environ.clear()
    os.environ.update(start["environment"])
    if start["command"][1] == "-m":
        sys.argv = start["command"][2:]
        sys.modules.pop(f"{sys.argv[0]}.__main__", None)  # runpy warns of modules that are already imported
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = start["command"][1:]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    if to_run := serve(socket.socket(fileno=int(sys.argv[1]))):
        run(to_run)
