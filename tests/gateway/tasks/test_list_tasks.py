"""ListTasks over real HTTP: filters, pages, and who may see what (A2A 1.0 §3.1.4)."""

import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
import pytest_asyncio
from pydantic import JsonValue
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import Artifact, TaskState, TaskStatus, TaskView
from tests.gateway.harness import AGENT, Named, RunningGateway, running_gateway, unique

OTHER = Agent(id="other", name="Other", description="Another one.", model="scripted")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    """A gateway with two agents, which starts no tasks."""
    async with running_gateway(
        client, views, queue="none", agents=[AGENT, OTHER], access=AccessControl(Named())
    ) as gateway:
        yield gateway


@dataclass(frozen=True)
class Harness:
    """An owner of the test's own, who has tasks and lists them."""

    gateway: RunningGateway
    views: TaskViews
    owner: str

    async def create(
        self,
        state: TaskState = TaskState.COMPLETED,
        *,
        at: datetime | None = None,
        context_id: str = "",
        agent_id: str = AGENT.id,
        metadata: dict[str, JsonValue] | None = None,
    ) -> TaskView:
        """Create a task with three messages and an artifact, in this state; it stays as it is."""
        now = at or datetime.now(UTC)
        view = TaskView(
            task_id=unique("task"),
            context_id=context_id or unique("context"),
            owner=self.owner,
            agent_id=agent_id,
            created_at=now,
            run_id="run",
            version=1,
            status=TaskStatus(state=state, at=now, metadata=metadata or {}),
            history=tuple(UserMessage(message_id=f"m{n}", parts=(TextPart(text="hi"),)) for n in range(3)),
            artifacts=(Artifact(artifact_id="a", parts=(TextPart(text="x"),), complete=True),),
        )
        await self.views.restore(view)
        return view

    async def ask(self, path: str = "/", **params: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
        """Return the answer of ListTasks: result or error."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
        response = await self.gateway.http.post(path, json=body, headers={"owner": self.owner})
        return response.json()

    async def found(self, path: str = "/", **params: Any) -> list[str]:  # noqa: ANN401 -- JSON
        """Return the ids on one page, whose total is theirs."""
        result = (await self.ask(path, **params))["result"]
        assert result["totalSize"] == len(result["tasks"])
        return ids_of(result)

    async def pages(self, **params: Any) -> AsyncGenerator[dict[str, Any]]:  # noqa: ANN401 -- JSON
        """Yield the pages of a list."""
        token = ""
        while True:
            result = (await self.ask(pageToken=token, **params))["result"]
            yield result
            token = result["nextPageToken"]
            if not token:
                return


@pytest.fixture
def harness(served: RunningGateway, views: TaskViews) -> Harness:
    return Harness(served, views, unique("owner"))


def ids_of(result: Mapping[str, Any]) -> list[str]:
    return [task["id"] for task in result["tasks"]]


async def test_every_combination_of_filters_narrows_the_list(harness: Harness) -> None:
    """Context, state and time; newest first, totals of what matches, an empty token at the end."""
    begin, context_id = datetime.now(UTC), unique("context")
    tasks = [
        await harness.create(state, at=begin + timedelta(seconds=n), context_id=context)
        for n, (state, context) in enumerate(
            product((TaskState.COMPLETED, TaskState.INPUT_REQUIRED), (context_id, "", context_id))
        )
    ]
    tasks.reverse()
    middle = tasks[2].status.at

    for state, context, since in product(
        (None, TaskState.COMPLETED, TaskState.INPUT_REQUIRED), (None, context_id), (None, middle)
    ):
        filters: dict[str, str] = {}
        if state:
            filters["status"] = f"TASK_STATE_{state.name}"
        if context:
            filters["contextId"] = context
        if since:
            filters["statusTimestampAfter"] = since.isoformat()
        expected = [
            task.task_id
            for task in tasks
            if state in {None, task.status.state}
            and context in {None, task.context_id}
            and (since is None or task.status.at >= since)
        ]
        assert await harness.found(**filters) == expected
        paged = [result async for result in harness.pages(pageSize=1, **filters)]
        assert [task_id for result in paged for task_id in ids_of(result)] == expected
        assert {result["totalSize"] for result in paged} == {len(expected)}
        assert [result["pageSize"] for result in paged] == [1] * len(paged)


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
    """Fields without a value are left out of both, on both bindings; what a page has to have is there."""
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


async def test_a_token_shows_nobody_anything_of_others(harness: Harness) -> None:
    """With another caller, agent or filter it is a place in that list, and no more."""
    begin, stranger = datetime.now(UTC), replace(harness, owner=unique("stranger"))
    for n in range(3):
        await harness.create(at=begin - timedelta(seconds=n))
    older = await stranger.create(at=begin - timedelta(seconds=9))
    await stranger.create(at=begin + timedelta(seconds=9))
    token = (await harness.ask(pageSize=1))["result"]["nextPageToken"]
    assert ids_of((await stranger.ask(pageToken=token))["result"]) == [older.task_id]
    assert ids_of((await harness.ask(f"/agents/{OTHER.id}/", pageToken=token))["result"]) == []
    assert ids_of((await harness.ask(pageToken=token, status="TASK_STATE_FAILED"))["result"]) == []
