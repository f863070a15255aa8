"""A whole Everloop on many machines: each of its processes in a network namespace of its own."""

import asyncio
import http.client
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from everloop.local.servers import LOOPBACK, TemporalPorts, temporal_command, valkey_command
from tests.chaos.agents import AGENTS, SEED
from tests.chaos.model import Model
from tests.machines.network import Host, Network, require_namespaces
from tests.machines.nginx import nginx_command, require_nginx
from tests.support.servers.buckets import client_of, s3_credentials
from tests.support.servers.processes import ServerProcess, wait_until_answers
from tests.support.servers.scripted_openai import ScriptedOpenAI

GATEWAYS = 2
WORKERS = 3
BUCKET = "cluster"
_SERVERS = ("temporal", "valkey", "s3", "model", "proxy", "client")
_PORT = 8000
"""Each machine has one server, so all listen on the same port."""


@dataclass
class Cluster:
    """The machines and their processes."""

    directory: Path
    network: Network
    temporal: Host
    valkey: Host
    s3: Host
    model: Host
    proxy: Host
    client: Host
    gateways: list[Host]
    workers: list[Host]
    processes: dict[str, ServerProcess] = field(default_factory=dict[str, ServerProcess])

    @property
    def url(self) -> str:
        """The address of the gateways for clients: that of the proxy."""
        return _url(self.proxy)

    def machines(self, kind: str) -> list[Host]:
        """Return the machines of a kind: "gateways", "workers", or a server."""
        found: Host | list[Host] = getattr(self, kind)
        return found if isinstance(found, list) else [found]

    def start(self, host: Host, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        """Start the process of a machine."""
        process = ServerProcess(host.command(command), self.directory / f"{host.name}.log", environment)
        self.processes[host.name] = process
        process.start()

    async def until(self, host: Host, check: Callable[[], bool]) -> None:
        """Wait until the process of a machine answers; `check` is called on that machine."""

        async def answers() -> bool:
            return await asyncio.to_thread(host.call, check)

        await wait_until_answers(self.processes[host.name], answers, host.name)


@asynccontextmanager
async def running_cluster(directory: Path, seed: int) -> AsyncGenerator[Cluster]:
    """Yield a ready cluster; nothing of it is left at the end.

    The test is skipped if machines cannot be made, or if there is no nginx.
    """
    require_namespaces()
    nginx = require_nginx()
    with _machines(directory, seed) as cluster, ExitStack() as opened:
        listener = opened.enter_context(cluster.model.call(lambda: _listener(cluster.model)))
        async with ScriptedOpenAI(Model(seed, directory / "ledger").answer, listener):
            await _start_servers(cluster)
            await _start_everloop(cluster, nginx, seed)
            yield cluster


@contextmanager
def _machines(directory: Path, seed: int) -> Generator[Cluster]:
    with Network(seed) as network:
        temporal, valkey, s3, model, proxy, client = (network.add_host(name) for name in _SERVERS)
        gateways = [network.add_host(f"gateway-{number}") for number in range(1, GATEWAYS + 1)]
        workers = [network.add_host(f"worker-{number}") for number in range(1, WORKERS + 1)]
        network.start()
        cluster = Cluster(directory, network, temporal, valkey, s3, model, proxy, client, gateways, workers)
        try:
            yield cluster
        finally:
            for process in reversed(cluster.processes.values()):
                process.kill()


async def _start_servers(cluster: Cluster) -> None:
    ports = TemporalPorts(_PORT, _PORT + 1, _PORT + 2, _PORT + 3)
    (cluster.directory / "valkey").mkdir()
    temporal = temporal_command(ports, cluster.directory / "temporal.db")
    valkey = valkey_command(_PORT, cluster.directory / "valkey")
    cluster.start(cluster.temporal, _listening_outside(temporal))
    cluster.start(cluster.valkey, [*_listening_outside(valkey), "--protected-mode", "no"])
    cluster.start(
        cluster.s3, [sys.executable, "-m", "moto.server", "-H", cluster.s3.address, "-p", str(_PORT)]
    )
    await asyncio.gather(
        cluster.until(cluster.temporal, lambda: _temporal_answers(cluster.temporal)),
        cluster.until(cluster.valkey, lambda: _valkey_answers(cluster.valkey)),
        cluster.until(cluster.s3, lambda: _s3_answers(cluster.s3)),
    )


async def _start_everloop(cluster: Cluster, nginx: str, seed: int) -> None:
    environment = {
        "TEMPORAL_ADDRESS": _address(cluster.temporal),
        "EVERLOOP_REDIS_URL": f"redis://{_address(cluster.valkey)}/0",
        "EVERLOOP_BLOBS": "s3",
        "EVERLOOP_S3_BUCKET": BUCKET,
        "EVERLOOP_S3_ENDPOINT": _url(cluster.s3),
        "EVERLOOP_AGENTS": AGENTS,
        SEED: str(seed),
        "EVERLOOP_AUTH_ALLOW_ANONYMOUS": "true",
        "EVERLOOP_PORT": str(_PORT),
        "EVERLOOP_PUBLIC_URL": cluster.url,
        "OPENAI_BASE_URL": f"{_url(cluster.model)}/v1",
        "OPENAI_API_KEY": "scripted",
    }
    with s3_credentials():
        for host in cluster.gateways:
            variables = {**environment, "EVERLOOP_AUTH": "none", "EVERLOOP_HOST": host.address}
            cluster.start(host, [sys.executable, "-m", "everloop.gateway"], variables)
        for host in cluster.workers:
            cluster.start(host, [sys.executable, "worker.py"], environment)
    upstreams = [_address(host) for host in cluster.gateways]
    cluster.start(
        cluster.proxy, nginx_command(nginx, cluster.directory / "nginx", _address(cluster.proxy), upstreams)
    )
    await asyncio.gather(
        *(cluster.until(host, lambda host=host: _is_ready(host)) for host in cluster.gateways),
        *(
            cluster.until(host, lambda host=host: _says_ready(cluster.processes[host.name]))
            for host in cluster.workers
        ),
    )
    await cluster.until(cluster.proxy, lambda: _is_ready(cluster.proxy))


def _address(host: Host) -> str:
    return f"{host.address}:{_PORT}"


def _url(host: Host) -> str:
    return f"http://{_address(host)}"


def _listening_outside(command: Sequence[str]) -> list[str]:
    """Return the command of a server of one machine, changed so that others reach it.

    It listens on the loopback interface too: the services of Temporal's dev server call each other there.
    """
    return ["0.0.0.0" if word == LOOPBACK else word for word in command]


def _listener(host: Host) -> socket.socket:
    return socket.create_server((host.address, _PORT))


def _temporal_answers(host: Host) -> bool:
    binary = str(Path(sys.executable).with_name("temporal"))
    asking = [binary, "workflow", "count", "--address", _address(host)]
    return subprocess.run(asking, check=False, capture_output=True, timeout=30).returncode == 0


def _valkey_answers(host: Host) -> bool:
    try:
        with redis.Redis(host.address, _PORT) as connection:
            return bool(connection.ping())
    except redis.RedisError:
        return False


def _s3_answers(host: Host) -> bool:
    """Make the bucket as soon as the server listens."""
    try:
        socket.create_connection((host.address, _PORT), timeout=1).close()
    except OSError:
        return False
    with s3_credentials():
        client_of(_url(host)).create_bucket(Bucket=BUCKET)
    return True


def _is_ready(host: Host) -> bool:
    """True if /readyz says so; a raw request is faster than making a client."""
    connection = http.client.HTTPConnection(host.address, _PORT, timeout=10)
    with closing(connection):
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


def _says_ready(process: ServerProcess) -> bool:
    return "worker ready" in process.output
