"""Callers without a right to a task do not find it: by no operation, on no binding."""

import re
from urllib.parse import quote
from uuid import uuid4

import pytest
from a2a.types import a2a_pb2 as pb

from everloop.gateway.http.http_calls import RawRoute
from everloop.workflows.contract.http_extension import HTTP_BASE, Address
from tests.gateway.auth.cluster import DOWNLOADS, OF_NO_TASK, Cluster, operations_of
from tests.gateway.auth.test_scopes import is_not_found
from tests.gateway.harness import unique
from tests.support.wires.operations import OPERATIONS, params_of
from tests.support.wires.wires import Wire


def like(task_id: str) -> str:
    """Return an id of the same form that no task has."""
    return f"{task_id[: -len(str(uuid4()))]}{uuid4()}"


def test_no_operation_is_forgotten() -> None:
    """The definition of the service and the table of these tests name the same operations."""
    assert set(OPERATIONS) == set(pb.DESCRIPTOR.services_by_name["A2AService"].methods_by_name)


async def _finds_nothing(cluster: Cluster, wire: Wire, task_id: str, caller: str, agent: str = "") -> None:
    """Assert that the answers equal those for an unknown task, and that the task does not change."""
    before, nobodys, key = await cluster.all_of(task_id), like(task_id), cluster.keys[caller]
    for operation in set(operations_of(wire)) - OF_NO_TASK:
        for below in ("", "/x"):  # a sub-agent's
            theirs, missing = [
                await wire.send(operation, params_of(operation, each + below), key, agent)
                for each in (task_id, nobodys)
            ]
            # Names of resources in 0.3 have no room for a sub-agent's id.
            assert is_not_found(theirs) or (below and wire.name == "gRPC 0.3"), (operation, theirs)
            assert theirs.without(task_id) == missing.without(nobodys)
    assert await cluster.all_of(task_id) == before


async def test_a_stranger_finds_no_task(cluster: Cluster, wire: Wire) -> None:
    """By no operation that names one."""
    await _finds_nothing(cluster, wire, await cluster.task(), "stranger")


@pytest.mark.parametrize("agent", ["", "other"])
async def test_another_agents_address_has_no_such_task(cluster: Cluster, wire: Wire, agent: str) -> None:
    """Also for the owner: a task is found only at its agent's address or as its tenant."""
    if wire.name == "gRPC 0.3":
        return  # it serves the default agent only
    task_id = await cluster.task(agent)
    await _finds_nothing(cluster, wire, task_id, "owner", "" if agent else "other")
    here = await wire.send("GetTask", {"id": task_id}, cluster.keys["owner"], agent)
    assert here.status in {200, "OK"}


async def test_a_stranger_cannot_refer_to_a_task(cluster: Cluster, wire: Wire) -> None:
    """A reference would give the task's results to the stranger's own agent."""
    if wire.name in {"REST 0.3", "gRPC 0.3"}:
        return  # they know no references
    task_id = await cluster.task()
    nobodys = like(task_id)
    for operation in ("SendMessage", "SendStreamingMessage"):
        theirs, missing = [
            await wire.send(operation, params_of(operation, refers_to=(each,)), cluster.keys["stranger"])
            for each in (task_id, nobodys)
        ]
        assert is_not_found(theirs), theirs
        assert theirs.without(task_id) == missing.without(nobodys)


async def test_a_stranger_lists_nothing(cluster: Cluster, wire: Wire) -> None:
    """Lists of all tasks and of a context leave out tasks of another owner or agent."""
    if wire.is_legacy:
        return  # there is no such operation
    task_id = (await cluster.task()).encode()

    async def listed(caller: str, agent: str = "") -> bytes:
        return (await wire.send("ListTasks", {}, cluster.keys[caller], agent)).body

    assert task_id in await listed("owner")
    assert task_id not in await listed("stranger")
    assert task_id not in await listed("owner", "other")


async def test_what_strangers_call_the_same_is_not_the_same(cluster: Cluster) -> None:
    """The same message, context and Idempotency-Key of another owner start a separate task."""
    params = params_of("SendMessage")
    params["message"] |= {"contextId": unique("context")}

    async def sent(caller: str) -> str:
        headers = {**cluster.keys[caller], "Idempotency-Key": "once"}
        answer = await cluster.gateway.call("SendMessage", params, **headers)
        return str(answer.json()["result"]["task"]["id"])

    first, again, theirs = await sent("owner"), await sent("owner"), await sent("stranger")
    assert first == again
    assert first != theirs


async def test_a_stranger_downloads_nothing(cluster: Cluster) -> None:
    """The address answers as one that never existed; the owner downloads the content."""
    context, nobodys = await cluster.artifact(await cluster.task()), str(uuid4())
    http = cluster.gateway.http
    for path in DOWNLOADS:
        for verb in ("GET", "HEAD"):
            theirs, missing = [
                await http.request(verb, path.format(each), headers=cluster.keys["stranger"])
                for each in (context, nobodys)
            ]
            assert theirs.status_code == missing.status_code, path
            assert theirs.text.replace(context, "") == missing.text.replace(nobodys, "")
            assert "secret" not in theirs.text
    answer = await http.get(f"artifacts/{context}/a/parts/0", headers=cluster.keys["owner"])
    assert (answer.status_code, answer.text) == (200, "secret")


BELOW = ("", "/x", "/x/y", "/")
"""Addresses behind the id of a task, and the path to a sub-agent's."""


@pytest.mark.parametrize("caller", ["stranger", "bound"])
async def test_no_address_beside_a2a_tells_of_a_task(cluster: Cluster, caller: str) -> None:
    """The answers for a task and its sub-agents are those for a task that does not exist."""
    task_id = await cluster.task()
    nobodys, http = like(task_id), cluster.gateway.http
    named = [route for route in cluster.gateway.app.routes if isinstance(route, RawRoute)]
    paths = {
        (route.path.replace("{task}", "{id}"), verb)
        for route in named
        for verb in route.methods or ()
        if route.path.startswith(HTTP_BASE) and re.search(r"/(tasks|approvals)/", route.path)
    }
    served = {(route.path, verb) for route in named for verb in route.methods or ()}
    assert {(HTTP_BASE + address.path, address.method) for address in Address} <= served
    assert len(paths) > 12
    for path, verb in sorted(paths):
        for below in BELOW:
            theirs, missing = [
                await http.request(
                    verb,
                    path.replace("{id}", quote(each + below, safe="")).replace("{question}", "q"),
                    headers=cluster.keys[caller],
                    json={"title": "x", "approved": True} if verb in {"POST", "PATCH"} else None,
                )
                for each in (task_id, nobodys)
            ]
            assert theirs.status_code >= 400, (verb, path)
            assert theirs.status_code == missing.status_code, (verb, path, below)
            assert theirs.text.replace(task_id, "") == missing.text.replace(nobodys, ""), (verb, path, below)
