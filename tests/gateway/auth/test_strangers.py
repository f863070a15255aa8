"""Strangers, and callers of other agents, find no task that is not theirs: by no operation, on no binding."""

from collections.abc import AsyncGenerator
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.server.request_handlers.request_handler import RequestHandler
from temporalio.client import Client

from everloop.gateway.operations.operation import OPERATIONS as SERVED
from everloop.stores.views.interface import TaskViews
from tests.gateway.auth.cluster import DOWNLOADS, OF_A_TASK, OPERATIONS, Cluster, running_cluster
from tests.gateway.harness import unique
from tests.gateway.wire_requests import CURRENT, Ask
from tests.gateway.wires import Wire

AT_AN_AGENT = [each for each in OF_A_TASK if each[0] != "gRPC 0.3"]
KNOW_REFERENCES = [name for name in OPERATIONS if name not in {"REST 0.3", "gRPC 0.3"}]
LIST_TASKS = [name for name, operations in OPERATIONS.items() if "on_list_tasks" in operations]


def like(task_id: str) -> str:
    """Return an id of the same form that no task has."""
    return f"{task_id[: -len(str(uuid4()))]}{uuid4()}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(
    client: Client, views: TaskViews, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Cluster]:
    async with running_cluster(client, views, tmp_path_factory.mktemp("keys") / "keys") as cluster:
        yield cluster


@pytest.fixture
def wire(request: pytest.FixtureRequest, cluster: Cluster) -> Wire:
    return cluster.wires[request.param]


def test_no_operation_is_forgotten(cluster: Cluster) -> None:
    """The SDK's interface, the scopes and the tables of these tests name the same operations."""
    promised = RequestHandler.__abstractmethods__

    assert {each.method for each in SERVED.values()} == promised
    assert set(OPERATIONS) == set(cluster.wires)
    for name, operations in OPERATIONS.items():
        left_out = {"on_list_tasks"} if name.endswith("0.3") else set[str]()  # 0.3 has none
        assert set(operations) == promised - left_out


@pytest.mark.parametrize(("wire", "operation"), OF_A_TASK, indirect=["wire"])
async def test_a_stranger_finds_no_task(cluster: Cluster, wire: Wire, operation: str) -> None:
    """The answer is byte for byte the one for a task that nobody has, and nothing of the task changes."""
    task_id = await cluster.task()
    nobodys = like(task_id)
    before = await cluster.all_of(task_id)

    theirs = await wire.send(Ask(operation, task_id), cluster.keys["stranger"])
    missing = await wire.send(Ask(operation, nobodys), cluster.keys["stranger"])

    assert wire.is_not_found(theirs), theirs
    assert theirs.without(task_id) == missing.without(nobodys)
    assert await cluster.all_of(task_id) == before


@pytest.mark.parametrize(("wire", "operation"), AT_AN_AGENT, indirect=["wire"])
@pytest.mark.parametrize("agent", ["", "other"])
async def test_another_agents_address_has_no_such_task(
    cluster: Cluster, wire: Wire, agent: str, operation: str
) -> None:
    """Also for the owner: tasks are where their agent is, at its address or as its tenant."""
    at, elsewhere = agent, "" if agent else "other"
    task_id = await cluster.task(at)
    nobodys = like(task_id)
    before = await cluster.all_of(task_id)

    theirs = await wire.send(Ask(operation, task_id, agent=elsewhere), cluster.keys["owner"])
    missing = await wire.send(Ask(operation, nobodys, agent=elsewhere), cluster.keys["owner"])
    here = await wire.send(Ask("on_get_task", task_id, agent=at), cluster.keys["owner"])

    assert wire.is_not_found(theirs), theirs
    assert theirs.without(task_id) == missing.without(nobodys)
    assert await cluster.all_of(task_id) == before
    assert here.status in {200, "OK"}


@pytest.mark.parametrize("wire", KNOW_REFERENCES, indirect=True)
async def test_a_stranger_cannot_refer_to_a_task(cluster: Cluster, wire: Wire) -> None:
    """Its results would reach the stranger's own agent."""
    task_id = await cluster.task()
    nobodys = like(task_id)

    for operation in ("on_message_send", "on_message_send_stream"):
        theirs = await wire.send(Ask(operation, refers_to=(task_id,)), cluster.keys["stranger"])
        missing = await wire.send(Ask(operation, refers_to=(nobodys,)), cluster.keys["stranger"])
        assert wire.is_not_found(theirs), theirs
        assert theirs.without(task_id) == missing.without(nobodys)


@pytest.mark.parametrize("wire", LIST_TASKS, indirect=True)
async def test_a_stranger_lists_nothing(cluster: Cluster, wire: Wire) -> None:
    """Neither all tasks nor those of a context show one of another owner, or of another agent."""
    task_id = (await cluster.task()).encode()

    async def listed(caller: str, agent: str = "") -> bytes:
        return (await wire.send(Ask("on_list_tasks", agent=agent), cluster.keys[caller])).body

    assert task_id in await listed("owner")
    assert task_id not in await listed("stranger")
    assert task_id not in await listed("owner", "other")


async def test_what_strangers_call_the_same_is_not_the_same(cluster: Cluster) -> None:
    """The same message in the same context, even with one Idempotency-Key, is a task of another owner."""
    params = {**CURRENT["on_message_send"](Ask(""))}
    params["message"] |= {"contextId": unique("context")}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}

    async def sent(caller: str) -> str:
        headers = {**cluster.keys[caller], "Idempotency-Key": "once"}
        answer = await cluster.gateway.http.post("/", json=body, headers=headers)
        return str(answer.json()["result"]["task"]["id"])

    first, again, theirs = await sent("owner"), await sent("owner"), await sent("stranger")

    assert first == again
    assert first != theirs


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
@pytest.mark.parametrize("path", DOWNLOADS)
async def test_a_stranger_downloads_nothing(cluster: Cluster, verb: str, path: str) -> None:
    """Their address answers as one that never was."""
    context, nobodys = await cluster.artifact(await cluster.task()), str(uuid4())

    theirs = await cluster.gateway.http.request(verb, path.format(context), headers=cluster.keys["stranger"])
    missing = await cluster.gateway.http.request(verb, path.format(nobodys), headers=cluster.keys["stranger"])

    assert theirs.status_code == missing.status_code
    assert theirs.text.replace(context, "") == missing.text.replace(nobodys, "")
    assert "secret" not in theirs.text


async def test_a_stranger_approves_nothing(cluster: Cluster) -> None:
    """Nor does the owner: it takes a scope that neither has."""
    task_id = await cluster.task()
    before = await cluster.all_of(task_id)

    for caller in ("stranger", "owner", "bound"):
        for method, path in (("GET", "approvals"), ("POST", f"approvals/{task_id}/q")):
            answer = await cluster.gateway.http.request(method, path, headers=cluster.keys[caller])
            assert (answer.status_code, task_id in answer.text) == (403, False)
    assert await cluster.all_of(task_id) == before


async def test_the_owner_downloads_what_the_stranger_cannot(cluster: Cluster) -> None:
    """So that the test before is one."""
    context = await cluster.artifact(await cluster.task())

    answer = await cluster.gateway.http.get(f"artifacts/{context}/a/parts/0", headers=cluster.keys["owner"])

    assert (answer.status_code, answer.text) == (200, "secret")
