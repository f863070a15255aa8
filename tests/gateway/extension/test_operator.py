"""Operators' addresses on tasks without a worker: broken code, several pages, unusual owners."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowFailureError

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import REASON, StatusChanged
from everloop.workflows.contract.messages import AgentMessage
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import RunningGateway, key_scheme, running_gateway, unique
from tests.gateway.tasks.silent_tasks import BUG, NAMED, defective_worker, start
from tests.support.rigs.operator import until

STRANGE = "CN=Ärzte & Söhne, O=100% (a; b)"
KEYS = {
    "root": ("root", ["admin"]),
    "strange": (STRANGE, ["tasks:read", "tasks:write"]),
    "other": ("other", ["tasks:read", "tasks:write"]),
}
BASE = "/everloop/v1/operator"


@dataclass(frozen=True)
class Site:
    """A gateway with an agent that has no worker."""

    http: httpx.AsyncClient
    keys: Mapping[str, Mapping[str, str]]
    agent_id: str

    async def send(self, caller: str) -> str:
        message = {"role": "ROLE_USER", "messageId": str(uuid4()), "parts": [{"text": "Hi."}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        sent = await self.http.post("/", json=body, headers=self.keys.get(caller, {}))
        return str(sent.json()["result"]["task"]["id"])

    async def listed(self, **query: str) -> dict[str, Any]:
        query = {"agent": self.agent_id, **query}
        answered = await self.http.get(f"{BASE}/tasks", params=query, headers=self.keys.get("root", {}))
        assert answered.status_code == 200, answered.text
        return answered.json()

    async def found(self, **query: str) -> set[str]:
        return {task["id"] for task in (await self.listed(**query))["tasks"]}


def agent_of() -> Agent:
    return Agent(id=unique("agent")[:60], name="Agent", description="Waits.", model="scripted")


@pytest_asyncio.fixture(loop_scope="session")
async def site(
    client: Client, views: TaskViews, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Site]:
    scheme, keys = key_scheme(tmp_path_factory.mktemp("keys") / "keys", KEYS)
    agent = agent_of()
    async with running_gateway(
        client, views, queue=unique("nobody"), agent=agent, access=AccessControl(scheme)
    ) as gateway:
        yield Site(gateway.http, keys, agent.id)


async def test_a_task_whose_code_fails_says_so(client: Client, views: TaskViews, site: Site) -> None:
    """No action is offered, and the reason contains nothing of the task's content."""
    queue = unique("broken")
    async with defective_worker(client, queue):
        task_id = await start(client, views, queue, BUG)

        async def stuck() -> dict[str, Any] | None:
            shown = await site.http.get(f"{BASE}/tasks/{task_id}", headers=site.keys["root"])
            return shown.json()["task"]["stuck"]

        found = await until(stuck)

    assert found
    assert found["why"] == (
        "its workflow's code fails at each attempt: workflow worker unhandled failure (RuntimeError); "
        "roll out mended code, and it goes on by itself"
    )
    assert found["actions"] == []


async def test_a_task_that_failed_can_go_back_unless_a_limit_ended_it(
    client: Client, views: TaskViews, site: Site
) -> None:
    """A task that a limit ended would end there again.

    The reason comes from its last status, or else from Temporal.
    """
    queue = unique("failed")
    async with defective_worker(client, queue):
        named, ended = [await start(client, views, queue, prompt) for prompt in (NAMED, "wait")]
        with pytest.raises(WorkflowFailureError):
            await client.get_workflow_handle(named).result()
        workflow = client.get_workflow_handle(ended)
        run_id = (await workflow.describe()).run_id
        await workflow.terminate()
    failed = await site.http.get(f"{BASE}/tasks/{named}", headers=site.keys["root"])
    at_limit = StatusChanged(
        version=1,
        state=TaskState.FAILED,
        at=datetime.now(UTC),
        message=AgentMessage(message_id="m", parts=(), metadata={REASON: failures.ITERATION_LIMIT}),
    )
    await views.publish(ended, run_id, [at_limit])
    limited = await site.http.get(f"{BASE}/tasks/{ended}", headers=site.keys["root"])
    refused = await site.http.post(f"{BASE}/tasks/{ended}/reset", json={}, headers=site.keys["root"])

    stuck = failed.json()["task"]["stuck"]
    assert (stuck["why"], stuck["actions"]) == ("no such model", ["reset"])
    assert (limited.json()["task"]["state"], limited.json()["task"]["stuck"]) == ("failed", None)
    assert refused.status_code == 409
    assert "start a new task" in refused.json()["error"]["message"]


async def test_the_task_of_a_sub_agent_is_cancelled_by_the_call_that_asked_it(
    client: Client, views: TaskViews, site: Site
) -> None:
    """The parent task would take its end for an answer."""
    root = unique("root")
    child = await start(client, views, unique("nobody"), task_id=f"{root}/r00001-1f")
    path = f"{BASE}/tasks/{quote(child, safe='')}/cancel"
    refused = await site.http.post(path, json={}, headers=site.keys["root"])

    assert refused.status_code == 409
    assert f"skip its call in task {root!r}" in refused.json()["error"]["message"]


async def test_lists_have_pages_and_filters(site: Site) -> None:
    """An owner may have any printable name; a token of another list is refused."""
    ids = {await site.send("strange"), await site.send("strange"), await site.send("other")}
    await until(site.found, does=lambda found: found >= ids)
    first = await site.listed(pageSize="2")
    second = await site.listed(pageSize="2", pageToken=first["nextPageToken"])
    whole = {task["id"] for task in (*first["tasks"], *second["tasks"])}
    of_strange = (await site.listed(owner=STRANGE))["tasks"]
    submitted, failed = await site.found(state="submitted"), await site.found(state="failed")
    wrong = await site.http.get(f"{BASE}/tasks", params={"pageToken": "bm9uZQ=="}, headers=site.keys["root"])

    unsafe = await site.http.get(
        f"{BASE}/tasks", params={"owner": "a' OR Owner != 'a"}, headers=site.keys["root"]
    )
    foreign = await site.http.get(
        f"{BASE}/tasks", params={"pageToken": first["nextPageToken"]}, headers=site.keys["root"]
    )

    odd = await site.http.get(f"{BASE}/tasks", params={"agent": "a\0"}, headers=site.keys["root"])

    assert {each.status_code for each in (wrong, unsafe, foreign, odd)} == {400}
    assert len(first["tasks"]) == 2
    assert (whole, second["nextPageToken"]) == (ids, "")
    assert {task["owner"] for task in of_strange} == {STRANGE}
    assert len(of_strange) == 2
    assert (submitted, failed) == (ids, set())
    assert "pageToken" in wrong.json()["error"]["message"]


async def test_without_authentication_everybody_is_the_operator_of_what_is_nobodys(
    client: Client, views: TaskViews, site: Site
) -> None:
    """Tasks of owners are not found, and cannot be requested."""
    foreign = await site.send("other")
    await until(site.found, does=lambda found: foreign in found)
    agent = agent_of()
    async with running_gateway(client, views, queue=unique("nobody"), agent=agent) as gateway:
        own = await _open(gateway, agent.id)
        shown = await gateway.http.get(f"{BASE}/tasks/{foreign}")
        acted = await gateway.http.post(f"{BASE}/tasks/{foreign}/cancel", json={})
        named = await gateway.http.get(f"{BASE}/tasks", params={"owner": "other"})
        listed = (await gateway.http.get(f"{BASE}/tasks", params={"agent": site.agent_id})).json()
        system = (await gateway.http.get(f"{BASE}/system")).json()
        canceled = await gateway.http.post(f"{BASE}/tasks/{own}/cancel", json={})

    assert (shown.status_code, acted.status_code, named.status_code) == (404, 404, 403)
    assert listed["tasks"] == []
    assert system["tasks"]["submitted"] >= 1
    assert canceled.status_code == 200, canceled.text
    assert canceled.json()["done"] == "the task was asked to stop"


async def _open(gateway: RunningGateway, agent_id: str) -> str:
    """Start a task without an owner, and wait until it is listed."""
    site = Site(gateway.http, {}, agent_id)
    task_id = await site.send("")
    await until(site.found, does=lambda found: task_id in found)
    return task_id
