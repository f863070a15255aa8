"""The images, built and run as the manifests run them: not root, read-only, with their health checks."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from everloop.deploy.local.servers import LOOPBACK, free_port
from tests.containers.engine import Engine
from tests.support.deploy.manifests import of_kind, rendered

HARDENED = (
    "--read-only",
    "--cap-drop",
    "all",
    "--security-opt",
    "no-new-privileges",
    "--tmpfs",
    "/tmp:mode=1777",  # noqa: S108 -- of the container
)


class Containers:
    """Containers of one test, which ends them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.names: list[str] = []

    def start(self, image: str, *options: str, command: Sequence[str] = ()) -> str:
        """Start one on the network of the machine; return its name."""
        name = f"everloop-test-{uuid4().hex[:8]}"
        self.names.append(name)
        self.engine.podman("run", "--detach", "--name", name, "--network", "host", *options, image, *command)
        return name


@pytest.fixture
def containers(engine: Engine) -> Iterator[Containers]:
    started = Containers(engine)
    yield started
    for name in started.names:
        engine.podman("rm", "--force", "--time", "5", "--volumes", name, check=False)


def _environment(variables: dict[str, str]) -> list[str]:
    return [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]


def _kubernetes_settings() -> dict[str, str]:
    """Return the settings that the Kubernetes base gives both, without addresses that only a cluster has."""
    maps = of_kind(rendered("small"), "ConfigMap")
    settings = {name: value for each in maps for name, value in each.get("data", {}).items()}
    elsewhere = (
        "TEMPORAL_",
        "OTEL_",
        "EVERLOOP_S3_",
        "EVERLOOP_BLOBS",
        "EVERLOOP_PUBLIC_URL",
        "EVERLOOP_GRPC_URL",
    )
    return {name: value for name, value in settings.items() if not name.startswith(elsewhere)}


@pytest.mark.timeout(900)
async def test_both_images_run_as_the_manifests_run_them(
    version: str, containers: Containers, temporal_address: str, redis_url: str, tmp_path: Path
) -> None:
    """Started with the settings of Kubernetes, they get healthy, serve, write nowhere, and end with 0."""
    keys = tmp_path / "api-keys.jsonl"
    engine = containers.engine
    made = engine.podman(
        *("run", "--rm", "--network", "none", *HARDENED, "-v", f"{tmp_path}:/keys", "--user", "0"),
        *("--entrypoint", "python", f"localhost/everloop-gateway:{version}"),
        *("-m", "everloop", "keys", "add", "tester", "--file", f"/keys/{keys.name}"),
    )
    (key,) = (word for word in made.split() if word.startswith("everloop_"))
    keys.chmod(0o644)
    ports = {name: free_port() for name in ("http", "grpc", "gateway", "worker")}
    shared = _kubernetes_settings() | {
        "TEMPORAL_ADDRESS": temporal_address,
        "EVERLOOP_REDIS_URL": redis_url,
        "EVERLOOP_TASK_QUEUE": f"containers-{uuid4()}",
        "EVERLOOP_SPLIT_QUEUES": "false",
        "OTEL_SDK_DISABLED": "true",
        "EVERLOOP_AGENTS": "everloop.examples.conformance:agent",
        "EVERLOOP_BLOB_DIRECTORY": "/blobs",
    }
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    blobs.chmod(0o777)
    gateway = containers.start(
        f"localhost/everloop-gateway:{version}",
        *(*HARDENED, "-v", f"{keys}:/keys/{keys.name}:ro", "-v", f"{blobs}:/blobs"),
        *("--health-cmd", f"python healthcheck.py http://{LOOPBACK}:{ports['http']}/healthz"),
        *_environment(
            shared
            | {
                "EVERLOOP_HOST": LOOPBACK,
                "EVERLOOP_PORT": str(ports["http"]),
                "EVERLOOP_GRPC_PORT": str(ports["grpc"]),
                "EVERLOOP_METRICS_ADDRESS": f"{LOOPBACK}:{ports['gateway']}",
                "EVERLOOP_AUTH": "api-key",
                "EVERLOOP_API_KEYS_FILE": f"/keys/{keys.name}",
            }
        ),
    )
    worker = containers.start(
        f"localhost/everloop-worker:{version}",
        *(*HARDENED, "-v", f"{blobs}:/blobs"),
        *("--health-cmd", f"python healthcheck.py http://{LOOPBACK}:{ports['worker']}/healthz"),
        *_environment(
            shared | {"EVERLOOP_METRICS_ADDRESS": f"{LOOPBACK}:{ports['worker']}", "OPENAI_API_KEY": "none"}
        ),
    )
    engine.wait_until_healthy(gateway)
    engine.wait_until_healthy(worker)

    answer = await _send(f"http://{LOOPBACK}:{ports['http']}/", key)
    assert answer["status"]["state"] == "TASK_STATE_COMPLETED", answer
    for name in (gateway, worker):
        assert engine.podman("exec", name, "id", "-u") == "10001"
        assert not engine.succeeds("exec", name, "touch", "/app/new")
        engine.podman("stop", "--time", "60", name)
        assert engine.podman("inspect", "--format", "{{.State.ExitCode}}", name) == "0", engine.logs(name)


async def _send(url: str, key: str) -> dict[str, dict[str, str]]:
    """Send a message that the conformance agent answers; return the task that it came to."""
    message = {"messageId": f"tck-complete-task-{uuid4()}", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with httpx.AsyncClient(timeout=60, headers={"A2A-Version": "1.0", "X-API-Key": key}) as http:
        answer = json.loads((await http.post(url, json=body)).content)
    return answer["result"]["task"]
