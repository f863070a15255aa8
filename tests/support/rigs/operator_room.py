"""Operators of a gateway with authentication: their view of tasks, and the records of their actions."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from a2a.client import Client as A2AClient
from temporalio.client import Client as TemporalClient

from everloop.agents.registry import AgentRegistry
from everloop.client import Client, Obstacle
from everloop.gateway.extension.operator.diagnosis import SLOW, StuckReason
from everloop.gateway.extension.operator.overview import Overview
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.gateway.tasks.workflow_runs import Runs
from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.gateway.harness import key_scheme
from tests.support.a2a_client import connected
from tests.support.agents.operator import agent
from tests.support.rigs.deployment import Gateway, running_deployment
from tests.support.rigs.operator import Harness, until
from tests.support.servers.scripted_openai import ScriptedOpenAI

MODULE = "tests.support.agents.operator"

KEYS = {
    "alice": ("alice", ["tasks:read", "tasks:write"]),
    "boss": ("alice", ["tasks:read", "tasks:write", "admin"]),
    "root": ("root", ["admin"]),
    "bound": ("bob", ["admin", "agents:patient"]),
}


@dataclass
class Room:
    """A gateway with authentication, its worker, and their callers."""

    harness: Harness
    keys: Mapping[str, Mapping[str, str]]

    @property
    def gateway(self) -> Gateway:
        return self.harness.gateway

    @asynccontextmanager
    async def client(self, agent: str) -> AsyncGenerator[A2AClient]:
        """Return Alice's client of an agent."""
        async with connected(f"{self.gateway.url}/agents/{agent}", headers=self.keys["alice"]) as client:
            yield client

    def of(self, caller: str) -> Client:
        """Return Everloop's own client with the key of a caller."""
        return Client(self.gateway.url, api_key=self.keys[caller]["X-API-Key"])

    async def stuck(self, task_id: str) -> Obstacle:
        """Wait until the list of stuck tasks has this task, and return the reason."""

        async def look() -> Obstacle | None:
            async with self.of("root") as root:
                listed = [task async for task in root.operator_tasks(stuck=True)]
            return next((task.stuck for task in listed if task.id == task_id), None)

        found = await until(look)
        assert found
        return found

    async def seen_later(self, task_id: str) -> StuckReason | None:
        """Return a gateway's report about a task in a minute."""
        everloop = self.harness.everloop
        client = await TemporalClient.connect(everloop.temporal_address, data_converter=WIRE_DATA_CONVERTER)
        async with connect_redis(everloop.redis_url) as redis:
            overview = Overview(
                client=client,
                agents=AgentRegistry([agent]),
                views=TaskViews(redis),
                tasks=Tasks(client, everloop.environment["EVERLOOP_TASK_QUEUE"]),
                runs=Runs(client),
                clock=lambda: datetime.now(UTC) + SLOW,
            )
            return (await overview.find(task_id)).stuck

    async def done_by_operators(self, task_id: str) -> list[Mapping[str, Any]]:
        """Return the operators' actions that Alice reads in her task's events; each has a time."""
        async with self.of("alice") as alice:
            events = [event async for event in alice.events(task_id)]
        assert all(event.at for event in events)
        return [event.data for event in events if event.data.get("by")]

    def logged(self, task_id: str) -> list[tuple[object, object]]:
        """Return action and operator of the gateways' log lines about the task."""
        lines = self.harness.everloop.logs()
        acted = (line for line in lines if line.get("event") == "operator acted on a task")
        return [(line["action"], line["operator"]) for line in acted if line.get("task_id") == task_id]


@asynccontextmanager
async def running_room(directory: Path) -> AsyncGenerator[Room]:
    """Start a room without workers."""
    _, keys = key_scheme(directory / "keys", KEYS)
    async with (
        ScriptedOpenAI() as model,
        running_deployment(
            directory,
            model.base_url,
            agents=f"{MODULE}:agent,{MODULE}:patient",
            EVERLOOP_AUTH="api-key",
            EVERLOOP_API_KEYS_FILE=str(directory / "keys"),
        ) as everloop,
    ):
        harness = Harness(everloop, await everloop.add_gateway())
        model.script = harness.answer
        yield Room(harness, keys)
