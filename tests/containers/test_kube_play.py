"""The Kubernetes manifests, as far as `podman kube play` supports them: Deployments, and their ConfigMaps.

Services, policies, disruption budgets and scaling need a cluster. Podman 4 cannot read the Secrets that it
makes, so they are ConfigMaps here; and it translates HTTP probes into a `curl` that the images do not have:
they are left out.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from everloop.cli.demo.play import SURVEY
from everloop.local.demo_model.script import MODEL as DEMO_MODEL
from tests.containers.client import Client, start_model
from tests.containers.engine import Engine
from tests.support.deploy.manifests import COMPOSE, Resource, of_kind, rendered

SERVERS = {
    "temporal": ("server", "temporalio/server", ()),
    "s3": ("seaweedfs", "chrislusf/seaweedfs", ()),
    "valkey": ("valkey", "valkey/valkey", ("valkey-server", "--protected-mode", "no")),
}
"""Servers of a cluster: our stand-ins, and their arguments."""

SETTINGS = {
    "TEMPORAL_ADDRESS": "temporal:7233",
    "EVERLOOP_S3_ENDPOINT": "http://s3:8333",
    "EVERLOOP_MODEL": DEMO_MODEL,
    "OPENAI_BASE_URL": "http://model:8000/v1",
    "OTEL_SDK_DISABLED": "true",
    "EVERLOOP_DEMO_TOOL_DELAY": "1",
}
"""An operator's changes in `settings.env`."""

SECRETS = {
    "everloop-stores": {
        "EVERLOOP_REDIS_URL": "redis://valkey:6379/0",
        "AWS_ACCESS_KEY_ID": "everloop",
        "AWS_SECRET_ACCESS_KEY": "not-secret",
    },
    "everloop-model": {"OPENAI_API_KEY": "none"},
}


class Cluster:
    """The pods of one test, on a network of their own."""

    def __init__(self, engine: Engine, version: str, directory: Path) -> None:
        self.engine = engine
        self.network = f"everloop-{uuid4().hex[:8]}"
        self._version = version
        self._directory = directory
        self._servers: list[str] = []
        self._played: list[Path] = []
        engine.podman("network", "create", self.network)

    def start_servers(self) -> None:
        """Start the servers of a cluster besides ours, and make the search attributes and the bucket."""
        for name, (target, image, command) in SERVERS.items():
            self.engine.build_standin(target, f"{image}:standin")
            self._run(name, f"localhost/{image}:standin", *command)
        self._servers.append(f"{self.network}-model")
        start_model(self.engine, self.network, self._servers[-1], self._image("worker"))
        address = ("--env", "TEMPORAL_ADDRESS=temporal:7233", "--env", "TEMPORAL_NAMESPACE=default")
        self._once("localhost/temporalio/admin-tools:standin", "sh", "temporal/namespace.sh", *address)
        bucket = {
            **SETTINGS,
            **SECRETS["everloop-stores"],
            "EVERLOOP_BLOBS": "s3",
            "EVERLOOP_S3_BUCKET": "everloop",
        }
        options = [word for name, value in bucket.items() for word in ("--env", f"{name}={value}")]
        self._once(self._image("worker"), "python", "create_bucket.py", *options, "--env", "PYTHONPATH=/app")

    def play(self, keys: str) -> None:
        """Play each Deployment of the overlay `small` with its settings; `keys` is the file of API keys."""
        resources = rendered("small")
        maps = [_settings(each) for each in of_kind(resources, "ConfigMap")]
        maps += [_map(name, data) for name, data in SECRETS.items()]
        maps.append(_map("everloop-api-keys", {"api-keys.jsonl": keys}))
        for deployment in of_kind(resources, "Deployment"):
            file = self._directory / f"{deployment['metadata']['name']}.yaml"
            played = json.loads(json.dumps(deployment))
            _adapt(played["spec"]["template"]["spec"], self._version)
            file.write_text(yaml.safe_dump_all([*maps, played]))
            self._played.append(file)
            self.engine.podman("kube", "play", "--network", self.network, str(file))

    @property
    def pods(self) -> list[str]:
        """Return the names of our pods; each has one container besides its own."""
        names = self.engine.podman("pod", "ps", "--format", "{{.Name}}").split()
        return sorted(name for name in names if name.startswith(tuple(file.stem for file in self._played)))

    def address(self, pod: str) -> str:
        """Return the address of a pod on the network."""
        infra = self.engine.podman("pod", "inspect", "--format", "{{.InfraContainerID}}", pod)
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return self.engine.podman("inspect", "--format", form, infra)

    def logs(self) -> str:
        """Return the last output of our containers."""
        names = self.engine.podman("ps", "--all", "--format", "{{.Names}}").split()
        return "\n".join(self.engine.logs(name) for name in names if name.startswith("everloop-"))

    def end(self) -> None:
        """Remove everything."""
        for file in reversed(self._played):
            self.engine.podman("kube", "down", str(file), check=False)
        for server in self._servers:
            self.engine.podman("rm", "--force", "--time", "2", "--volumes", server, check=False)
        self.engine.podman("network", "rm", "--force", self.network, check=False)

    def _image(self, kind: str) -> str:
        return f"localhost/everloop-{kind}:{self._version}"

    def _run(self, name: str, image: str, *command: str) -> None:
        self._servers.append(f"{self.network}-{name}")
        self.engine.podman(
            *("run", "--detach", "--name", self._servers[-1], "--network", self.network),
            *("--network-alias", name, image, *command),
        )

    def _once(self, image: str, program: str, script: str, *options: str) -> None:
        """Run a script of deploy/compose to its end."""
        self.engine.podman(
            *("run", "--rm", "--network", self.network, "-v", f"{COMPOSE}:/everloop:ro", *options),
            *("--entrypoint", program, image, f"/everloop/{script}"),
        )


@pytest.fixture
def cluster(engine: Engine, version: str, tmp_path: Path) -> Iterator[Cluster]:
    engine.build_standin("admin-tools", "temporalio/admin-tools:standin")
    made = Cluster(engine, version, tmp_path)
    try:
        made.start_servers()
        yield made
    finally:
        made.end()


@pytest.mark.timeout(1200)
async def test_the_deployments_of_kubernetes_work_together(
    cluster: Cluster, engine: Engine, version: str
) -> None:
    """A task runs over pods of each kind, and goes on when one of each is killed."""
    made = engine.podman(
        *("run", "--rm", "--network", "none", "--tmpfs", "/keys:mode=1777", "--entrypoint", "sh"),
        *(f"localhost/everloop-gateway:{version}", "-c"),
        "python -m everloop keys add me --file /keys/k >/keys/out && cat /keys/out /keys/k",
    )
    key = next(word for word in made.split() if word.startswith("everloop_"))
    cluster.play(next(line for line in made.splitlines() if line.startswith("{")) + "\n")
    gateway = next(pod for pod in cluster.pods if pod.startswith("everloop-gateway"))
    client = Client(f"http://{cluster.address(gateway)}:8080/", key)
    try:
        async with asyncio.timeout(120):
            task = await client.send(SURVEY)
            await client.wait_for(task, "working")
        for kind in ("workflows", "model", "tools"):
            pod = next(pod for pod in cluster.pods if pod.startswith(f"everloop-worker-{kind}"))
            engine.podman("pod", "kill", pod)
        async with asyncio.timeout(300):
            ended = await client.wait_for(task, "completed", "failed")
    except TimeoutError:
        pytest.fail(cluster.logs())
    finally:
        await client.close()

    assert ended["status"]["state"] == "TASK_STATE_COMPLETED", ended["status"]
    assert "I asked for 5 notes" in json.dumps(ended), ended
    assert len(cluster.pods) == 8, cluster.pods


def _map(name: str, data: dict[str, str]) -> Resource:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _settings(resource: Resource) -> Resource:
    """Return the settings with an operator's changes; those of gateways alone stay."""
    data = resource["data"]
    changed = {**data, **SETTINGS} if "TEMPORAL_ADDRESS" in data else {**data}
    return _map(resource["metadata"]["name"], changed)


def _adapt(pod: dict[str, Any], version: str) -> None:
    """Set our images, and replace Secrets with ConfigMaps; no port is to be one of this machine's."""
    for container in pod["containers"]:
        kind = container["image"].rpartition("/")[2].partition(":")[0]
        container["image"] = f"localhost/{kind}:{version}"
        del container["ports"]
        for source in container["envFrom"]:
            if secret := source.pop("secretRef", None):
                source["configMapRef"] = secret
        # The image has no curl, into which podman translates them.
        for probe in ("livenessProbe", "startupProbe", "readinessProbe"):
            container.pop(probe, None)
    for volume in pod.get("volumes", []):
        if secret := volume.pop("secret", None):
            volume["configMap"] = {"name": secret["secretName"], "optional": False}
