"""The process that runs the servers of a test session, and ends them after their last user.

Each user holds a connection to it, which the kernel closes with the process, however that ends. It is
run as a file, with the standard library alone: it starts within 50 ms.
"""

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PORT = "port"
"""File with its port."""

FIRST_USER = 60.0
"""Seconds to wait for the first user."""

LOOK = 1.0
"""Seconds between two checks of the servers."""

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main() -> None:
    """Read the plan from stdin: a directory of ours, and the servers' commands by name; run them."""
    plan = json.load(sys.stdin)
    directory = Path(plan["directory"])
    started, starting = os.pipe()
    if os.fork():  # the caller continues after the servers have been started, and has no child
        os.close(starting)
        os._exit(0 if os.read(started, 1) else 1)
    signal.signal(signal.SIGTERM, _end)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            (directory / PORT).write_text(str(listener.getsockname()[1]))
            dies_with_us = dies_with(os.getpid())
            for name, command in plan["commands"].items():
                servers.append(_start(command, directory, directory / f"{name}.log", dies_with_us))
            os.write(starting, b".")
            _keep(listener, servers)
    finally:
        for server in servers:
            server.kill()
        for server in servers:
            server.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _end(_number: int, _frame: object) -> None:
    sys.exit()


def _start(
    command: Sequence[str], directory: Path, log: Path, dies_with_us: Callable[[], None] | None
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=dies_with_us,  # noqa: PLW1509 -- this process has one thread
        )


def _keep(listener: socket.socket, servers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Return after the last user, without any user in time, or after the end of a server."""
    selector, users, wait = selectors.DefaultSelector(), 0, FIRST_USER
    selector.register(listener, selectors.EVENT_READ)
    while all(server.poll() is None for server in servers):
        for key, _ in selector.select(LOOK):
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                users += 1
                continue
            with contextlib.suppress(ConnectionError):
                if isinstance(key.fileobj, socket.socket) and key.fileobj.recv(64):
                    continue
            selector.unregister(key.fileobj)
            users -= 1
            if not users:
                return
        wait -= LOOK
        if not users and wait < 0:
            return


def dies_with(parent: int) -> Callable[[], None] | None:
    """Return the hook that makes Linux kill a child when its parent dies."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # loaded before the fork: a child of a threaded process must not load anything

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(1)

    return ask


if __name__ == "__main__":
    main()
