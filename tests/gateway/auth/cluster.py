"""A gateway of two agents that guards its tasks, all its bindings, and callers with keys of every kind."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfigs
from everloop.workflows.contract.names import context_key
from tests.gateway.grpc_harness import running_grpc_gateway
from tests.gateway.harness import (
    AGENT,
    RunningGateway,
    StandInTask,
    key_scheme,
    stand_in_worker,
    unheard,
    unique,
)
from tests.support.stores import redis_of
from tests.support.wires.operations import LEGACY, OPERATIONS, params_of
from tests.support.wires.wires import Headers, Wire, all_wires

OTHER = replace(AGENT, id="other", name="Other")

OF_NO_TASK = {"ListTasks", "GetExtendedAgentCard"}
"""Operations that name no task; each has a test of its own."""

DOWNLOADS = (
    "artifacts/{}",
    "artifacts/{}?taskId=x",
    "artifacts/{}/a",
    "artifacts/{}/a/parts/0",
    "artifacts/{}/b",
    "results/{}/c1",
)
"""Addresses of artifacts, but for the context; there is an artifact `a`, and no `b`."""

KEYS = {
    "owner": ("alice", ["tasks:read", "tasks:write"]),
    "stranger": ("mallory", ["tasks:read", "tasks:write"]),
    "reader": ("alice", ["tasks:read"]),
    "writer": ("alice", ["tasks:write"]),
    "bound": ("alice", ["tasks:read", "tasks:write", "agents:other"]),
}


def operations_of(wire: Wire) -> list[str]:
    """Return the operations of a binding in a version."""
    return LEGACY if wire.is_legacy else [*OPERATIONS]


@dataclass(frozen=True)
class Cluster:
    """A gateway with two agents, all its bindings, and a key for each kind of caller."""

    gateway: RunningGateway
    wires: Mapping[str, Wire]
    push: PushConfigs
    client: Client
    views: TaskViews
    keys: Mapping[str, Headers]

    async def task(self, agent: str = "") -> str:
        """Start a task of the owner, give it a push config, and wait until its worker has nothing to do."""
        wire, owner = self.wires["JSON-RPC 1.0"], self.keys["owner"]
        sent = await wire.send("SendMessage", params_of("SendMessage"), owner, agent)
        task_id: str = sent.result["task"]["id"]
        config = "CreateTaskPushNotificationConfig"
        assert (await wire.send(config, params_of(config, task_id), owner, agent)).status == 200
        assert await self.client.get_workflow_handle_for(StandInTask.run, task_id).query(StandInTask.messages)
        return task_id

    async def artifact(self, task_id: str) -> str:
        """Give the task an artifact, and return its context."""
        snapshot = await self.views.load(task_id)
        assert snapshot
        create = Create(task_id, (NewPart("text", b"secret"),), complete=True)
        await self.gateway.artifacts.apply(context_key("alice", snapshot.view.context_id), "a", create)
        return snapshot.view.context_id

    async def all_of(self, task_id: str) -> tuple[object, ...]:
        """Return everything that a caller could change of a task."""
        description = await self.client.get_workflow_handle(task_id).describe()
        configs = await self.push.list_configs(task_id)
        return await self.views.load(task_id), description.history_length, description.status, configs


@asynccontextmanager
async def running_cluster(client: Client, views: TaskViews, path: Path) -> AsyncGenerator[Cluster]:
    """Serve a cluster. `path` is the directory of the key file."""
    queue, push = unique("cluster"), PushConfigs(redis_of(views))
    scheme, keys = key_scheme(path, KEYS)
    agents = [AGENT, OTHER]
    async with (
        stand_in_worker(client, queue),
        running_grpc_gateway(
            client, views, queue=queue, agents=agents, access=AccessControl(scheme), push=unheard(push)
        ) as served,
    ):
        wires = all_wires(served.http.http, served.channel)
        yield Cluster(served.http, wires, push, client, views, keys)
