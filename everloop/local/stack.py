"""The processes of an Everloop on one machine, and their configuration."""

import fcntl
import os
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from everloop.agents.registry import AgentSettings
from everloop.local.child_process import IsReady, Service
from everloop.local.demo_model.script import MODEL
from everloop.local.host_check import answering_to_own_names
from everloop.local.port_numbers import USUAL_PORTS, StackPorts, choose_ports
from everloop.local.preloaded import LISTENER
from everloop.local.readiness import (
    http_answers,
    probing_client,
    redis_answers,
    temporal_answers,
    worker_polls,
)
from everloop.local.servers import (
    LOOPBACK,
    TemporalPorts,
    free_port,
    hidden_host,
    temporal_command,
    valkey_command,
    write_password,
)
from everloop.local.stack_errors import LocalStackError
from everloop.local.stack_settings import StackSettings
from everloop.local.supervisor import Supervisor
from everloop.runtime.outbound.policy import is_loopback
from everloop.runtime.telemetry.telemetry_settings import Address, TelemetrySettings

LEDGER = "ledger.jsonl"
AGENTS = "agents"
"""File with the served agents, for commands in the same directory."""

CONSOLE = Path(__file__).parents[1] / "gateway/console/dist/index.html"
"""The page of the console, once it is built. To import it from there would load the gateway."""

REDIS_URL = "redis-url"
"""File with the URL of Valkey and its password, for the same commands."""

KEY_OF_THE_DEMO_MODEL = "scripted"
PRICES_OF_THE_DEMO_MODEL = Path(__file__).with_name("demo_model") / "models.toml"
LOCAL_WEBHOOKS = "127.0.0.0/8,::1,localhost"
SHUTDOWN_GRACE = 5
"""Seconds that running calls get to end; the supervisor waits twice as long."""


@dataclass(frozen=True)
class LocalStack:
    """A stack with its state in `directory`. `environment` is added to that of its processes.

    `ui_server` is the address of Temporal's UI itself.
    """

    directory: Path
    settings: StackSettings
    ports: StackPorts
    environment: Mapping[str, str]
    redis_password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    ui_server: Address = field(default_factory=lambda: Address(hidden_host(), free_port()))

    @property
    def ledger(self) -> Path:
        """File of the demo agent's notes, unless EVERLOOP_DEMO_LEDGER names another one."""
        return self.directory / LEDGER

    @property
    def gateway_url(self) -> str:
        return self.settings.public_url or self._http(self.ports.gateway)

    @property
    def console_url(self) -> str:
        """Address of the console. Empty if it is switched off or not built."""
        is_served = self.settings.console and CONSOLE.is_file()
        return f"{self.gateway_url.rstrip('/')}/console" if is_served else ""

    @property
    def grpc_address(self) -> str:
        """Address of the gateway's gRPC on this machine; empty without gRPC."""
        port = self.ports.gateway_grpc
        return f"{LOOPBACK}:{port}" if port else ""

    @property
    def temporal_ui(self) -> str:
        return self._http(self.ports.temporal_ui)

    @property
    def temporal_address(self) -> str:
        return f"{LOOPBACK}:{self.ports.temporal}"

    @property
    def temporal_http(self) -> str:
        """Address of Temporal's HTTP API."""
        return f"{LOOPBACK}:{self.ports.temporal_http}"

    @property
    def redis_address(self) -> str:
        """Address of Valkey, without the password; the file `redis-url` has the URL with it."""
        return f"redis://{LOOPBACK}:{self.ports.redis}/0"

    @property
    def redis_url(self) -> str:
        return f"redis://:{self.redis_password}@{LOOPBACK}:{self.ports.redis}/0"

    @property
    def model(self) -> str:
        return MODEL if self.settings.uses_demo_model else self.settings.model

    @property
    def serves_demo_agent(self) -> bool:
        """Whether no agents are configured."""
        return AgentSettings().is_default and "EVERLOOP_AGENTS" not in self.environment

    def note_agents(self) -> None:
        """Store the served agents: files as absolute paths, independent of the current working directory."""
        named = self.environment.get("EVERLOOP_AGENTS") or AgentSettings().agents
        places = {place: Path(place.strip()).expanduser() for place in named.split(",")}
        paths = [str(path.absolute()) if path.exists() else place for place, path in places.items()]
        (self.directory / AGENTS).write_text(",".join(paths))

    @property
    def blobs(self) -> Path:
        """Directory of large payloads, unless the settings of blobs name another one."""
        return self.directory / "blobs"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def serving_ui(self) -> AbstractAsyncContextManager[None]:
        """Forward requests with a Host of ours to Temporal's UI."""
        name = urlsplit(os.environ.get("EVERLOOP_TEMPORAL_UI_URL", "")).hostname or ""
        place = Address(LOOPBACK, self.ports.temporal_ui)
        return answering_to_own_names(place, self.ui_server, {name} - {""})

    def services(self, client: httpx2.AsyncClient) -> list[Service]:
        """Return the processes, in order of their dependencies; `client` checks their readiness."""
        url, queue = f"{self._http(self.ports.gateway)}/readyz", self.settings.task_queue

        def worker_is_ready(since: float) -> Awaitable[bool]:
            return worker_polls(client, self.temporal_http, queue, since)

        metrics = TelemetrySettings().address
        beside = metrics and metrics._replace(port=metrics.port + 1)
        return [
            *self.servers(client),
            self._prepared("worker", worker_is_ready, "everloop.worker", metrics=beside),
            self._prepared(
                "gateway",
                lambda _since: http_answers(client, url),
                "everloop.gateway.__main__",
                metrics=metrics,
            ),
        ]

    def reloadable(self, listener: int) -> list[Service]:
        """Return worker and gateway for a `Reloader`: `listener` is the file of the socket to serve on.

        They serve no metrics: for a moment two versions run side by side.
        """
        worker = self._prepared("worker", _unknown, "everloop.worker")
        serving = ("everloop.gateway.__main__", LISTENER, str(listener))
        gateway = self._prepared("gateway", _unknown, *serving)
        return [worker, replace(gateway, files=(listener,), leaves_at=signal.SIGHUP)]

    def servers(self, client: httpx2.AsyncClient) -> list[Service]:
        """Return the processes that worker and gateway need."""
        servers = [self._temporal(client), self._valkey()]
        return [*servers, self._demo_model(client)] if self.settings.uses_demo_model else servers

    def _temporal(self, client: httpx2.AsyncClient) -> Service:
        ports = TemporalPorts(
            grpc=self.ports.temporal,
            ui=self.ui_server.port,
            metrics=self.ports.temporal_metrics,
            http=self.ports.temporal_http,
            ui_host=self.ui_server.host,
        )
        command = temporal_command(ports, self.directory / "temporal.db")

        return Service(
            "temporal",
            command,
            lambda _since: temporal_answers(client, self.temporal_http),
            _environment({}),
        )

    def _valkey(self) -> Service:
        data = self.directory / "valkey"
        data.mkdir(parents=True, exist_ok=True)
        url_file = self.directory / REDIS_URL
        url_file.touch(mode=0o600)
        url_file.write_text(self.redis_url)
        command = valkey_command(self.ports.redis, data, write_password(self.redis_password, data))
        return Service("valkey", command, lambda _since: redis_answers(self.redis_url))

    def _demo_model(self, client: httpx2.AsyncClient) -> Service:
        url = f"{self._http(self.ports.demo_model)}/v1/models"
        key = {"Authorization": f"Bearer {KEY_OF_THE_DEMO_MODEL}"}
        arguments = ("everloop.local.demo_model", "--port", str(self.ports.demo_model))
        return self._python("demo-model", lambda _since: http_answers(client, url, key), *arguments)

    def _prepared(
        self, name: str, is_ready: IsReady, *arguments: str, metrics: Address | None = None
    ) -> Service:
        service = self._python(name, is_ready, "everloop.local.preloaded", *arguments)
        environment = {**(service.environment or {}), "EVERLOOP_METRICS_ADDRESS": str(metrics or "")}
        needs = ("temporal", "valkey")
        return replace(service, is_prepared=True, needs=needs, environment=environment)

    def _python(self, name: str, is_ready: IsReady, module: str, *arguments: str) -> Service:
        command = (sys.executable, "-m", module, *arguments)
        return Service(name, command, is_ready, _environment(self._variables()))

    def _variables(self) -> dict[str, str]:
        variables = {
            "EVERLOOP_SHUTDOWN_GRACE": os.environ.get("EVERLOOP_SHUTDOWN_GRACE", str(SHUTDOWN_GRACE)),
            "EVERLOOP_DEMO_LEDGER": os.environ.get("EVERLOOP_DEMO_LEDGER", str(self.ledger)),
            "TEMPORAL_ADDRESS": self.temporal_address,
            "TEMPORAL_NAMESPACE": "default",
            "EVERLOOP_REDIS_URL": self.redis_url,
            "EVERLOOP_BLOB_DIRECTORY": os.environ.get("EVERLOOP_BLOB_DIRECTORY", str(self.blobs)),
            "EVERLOOP_PORT": str(self.ports.gateway),
            "EVERLOOP_PUBLIC_URL": self.gateway_url,
            "EVERLOOP_GRPC_PORT": str(self.ports.gateway_grpc or ""),
            "EVERLOOP_TEMPORAL_UI_URL": os.environ.get("EVERLOOP_TEMPORAL_UI_URL", self.temporal_ui),
            # For trials webhooks are on the same machine; a gateway for others blocks them there.
            "EVERLOOP_PUSH_ALLOW": os.environ.get(
                "EVERLOOP_PUSH_ALLOW", LOCAL_WEBHOOKS if self._is_local else ""
            ),
        }
        if self.settings.uses_demo_model:
            variables["OPENAI_BASE_URL"] = f"{self._http(self.ports.demo_model)}/v1"
            variables["OPENAI_API_KEY"] = KEY_OF_THE_DEMO_MODEL
            variables["EVERLOOP_MODEL"] = MODEL
            variables["EVERLOOP_MODELS_FILE"] = str(PRICES_OF_THE_DEMO_MODEL)
        return {**variables, **self.environment}

    @property
    def _is_local(self) -> bool:
        """Whether clients are on this machine, as far as can be determined."""
        host = urlsplit(self.settings.public_url or self.gateway_url).hostname or ""
        return is_loopback(host) and is_loopback(os.environ.get("EVERLOOP_HOST") or LOOPBACK)

    @staticmethod
    def _http(port: int) -> str:
        return f"http://{LOOPBACK}:{port}"


@asynccontextmanager
async def running_stack(
    directory: Path,
    settings: StackSettings,
    say: Callable[[str], None],
    environment: Mapping[str, str],
    *,
    fresh: bool = False,
) -> AsyncGenerator[tuple[LocalStack, Supervisor]]:
    """Start a stack in an absolute directory, wait until all of it is ready, and stop it at the end.

    `fresh` deletes the earlier state of a stack in that directory, and leaves the usual port to others.

    Raises:
        LocalStackError: it cannot run here, or not now.
    """
    with locked(directory):
        if fresh:
            _forget(directory)
        ports = choose_ports(
            directory / "ports.json", settings.requested_ports, say, {} if fresh else USUAL_PORTS
        )
        stack = LocalStack(directory, settings, ports, environment)
        stack.note_agents()
        async with probing_client() as client:
            supervisor = Supervisor(stack.services(client), stack.logs, say)
            async with stack.serving_ui():
                try:
                    await supervisor.start()
                    yield stack, supervisor
                finally:
                    await supervisor.stop()


def _forget(directory: Path) -> None:
    """Delete the files of a stack by name, and no other files in the directory."""
    for name in ("blobs", "logs", "valkey"):
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in (
        "temporal.db",
        "temporal.db-shm",
        "temporal.db-wal",
        LEDGER,
        "ports.json",
        AGENTS,
        REDIS_URL,
    ):
        (directory / name).unlink(missing_ok=True)


async def _unknown(_since: float) -> bool:
    """Return False: a `Reloader` detects in the log that its process is ready."""
    return False


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process: ours, without settings of another Temporal or of proxies."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
    direct = ",".join(filter(None, (os.environ.get("NO_PROXY"), LOOPBACK, "localhost")))
    return {
        **inherited,
        "TEMPORAL_CONFIG_FILE": os.devnull,
        "NO_PROXY": direct,
        "no_proxy": direct,
        "PYTHONUNBUFFERED": "1",
        **variables,
    }


# One stack for each directory.


@contextmanager
def locked(directory: Path) -> Generator[None]:
    """Lock the directory, which is created if needed. The kernel releases it when this process dies.

    Raises:
        LocalStackError: another process holds it, or it cannot be created or written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)  # it holds messages of tasks, and logs
        lock = (directory / "lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise LocalStackError(
            f"cannot keep state in {directory}: {error.strerror}; let it be a folder that you may write to, "
            "or keep state elsewhere: --directory PATH"
        ) from error
    with lock as file:
        file.seek(0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalStackError(
                f"a stack runs in {directory} already (process {file.read().strip() or 'unknown'}); "
                "stop it first, or keep another one elsewhere: --directory PATH"
            ) from None
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
