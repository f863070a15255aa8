"""Child processes of a test: started, waited for until they answer, and always ended."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from redis.exceptions import RedisError
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.local.servers import LOOPBACK, TemporalPorts, free_port, temporal_command, valkey_command
from everloop.runtime.cluster import ClusterRedis
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis, primaries
from tests.support.servers.fork_server import Forked, can_fork, forked

ROOT = Path(__file__).parents[3]
START_TIMEOUT = 180.0

TEMPORAL_OPTIONS: list[str] = []
"""Additional options of each Temporal server."""

RUNNING_CLUSTERS: list[Callable[[Path], AbstractAsyncContextManager[tuple["ServerProcess", str]]]] = []
"""The replacement of a Valkey server without settings of its own (`pytest --redis-cluster`)."""

INHERITED: dict[str, str] = {}
"""The environment of all processes unless overridden: a blob store belongs to one Redis."""


class ServerProcess:
    """A process that can be killed, stopped and started again with the same command."""

    starts_copies = True
    """True if it may start as a copy of a process with its imports, which is larger than one of its own."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = list(command)
        self._log = log
        self._environment = {**os.environ, **INHERITED, **(environment or {})}
        self._process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        if self.starts_copies and can_fork(self._command, self._environment):
            files = (Path(os.devnull), self._log, self._log)
            self._process = forked(self._command, files, self._environment, ROOT)
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=self._environment
            )

    def kill(self) -> None:
        """Send SIGKILL, as an out-of-memory killer would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL after a minute; return the exit code."""
        return self._end(signal.SIGTERM)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Send SIGTERM, without waiting for the end."""
        if self.is_running():
            os.kill(self.pid, signal.SIGTERM)

    async def ended(self) -> int:
        """Wait until the process ends by itself; return the exit code."""
        await until(lambda: not self.is_running())
        return self.stop()

    def _end(self, how: signal.Signals) -> int:
        assert self._process
        if self._process.poll() is None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)  # a suspended process handles SIGTERM only then
        try:
            return self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            return self._process.wait(timeout=60)


async def until(is_so: Callable[[], object]) -> None:
    """Wait until a condition of other processes holds."""
    while not is_so():  # noqa: ASYNC110 -- facts of other processes, no events
        await asyncio.sleep(0.02)


async def run_everloop(environment: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Run a command of Everloop; return its exit code and its complete output."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "everloop", *arguments]
        process = ServerProcess(command, Path(folder, "output"), environment)
        process.start()
        return await process.ended(), process.output


async def wait_until_answers(server: ServerProcess, check: Callable[[], Awaitable[bool]], what: str) -> None:
    """Call `check` until it returns true.

    Fail at once when the process ends, otherwise after three minutes.
    """
    deadline = time.monotonic() + START_TIMEOUT
    while not await check():
        assert server.is_running(), f"{what} ended while it started:\n{server.output}"
        assert time.monotonic() < deadline, f"{what} did not answer in {START_TIMEOUT} s:\n{server.output}"
        await asyncio.sleep(0.05)


async def redis_answers(url: str) -> bool:
    """Return True if PING answers, and for a cluster, if each primary has nodes for all slots."""
    try:
        async with connect_redis(url, NO_CIPHER) as connection:
            await connection.ping()
            if not isinstance(connection, ClusterRedis):
                return True
            for node in await primaries(connection):
                asking = cast("Awaitable[Mapping[str, str]]", node.execute_command("CLUSTER INFO"))
                if (await asking)["cluster_state"] != "ok":
                    return False
            return True
    except (OSError, RedisError):
        return False


async def temporal_answers(address: str) -> bool:
    """Return True if the default namespace answers queries for workflows."""
    try:
        client = await Client.connect(address)
        await client.count_workflows()
    except (RuntimeError, RPCError):
        return False
    return True


@asynccontextmanager
async def running_valkey(
    directory: Path, port: int | None = None, options: Sequence[str] = ()
) -> AsyncGenerator[tuple[ServerProcess, str]]:
    """Yield a Valkey server and its URL."""
    if RUNNING_CLUSTERS and not port and not options:
        async with RUNNING_CLUSTERS[0](directory) as (cluster, url):
            yield cluster, url
        return
    port = port or free_port()
    server = ServerProcess([*valkey_command(port, directory), *options], directory / "valkey.log")
    url = f"redis://{LOOPBACK}:{port}/0"
    server.start()
    try:
        await wait_until_answers(server, lambda: redis_answers(url), "valkey")
        yield server, url
    finally:
        server.stop()


@asynccontextmanager
async def running_temporal(
    directory: Path, settings: Sequence[str] = ()
) -> AsyncGenerator[tuple[ServerProcess, str]]:
    """Yield a Temporal dev server and its address; its state is a file and survives a restart.

    `settings` are dynamic configuration, each as `key=value`.
    """
    ports = TemporalPorts(free_port(), free_port(), free_port(), free_port())
    command = [*temporal_command(ports, directory / "temporal.db"), *TEMPORAL_OPTIONS]
    for setting in settings:
        command += ["--dynamic-config-value", setting]
    # Saves a tenth of its work: garbage is collected at five times the live heap, not at twice.
    server = ServerProcess(command, directory / "temporal.log", {"GOGC": "400"})
    address = f"{LOOPBACK}:{ports.grpc}"
    server.start()
    try:
        await wait_until_answers(server, lambda: temporal_answers(address), "temporal")
        yield server, address
    finally:
        server.stop()
