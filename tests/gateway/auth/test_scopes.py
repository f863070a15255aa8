"""What callers need to be let in, and each scope allows: for each operation on each binding."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.stores.views.interface import TaskViews
from tests.gateway.auth.cluster import DOWNLOADS, EVERYTHING, Cluster, running_cluster
from tests.gateway.wire_requests import Ask
from tests.gateway.wires import Wire

READ = {"on_get_task", "on_list_tasks", "on_subscribe_to_task"} | {
    "on_get_task_push_notification_config",
    "on_list_task_push_notification_configs",
}
"""What takes tasks:read; everything else but the card takes tasks:write."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(
    client: Client, views: TaskViews, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Cluster]:
    async with running_cluster(client, views, tmp_path_factory.mktemp("keys") / "keys") as cluster:
        yield cluster


@pytest.fixture
def wire(request: pytest.FixtureRequest, cluster: Cluster) -> Wire:
    return cluster.wires[request.param]


@pytest.mark.parametrize(("wire", "operation"), EVERYTHING, indirect=["wire"])
async def test_nobody_gets_in_without_credentials(cluster: Cluster, wire: Wire, operation: str) -> None:
    """401, or UNAUTHENTICATED, with the challenge; a wrong key is answered like one."""
    for headers in ({}, {"X-API-Key": "everloop_x_y"}):
        reply = await wire.send(Ask(operation, str(uuid4())), headers)
        assert reply.status in {401, "UNAUTHENTICATED"}, reply
        if isinstance(reply.status, int):
            assert reply.headers["www-authenticate"].startswith('ApiKey realm="everloop", header="X-API-Key"')
        assert b"everloop_x_y" not in reply.body


@pytest.mark.parametrize(("wire", "operation"), EVERYTHING, indirect=["wire"])
async def test_each_operation_takes_its_scope(cluster: Cluster, wire: Wire, operation: str) -> None:
    """403, or PERMISSION_DENIED, names the scope that is missing; with it the task is looked for."""
    task_id = await cluster.task()
    before = await cluster.all_of(task_id)
    needed, lacking = ("tasks:read", "writer") if operation in READ else ("tasks:write", "reader")
    is_free = operation == "on_get_extended_agent_card"

    refused = await wire.send(Ask(operation, task_id), cluster.keys[lacking])
    allowed = await wire.send(
        Ask(operation, str(uuid4())), cluster.keys["writer" if lacking == "reader" else "reader"]
    )

    if not is_free:
        assert refused.status in {403, "PERMISSION_DENIED"}, refused
        assert needed.encode() in refused.body
        assert "www-authenticate" not in refused.headers  # no scheme of API keys knows that error
    assert allowed.status in {200, "OK"} or wire.is_not_found(allowed), allowed
    assert await cluster.all_of(task_id) == before


@pytest.mark.parametrize(("wire", "operation"), EVERYTHING, indirect=["wire"])
async def test_scopes_may_name_agents(cluster: Cluster, wire: Wire, operation: str) -> None:
    """Then only these are served; the card is for everybody who is known."""
    ask = Ask(operation, str(uuid4()))

    refused = await wire.send(ask, cluster.keys["bound"])

    if operation == "on_get_extended_agent_card":
        assert refused.status in {200, "OK"}
    else:
        assert refused.status in {403, "PERMISSION_DENIED"}, refused
        assert b"agents:staged" in refused.body
    if wire.knows_agents:
        allowed = await wire.send(replace(ask, agent="other"), cluster.keys["bound"])
        assert allowed.status in {200, "OK"} or wire.is_not_found(allowed), allowed


@pytest.mark.parametrize(
    "path", ["/message:send", "/message:stream", "/v1/message:send", "/agents/other/message:send"]
)
async def test_a_missing_scope_is_told_before_a_body_is_parsed(cluster: Cluster, path: str) -> None:
    """Whoever may not send does not make the server read what was sent."""
    headers = {**cluster.keys["reader"], "Content-Type": "application/json"}
    if path.startswith("/v1/"):
        headers["A2A-Version"] = "0.3"

    answer = await cluster.gateway.http.post(path, content=b"no JSON", headers=headers)

    assert answer.status_code == 403
    assert "tasks:write" in answer.text


@pytest.mark.parametrize(("method", "version"), [("SendMessage", "1.0"), ("message/send", "0.3")])
async def test_a_missing_scope_is_told_before_parameters_are_checked(
    cluster: Cluster, method: str, version: str
) -> None:
    """On JSON-RPC the body says what the operation is; the answer has the id of the request."""
    body = {"jsonrpc": "2.0", "id": "x", "method": method, "params": {"message": {"parts": 5}}}
    headers = {**cluster.keys["reader"], "A2A-Version": version}

    answer = await cluster.gateway.http.post("/", json=body, headers=headers)

    assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (403, "x", -32032)


@pytest.mark.parametrize("path", DOWNLOADS)
async def test_downloads_take_the_scope_of_reading(cluster: Cluster, path: str) -> None:
    """401 with the challenge and 403 with the scope, as JSON that no cache keeps."""
    context = await cluster.artifact(await cluster.task())

    async def answer(caller: str) -> tuple[int, str, str | None]:
        got = await cluster.gateway.http.get(path.format(context), headers=cluster.keys.get(caller, {}))
        assert got.headers["Cache-Control"] == "no-store"
        error = got.json()["error"]
        return error["code"], error["message"], got.headers.get("WWW-Authenticate")

    assert await answer("nobody") == (
        401,
        "nothing says who calls; send an API key in the header X-API-Key",
        'ApiKey realm="everloop", header="X-API-Key"',
    )
    code, text, _ = await answer("writer")
    assert (code, "tasks:read" in text) == (403, True)


@pytest.mark.parametrize(("method", "path"), [("GET", "approvals"), ("POST", "approvals/t/q")])
async def test_approvals_take_a_scope_of_their_own(cluster: Cluster, method: str, path: str) -> None:
    """401 with the challenge and 403 with the scope, before anything of the request is read."""
    nobody = await cluster.gateway.http.request(method, path, content=b"no JSON")
    writer = await cluster.gateway.http.request(
        method, path, content=b"no JSON", headers=cluster.keys["writer"]
    )

    assert (nobody.status_code, "WWW-Authenticate" in nobody.headers) == (401, True)
    assert (writer.status_code, "tasks:approve" in writer.text) == (403, True)


async def test_downloads_are_of_the_agents_that_scopes_name(cluster: Cluster) -> None:
    """Artifacts of other agents are not there for this caller, though they are the owner's."""
    ours, theirs = await asyncio.gather(cluster.task("other"), cluster.task())
    our_context, their_context = await cluster.artifact(ours), await cluster.artifact(theirs)

    async def statuses(context: str) -> list[int]:
        answers = [
            await cluster.gateway.http.get(p.format(context), headers=cluster.keys["bound"])
            for p in DOWNLOADS
        ]
        return [answer.status_code for answer in answers]

    assert await statuses(our_context) == [200, 200, 200, 200, 404, 404]
    assert await statuses(their_context) == [200, 200, 404, 404, 404, 404]
    listed = await cluster.gateway.http.get(f"artifacts/{their_context}", headers=cluster.keys["bound"])
    assert listed.json() == {"artifacts": []}


@pytest.mark.parametrize("path", ["healthz", "readyz", ".well-known/agent-card.json"])
async def test_what_is_for_everybody_takes_no_credentials(cluster: Cluster, path: str) -> None:
    """Probes and cards: clients read there how to prove who they are."""
    assert (await cluster.gateway.http.get(path)).status_code == 200


async def test_no_key_reaches_the_log_or_an_answer(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a good one nor a wrong one."""
    good = cluster.keys["stranger"]["X-API-Key"]
    wrong = good[:-4] + "wxyz"
    for wire in cluster.wires.values():
        for key in (good, wrong):
            reply = await wire.send(Ask("on_get_task", str(uuid4())), {"X-API-Key": key})
            assert key.encode() not in reply.body
            assert key not in str(reply.headers)

    out, err = capfd.readouterr()
    assert good[:-4] not in out + err
