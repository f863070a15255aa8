"""A gateway of two agents that access its tasks, all its bindings, and callers with keys of every kind."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.api_keys import ApiKeyScheme, add_key, new_key
from everloop.gateway.auth.schemes import AnyScheme
from everloop.stores.artifacts.interface import Create, NewPart
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.names import context_key
from tests.gateway.bindings.test_operations import RememberedPush
from tests.gateway.grpc_harness import running_grpc_gateway
from tests.gateway.harness import AGENT, RunningGateway, StandInTask, stand_in_worker, unique
from tests.gateway.wire_requests import CURRENT, LEGACY, Ask
from tests.gateway.wires import Wire, all_wires

OTHER = replace(AGENT, id="other", name="Other")

OPERATIONS = {
    "JSON-RPC 1.0": sorted(CURRENT),
    "REST 1.0": sorted(CURRENT),
    "gRPC 1.0": sorted(CURRENT),
    "JSON-RPC 0.3": sorted(LEGACY),
    "REST 0.3": sorted(LEGACY),
    "gRPC 0.3": sorted(LEGACY),
}
"""The bindings, and what there is on each."""

OF_NO_TASK = {"on_list_tasks", "on_get_extended_agent_card"}
"""Operations that name no task; each has a test of its own."""

EVERYTHING = [(name, operation) for name, operations in OPERATIONS.items() for operation in operations]
OF_A_TASK = [(name, operation) for name, operation in EVERYTHING if operation not in OF_NO_TASK]

DOWNLOADS = (
    "artifacts/{}",
    "artifacts/{}?taskId=x",
    "artifacts/{}/a",
    "artifacts/{}/a/parts/0",
    "artifacts/{}/b",
    "results/{}/c1",
)
"""Addresses of artifacts, but for the context; there is an artifact `a`, and no `b`."""

Headers = Mapping[str, str]


@dataclass(frozen=True)
class Cluster:
    """A gateway with two agents, all its bindings, and a key for each kind of caller."""

    gateway: RunningGateway
    wires: Mapping[str, Wire]
    push: RememberedPush
    client: Client
    views: TaskViews
    keys: Mapping[str, Headers]

    async def task(self, agent: str = "") -> str:
        """Start a task of the owner, give it a push config, and wait until its worker has nothing to do."""
        wire, owner = self.wires["JSON-RPC 1.0"], self.keys["owner"]
        started = await self.gateway.http.post(
            f"agents/{agent}" if agent else "/",
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": "SendMessage",
                "params": CURRENT["on_message_send"](Ask("")),
            },
            headers=owner,
        )
        task_id: str = started.json()["result"]["task"]["id"]
        config = Ask("on_create_task_push_notification_config", task_id, agent=agent)
        assert (await wire.send(config, owner)).status == 200
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
        """Return whatever a caller could change of a task."""
        description = await self.client.get_workflow_handle(task_id).describe()
        configs = [str(config) for (id_, _), config in self.push.configs.items() if id_ == task_id]
        return await self.views.load(task_id), description.history_length, description.status, configs


KEYS = {
    "owner": ("alice", ["tasks:read", "tasks:write"]),
    "stranger": ("mallory", ["tasks:read", "tasks:write"]),
    "reader": ("alice", ["tasks:read"]),
    "writer": ("alice", ["tasks:write"]),
    "bound": ("alice", ["tasks:read", "tasks:write", "agents:other"]),
}


@asynccontextmanager
async def running_cluster(client: Client, views: TaskViews, path: Path) -> AsyncGenerator[Cluster]:
    """Serve it; `path` is where the keys are kept."""
    queue, push, keys = unique("cluster"), RememberedPush(), dict[str, Headers]()
    for name, (owner, scopes) in KEYS.items():
        key, line = new_key(owner, scopes, None)
        add_key(path, line)
        keys[name] = {"X-API-Key": key}
    access = AccessControl(AnyScheme([ApiKeyScheme(path)]))
    agents = [AGENT, OTHER]
    async with (
        stand_in_worker(client, queue),
        running_grpc_gateway(client, views, queue=queue, agents=agents, access=access, push=push) as served,
    ):
        wires = all_wires(served.http.http, served.channel)
        yield Cluster(served.http, wires, push, client, views, keys)
