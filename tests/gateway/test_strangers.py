"""Strangers, and callers of other agents, find no task that is not theirs: by no operation, on no binding."""

from collections.abc import AsyncGenerator
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.server.request_handlers.request_handler import RequestHandler
from temporalio.client import Client

from everloop.gateway.operations.authorized import SCOPES
from everloop.stores.views.interface import TaskViews
from tests.gateway.stage import unique
from tests.gateway.town import DOWNLOADS, OF_A_TASK, OPERATIONS, Town, running_town
from tests.gateway.wire_requests import CURRENT, Ask
from tests.gateway.wires import Wire

AT_AN_AGENT = [each for each in OF_A_TASK if each[0] != "gRPC 0.3"]
KNOW_REFERENCES = [name for name in OPERATIONS if name not in {"REST 0.3", "gRPC 0.3"}]
LIST_TASKS = [name for name, operations in OPERATIONS.items() if "on_list_tasks" in operations]


def like(task_id: str) -> str:
    """Return an id of the same form that no task has."""
    return f"{task_id[: -len(str(uuid4()))]}{uuid4()}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def town(
    client: Client, views: TaskViews, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Town]:
    async with running_town(client, views, tmp_path_factory.mktemp("keys") / "keys") as town:
        yield town


@pytest.fixture
def wire(request: pytest.FixtureRequest, town: Town) -> Wire:
    return town.wires[request.param]


def test_no_operation_is_forgotten(town: Town) -> None:
    """The SDK's interface, the scopes and the tables of these tests name the same operations."""
    promised = RequestHandler.__abstractmethods__

    assert set(SCOPES) == promised
    assert set(OPERATIONS) == set(town.wires)
    for name, operations in OPERATIONS.items():
        left_out = {"on_list_tasks"} if name.endswith("0.3") else set[str]()  # 0.3 has none
        assert set(operations) == promised - left_out


@pytest.mark.parametrize(("wire", "operation"), OF_A_TASK, indirect=["wire"])
async def test_a_stranger_finds_no_task(town: Town, wire: Wire, operation: str) -> None:
    """The answer is byte for byte the one for a task that nobody has, and nothing of the task changes."""
    task_id = await town.task()
    nobodys = like(task_id)
    before = await town.all_of(task_id)

    theirs = await wire.send(Ask(operation, task_id), town.keys["stranger"])
    missing = await wire.send(Ask(operation, nobodys), town.keys["stranger"])

    assert wire.is_not_found(theirs), theirs
    assert theirs.without(task_id) == missing.without(nobodys)
    assert await town.all_of(task_id) == before


@pytest.mark.parametrize(("wire", "operation"), AT_AN_AGENT, indirect=["wire"])
@pytest.mark.parametrize("agent", ["", "other"])
async def test_another_agents_address_has_no_such_task(
    town: Town, wire: Wire, agent: str, operation: str
) -> None:
    """Also for the owner: tasks are where their agent is, at its address or as its tenant."""
    at, elsewhere = agent, "" if agent else "other"
    task_id = await town.task(at)
    nobodys = like(task_id)
    before = await town.all_of(task_id)

    theirs = await wire.send(Ask(operation, task_id, agent=elsewhere), town.keys["owner"])
    missing = await wire.send(Ask(operation, nobodys, agent=elsewhere), town.keys["owner"])
    here = await wire.send(Ask("on_get_task", task_id, agent=at), town.keys["owner"])

    assert wire.is_not_found(theirs), theirs
    assert theirs.without(task_id) == missing.without(nobodys)
    assert await town.all_of(task_id) == before
    assert here.status in {200, "OK"}


@pytest.mark.parametrize("wire", KNOW_REFERENCES, indirect=True)
async def test_a_stranger_cannot_refer_to_a_task(town: Town, wire: Wire) -> None:
    """Its results would reach the stranger's own agent."""
    task_id = await town.task()
    nobodys = like(task_id)

    for operation in ("on_message_send", "on_message_send_stream"):
        theirs = await wire.send(Ask(operation, refers_to=(task_id,)), town.keys["stranger"])
        missing = await wire.send(Ask(operation, refers_to=(nobodys,)), town.keys["stranger"])
        assert wire.is_not_found(theirs), theirs
        assert theirs.without(task_id) == missing.without(nobodys)


@pytest.mark.parametrize("wire", LIST_TASKS, indirect=True)
async def test_a_stranger_lists_nothing(town: Town, wire: Wire) -> None:
    """Neither all tasks nor those of a context show one of another owner, or of another agent."""
    task_id = (await town.task()).encode()

    async def listed(caller: str, agent: str = "") -> bytes:
        return (await wire.send(Ask("on_list_tasks", agent=agent), town.keys[caller])).body

    assert task_id in await listed("owner")
    assert task_id not in await listed("stranger")
    assert task_id not in await listed("owner", "other")


async def test_what_strangers_call_the_same_is_not_the_same(town: Town) -> None:
    """The same message in the same context, even with one Idempotency-Key, is a task of another owner."""
    params = {**CURRENT["on_message_send"](Ask(""))}
    params["message"] |= {"contextId": unique("context")}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}

    async def sent(caller: str) -> str:
        headers = {**town.keys[caller], "Idempotency-Key": "once"}
        answer = await town.gateway.http.post("/", json=body, headers=headers)
        return str(answer.json()["result"]["task"]["id"])

    first, again, theirs = await sent("owner"), await sent("owner"), await sent("stranger")

    assert first == again
    assert first != theirs


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
@pytest.mark.parametrize("path", DOWNLOADS)
async def test_a_stranger_downloads_nothing(town: Town, verb: str, path: str) -> None:
    """Their address answers as one that never was."""
    context, nobodys = await town.artifact(await town.task()), str(uuid4())

    theirs = await town.gateway.http.request(verb, path.format(context), headers=town.keys["stranger"])
    missing = await town.gateway.http.request(verb, path.format(nobodys), headers=town.keys["stranger"])

    assert theirs.status_code == missing.status_code
    assert theirs.text.replace(context, "") == missing.text.replace(nobodys, "")
    assert "secret" not in theirs.text


async def test_a_stranger_approves_nothing(town: Town) -> None:
    """Nor does the owner: it takes a scope that neither has."""
    task_id = await town.task()
    before = await town.all_of(task_id)

    for caller in ("stranger", "owner", "bound"):
        for method, path in (("GET", "approvals"), ("POST", f"approvals/{task_id}/q")):
            answer = await town.gateway.http.request(method, path, headers=town.keys[caller])
            assert (answer.status_code, task_id in answer.text) == (403, False)
    assert await town.all_of(task_id) == before


async def test_the_owner_downloads_what_the_stranger_cannot(town: Town) -> None:
    """So that the test before is one."""
    context = await town.artifact(await town.task())

    answer = await town.gateway.http.get(f"artifacts/{context}/a/parts/0", headers=town.keys["owner"])

    assert (answer.status_code, answer.text) == (200, "secret")
