"""ListTasks over real HTTP: times, and how tasks are written (A2A 1.0 §3.1.4); stores test the lists."""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from pydantic import JsonValue
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import Artifact, TaskState, TaskStatus, TaskView
from tests.gateway.harness import Named, RunningGateway, a_view, running_gateway, unique


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    """A gateway that starts no tasks."""
    async with running_gateway(client, views, queue="none", access=AccessControl(Named())) as gateway:
        yield gateway


@dataclass(frozen=True)
class Harness:
    """An owner of the test's own, who has tasks and lists them."""

    gateway: RunningGateway
    views: TaskViews
    owner: str

    async def create(
        self, *, at: datetime | None = None, metadata: dict[str, JsonValue] | None = None
    ) -> TaskView:
        """Create a task that has completed, with a message and an artifact."""
        status = TaskStatus(state=TaskState.COMPLETED, at=at or datetime.now(UTC), metadata=metadata or {})
        artifact = Artifact(artifact_id="a", parts=(TextPart(text="x"),), complete=True)
        view = a_view(owner=self.owner, status=status, artifacts=(artifact,))
        await self.views.restore(view)
        return view

    async def ask(self, **params: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
        """Return the answer of ListTasks: result or error."""
        return (await self.gateway.call("ListTasks", params, owner=self.owner)).json()

    async def found(self, **params: Any) -> list[str]:  # noqa: ANN401 -- JSON
        """Return the ids on one page."""
        return [task["id"] for task in (await self.ask(**params))["result"]["tasks"]]


@pytest.fixture
def harness(served: RunningGateway, views: TaskViews) -> Harness:
    return Harness(served, views, unique("owner"))


async def test_the_time_of_a_task_as_it_is_shown_finds_it_again(harness: Harness) -> None:
    """The time "after" which to look is included, to the microsecond, as the specification says."""
    at = datetime(2026, 3, 4, 5, 6, 7, 123457, tzinfo=UTC)
    task = await harness.create(at=at)
    (shown,) = (await harness.ask())["result"]["tasks"]
    time = shown["status"]["timestamp"]
    assert time.startswith("2026-03-04T05:06:07.123457")
    assert await harness.found(statusTimestampAfter=time) == [task.task_id]
    assert await harness.found(statusTimestampAfter="2026-03-04T05:06:07.123457001Z") == []
    assert await harness.found(statusTimestampAfter="2026-03-04T07:06:07.123457+02:00") == [task.task_id]


async def test_a_listed_task_is_written_as_it_is_read(harness: Harness) -> None:
    """Fields without a value are left out of both, on both bindings; required fields of a page are there."""
    view = await harness.create()
    headers = {"owner": harness.owner}
    over_jsonrpc = (await harness.ask(includeArtifacts=True))["result"]
    listed = await harness.gateway.http.get("/tasks?includeArtifacts=true", headers=headers)
    read = (await harness.gateway.http.get(f"/tasks/{view.task_id}", headers=headers)).json()
    assert over_jsonrpc == listed.json()
    assert over_jsonrpc == {"tasks": [read], "nextPageToken": "", "pageSize": 50, "totalSize": 1}
    assert "metadata" not in read


async def test_counts_are_whole_numbers(harness: Harness) -> None:
    """JSON has no other way to tell them from measures; clients in typed languages care."""
    usage: JsonValue = {"inputTokens": 12, "outputTokens": 3, "cost": 0.5, "text": '\\ " 1.0,'}
    view = await harness.create(metadata={"usage": usage})
    headers = {"owner": harness.owner}
    for path in (f"/tasks/{view.task_id}", "/tasks"):
        text = (await harness.gateway.http.get(path, headers=headers)).text
        assert re.search(r'"inputTokens": ?12[,}]', text)
        assert r'"\\ \" 1.0,"' in text
    listed = (await harness.ask())["result"]["tasks"][0]["metadata"]["usage"]
    assert {name: type(value) for name, value in listed.items()} == {
        "inputTokens": int,
        "outputTokens": int,
        "cost": float,
        "text": str,
    }
