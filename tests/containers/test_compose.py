"""compose.yaml unchanged, with stand-ins for images that cannot be pulled: started, harmed, upgraded."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import grpc
import orjson
import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskState

from everloop.cli.demo.play import SURVEY
from everloop.local.demo_model.script import MODEL as DEMO_MODEL
from tests.containers.client import Client, start_model
from tests.containers.engine import ROOT, Engine

STANDINS = {
    "postgresql": ("postgres", "postgres"),
    "temporal-schema": ("admin-tools", "temporalio/admin-tools"),
    "temporal": ("server", "temporalio/server"),
    "temporal-init": ("admin-tools", "temporalio/admin-tools"),
    "valkey": ("valkey", "valkey/valkey"),
    "s3": ("haproxy", "haproxy"),
    "seaweedfs": ("seaweedfs", "chrislusf/seaweedfs"),
    "proxy": ("haproxy", "haproxy"),
}
"""Started services with foreign images: our stand-in, and the image in compose.yaml.

Not started are Temporal's UI and all observability: collector, Jaeger, Prometheus, Grafana.
"""


GRPC = 50051
GetTask: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[GetTaskRequest, Task]"


class Composed:
    """compose.yaml under a project name of its own, on a loopback address of its own.

    Podman 4 without systemd neither runs health checks nor waits for them: we do both, in the order of
    `depends_on`.
    """

    def __init__(self, engine: Engine, directory: Path, version: str) -> None:
        self.engine = engine
        self.project = f"everloop-{uuid4().hex[:8]}"
        self.address = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"  # noqa: S311 -- no secret
        shutil.copytree(ROOT / "deploy", directory / "deploy")
        self.directory = directory / "deploy/compose"
        self.files = ["compose.yaml"]
        self._write_environment(version)

    @property
    def url(self) -> str:
        return f"http://{self.address}:8080/"

    def _write_environment(self, version: str) -> None:
        """Complete the two example files, as a new user would."""
        made = {"EVERLOOP_VERSION": version, "EVERLOOP_BIND": self.address, "EVERLOOP_PUBLIC_URL": self.url}
        lines = (self.directory / "env.example").read_text().splitlines()
        names = [line.partition("=")[0] for line in lines if "=" in line and not line.startswith("#")]
        made |= {name: uuid4().hex for name in names if name.endswith(("_PASSWORD", "_KEY"))}
        made |= {name: "standin" for name in names if name.endswith("_VERSION") and name not in made}
        text = "".join(f"{name}={made[name]}\n" if name in made else "" for name in names)
        (self.directory / ".env").write_text(text)
        example = (self.directory / "everloop.env.example").read_text()
        settings = {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": "http://model:8000/v1",
            "EVERLOOP_MODEL": DEMO_MODEL,
            "EVERLOOP_DEMO_TOOL_DELAY": "2",
        }
        kept = [line for line in example.splitlines() if line.lstrip("#").partition("=")[0] not in settings]
        kept += [f"{name}={value}" for name, value in settings.items()]
        (self.directory / "everloop.env").write_text("\n".join(kept) + "\n")

    def upgrade_to(self, version: str) -> None:
        """Name another version of our images, as an operator does."""
        file = self.directory / ".env"
        file.write_text(f"{file.read_text()}EVERLOOP_VERSION={version}\n")

    def switch_on_grpc(self) -> None:
        """Name the second file, as `COMPOSE_FILE` does."""
        self.files.append("compose.grpc.yaml")

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Run podman-compose and return its output."""
        done = subprocess.run(
            [
                Path(sys.executable).with_name("podman-compose"),
                "-p",
                self.project,
                "--in-pod",
                "false",
                *(word for file in self.files for word in ("-f", file)),
                *arguments,
            ],
            cwd=self.directory,
            env=self.engine.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def containers(self, service: str) -> list[str]:
        """Return the names of a service's containers."""
        label = f"label=com.docker.compose.service={service}"
        project = f"label=com.docker.compose.project={self.project}"
        return sorted(
            self.engine.podman(
                "ps", "--all", "--filter", label, "--filter", project, "--format", "{{.Names}}"
            ).split()
        )

    def up(self, *services: str, count: int = 1) -> None:
        """Start services, one after the other; return when they are healthy, or have exited successfully."""
        for service in services:
            scale = ("--scale", f"{service}={count}") if count > 1 else ()
            self.compose("up", "--detach", "--no-deps", *scale, service)
            for container in self.containers(service):
                self._wait_for(service, container)

    def _wait_for(self, service: str, container: str) -> None:
        if service in {"temporal-schema", "temporal-init", "s3-init"}:
            assert self.engine.podman("wait", container) == "0", self.engine.logs(container)
        else:
            self.engine.wait_until_healthy(container)

    def kill(self, service: str) -> None:
        """Kill the processes of a service with SIGKILL; the engine starts it again (`restart`), or we do."""
        for container in self.containers(service):
            pid = int(self.engine.podman("inspect", "--format", "{{.State.Pid}}", container))
            if pid:
                os.kill(pid, signal.SIGKILL)
            self.engine.succeeds("wait", "--condition", "exited", "--condition", "running", container)
        for container in self.containers(service):
            self.engine.podman("start", container)
            self.engine.wait_until_healthy(container)

    def down(self) -> None:
        """Remove everything."""
        self.compose("down", "--volumes", "--timeout", "5", check=False)
        for name in self.engine.podman("ps", "--all", "--quiet", "--filter", f"name={self.project}").split():
            self.engine.podman("rm", "--force", "--time", "2", "--volumes", name, check=False)
        for kind in ("network", "volume"):
            for name in self.engine.podman(kind, "ls", "--quiet", "--filter", f"name={self.project}").split():
                self.engine.podman(kind, "rm", "--force", name, check=False)


@pytest.fixture
def composed(engine: Engine, version: str, tmp_path: Path) -> Iterator[Composed]:
    """Start all services of compose.yaml except observability."""
    for target, image in set(STANDINS.values()):
        engine.build_standin(target, f"{image}:standin")
    made = Composed(engine, tmp_path, version)
    try:
        made.up("postgresql", "valkey", "seaweedfs", "s3")
        made.up("temporal-schema", "temporal", "temporal-init", "s3-init")
        yield made
    finally:
        made.down()


@pytest_asyncio.fixture
async def client(composed: Composed) -> AsyncGenerator[Client]:
    """Start workers, gateways, the proxy and a model; yield a client that has a key."""
    made = composed.compose("--profile", "tools", "run", "--rm", "--no-deps", "api-keys", "add", "me")
    (key,) = (word for word in made.split() if word.startswith("everloop_"))
    composed.up("worker", "gateway", count=2)
    image = f"localhost/everloop-worker:{_version(composed)}"
    start_model(composed.engine, f"{composed.project}_out", f"{composed.project}-model", image)
    composed.up("proxy")
    sender = Client(composed.url, key)
    yield sender
    await sender.close()


def _version(composed: Composed) -> str:
    lines = (composed.directory / ".env").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("EVERLOOP_VERSION="))


def _notes(composed: Composed) -> Counter[tuple[str, str]]:
    """Return the number of notes that each call of each task has written."""
    worker = composed.containers("worker")[0]
    ledger = composed.engine.podman("exec", worker, "cat", "/var/lib/everloop/ledger.jsonl")
    lines = map(orjson.loads, ledger.splitlines())
    return Counter((line["task_id"], line["call_id"]) for line in lines)


@pytest.mark.timeout(1800)
async def test_what_is_killed_comes_back_and_an_upgrade_loses_nothing(
    composed: Composed, client: Client, engine: Engine
) -> None:
    """Each part is killed while a task works, then both images are replaced: each note is there once.

    Then gRPC is switched on: until that its port is closed. No process is root, or writes into an image.
    """
    for container in (*composed.containers("worker"), *composed.containers("gateway")):
        assert engine.podman("exec", container, "id", "-u") == "10001"
        assert not engine.succeeds("exec", container, "touch", "/app/new")
    for harmed in ("worker", "gateway", "valkey", "temporal", "proxy"):
        task = await client.send(SURVEY)
        await client.wait_for(task, "working", "completed")
        await asyncio.to_thread(composed.kill, harmed)
        ended = await client.wait_for(task, "completed", "failed")
        assert ended["status"]["state"] == "TASK_STATE_COMPLETED", (harmed, ended["status"])
        assert set(_notes(composed).values()) == {1}, harmed

    newer = f"{_version(composed)}-newer"
    for target in ("worker", "gateway"):
        engine.build_ours(target, newer)
    task = await client.send(SURVEY)
    await client.wait_for(task, "working")
    composed.upgrade_to(newer)
    await asyncio.to_thread(composed.up, "worker", "gateway", count=2)
    ended = await client.wait_for(task, "completed", "failed")

    assert ended["status"]["state"] == "TASK_STATE_COMPLETED", ended["status"]
    images = {
        engine.podman("inspect", "--format", "{{.ImageName}}", each) for each in composed.containers("worker")
    }
    assert images == {f"localhost/everloop-worker:{newer}"}
    assert set(_notes(composed).values()) == {1}

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(composed.address, GRPC)
    composed.switch_on_grpc()
    await asyncio.to_thread(composed.up, "gateway", count=2)
    await asyncio.to_thread(composed.up, "proxy")
    async with grpc.aio.insecure_channel(f"{composed.address}:{GRPC}") as channel:
        metadata = (("x-api-key", client.key),)
        get_task: GetTask = channel.unary_unary(
            "/lf.a2a.v1.A2AService/GetTask",
            request_serializer=GetTaskRequest.SerializeToString,
            response_deserializer=Task.FromString,
        )
        shown = await get_task(GetTaskRequest(id=task), metadata=metadata, wait_for_ready=True, timeout=120)
    assert shown.status.state == TaskState.TASK_STATE_COMPLETED
    for container in (*composed.containers("worker"), *composed.containers("gateway")):
        await asyncio.to_thread(engine.podman, "stop", "--time", "60", container)
        assert engine.podman("inspect", "--format", "{{.State.ExitCode}}", container) == "0"
