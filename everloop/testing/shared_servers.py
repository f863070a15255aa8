"""The servers of a test session: one Temporal and one Valkey, shared by all workers of pytest-xdist.

Their state is in memory and in a temporary directory. They end with the last process that uses them.
"""

import asyncio
import atexit
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everloop.local import keeper
from everloop.testing.errors import ServersError

START_TIMEOUT = 60.0
ATTEMPTS = 3
"""Attempts to start them: another process may take a free port meanwhile."""

DATABASES = 10_000
"""Databases of Valkey: each app has one."""

TIME_SKIPPING = "frontend.WorkflowTimeSkippingEnabled"
INSTALL = "pip install 'everloop[local]'"

_POLL = 0.02
_ADDRESSES = "addresses.json"
_LAST_LINES = 20


@dataclass(frozen=True)
class SessionServers:
    """Addresses of the session's servers."""

    temporal: str
    temporal_http: str
    temporal_ui: str
    redis: str
    directory: Path

    def log(self, name: str) -> str:
        """Return the last lines of a server's log."""
        with contextlib.suppress(OSError):
            lines = (self.directory / f"{name}.log").read_text(errors="replace").splitlines()
            return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])
        return ""


async def session_servers() -> SessionServers:
    """Return the servers of this test session; the first process starts them.

    Raises:
        ServersError: they are not installed, or do not start.
    """
    for attempt in range(1, ATTEMPTS + 1):
        servers = await asyncio.to_thread(_joined)
        try:
            await _wait_for(servers)
        except ServersError:
            _leave()
            if attempt == ATTEMPTS:
                raise
        else:
            return servers
    raise AssertionError  # the last attempt returns or raises


async def _wait_for(servers: SessionServers) -> None:
    from everloop.local.readiness import probing_client, redis_answers, temporal_answers  # noqa: PLC0415 -- as below

    deadline = time.monotonic() + START_TIMEOUT
    async with probing_client() as client:
        while not (
            await redis_answers(servers.redis) and await temporal_answers(client, servers.temporal_http)
        ):
            if not _is_keeper_alive() or time.monotonic() > deadline:
                ends = "\n".join(f"{name}:\n{servers.log(name)}" for name in ("temporal", "valkey", "keeper"))
                raise ServersError(
                    f"the servers of tests did not start in {START_TIMEOUT:g} s, or have ended. Is a port "
                    f"taken, memory or disk full? The ends of their logs:\n{ends}"
                )
            await asyncio.sleep(_POLL)


# Joining the session: the connection to the keeper says that this process uses the servers.

_lock = threading.Lock()
_joined_by: tuple[int, socket.socket, SessionServers] | None = None


def _joined() -> SessionServers:
    global _joined_by  # noqa: PLW0603 -- a process has one session
    with _lock:
        if _joined_by and _joined_by[0] == os.getpid() and _is_keeper_alive():
            return _joined_by[2]
        _leave()
        with _locked(_room() / "lock"):
            directory = _room() / _session()
            if (found := _join(directory)) is None:
                shutil.rmtree(directory, ignore_errors=True)
                _start_keeper(directory)
                found = _join(directory)
        if found is None:
            raise ServersError(f"the servers of tests ended at once; can files be written in {_room()}?")
        _joined_by = (os.getpid(), *found)
        return _joined_by[2]


def _leave() -> None:
    global _joined_by  # noqa: PLW0603 -- a process has one session
    if _joined_by:
        _joined_by[1].close()
    _joined_by = None


atexit.register(_leave)


def _is_keeper_alive() -> bool:
    """Return True while the keeper holds the other end."""
    if not _joined_by:
        return False
    try:
        return _joined_by[1].recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _session() -> str:
    """Return a name shared by the processes of one test session."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())


def _room() -> Path:
    """Return our temporary directory, writable for this user only."""
    room = Path(tempfile.gettempdir(), f"everloop-testing-{os.getuid()}")
    room.mkdir(mode=0o700, exist_ok=True)
    if room.stat().st_uid != os.getuid():
        raise ServersError(
            f"{room} belongs to another user; remove it, or set TMPDIR to a directory of yours"
        )
    return room


@contextmanager
def _locked(file: Path) -> Generator[None]:
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _join(directory: Path) -> tuple[socket.socket, SessionServers] | None:
    try:
        addresses = json.loads((directory / _ADDRESSES).read_text())
        port = int((directory / keeper.PORT).read_text())
        connection = socket.create_connection(("127.0.0.1", port))
    except (OSError, ValueError):
        return None
    return connection, SessionServers(**addresses, directory=directory)


def _start_keeper(directory: Path) -> None:
    try:
        from everloop.local.servers import (  # noqa: PLC0415 -- it may not be installed
            LOOPBACK,
            TemporalPorts,
            free_port,
            hidden_host,
            temporal_command,
            valkey_command,
            write_password,
        )
    except ImportError as error:
        raise ServersError(
            f"tests need Temporal and Valkey, and {error.name} is not installed: {INSTALL}"
        ) from None
    ports = TemporalPorts(free_port(), free_port(), free_port(), free_port(), hidden_host())
    redis = free_port()
    directory.mkdir(mode=0o700)
    temporal = [*temporal_command(ports), "--dynamic-config-value", f"{TIME_SKIPPING}=true"]
    password = secrets.token_hex(16)
    configuration = write_password(password, directory)
    valkey = [*valkey_command(redis, directory, configuration), "--databases", str(DATABASES)]
    if shutil.which(temporal[0]) is None:
        raise ServersError(f"tests need the `temporal` command, which is not installed: {INSTALL}")
    addresses = {
        "temporal": f"{LOOPBACK}:{ports.grpc}",
        "temporal_http": f"{LOOPBACK}:{ports.http}",
        "temporal_ui": f"http://{ports.ui_host}:{ports.ui}",
        "redis": f"redis://:{password}@{LOOPBACK}:{redis}/0",
    }
    (directory / _ADDRESSES).write_text(json.dumps(addresses))
    plan = {"directory": str(directory), "commands": {"temporal": temporal, "valkey": valkey}}
    with (directory / "keeper.log").open("wb") as log:
        subprocess.run(  # noqa: S603 -- our own file
            [sys.executable, "-I", keeper.__file__],
            input=json.dumps(plan).encode(),
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # Ctrl-C ends the tests first
            check=False,
        )
