"""Credentials, and the scope of each operation on each binding."""

import asyncio
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.gateway.auth.cluster import DOWNLOADS, Cluster, operations_of
from tests.support.wires.operations import params_of
from tests.support.wires.wires import JSONRPC, Reply, Wire

READ = {"GetTask", "ListTasks", "SubscribeToTask"} | {
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
}
"""Operations with the scope tasks:read; all others except the card need tasks:write."""

UNAUTHENTICATED, FORBIDDEN = {401, "UNAUTHENTICATED"}, {403, "PERMISSION_DENIED"}


def is_served(reply: Reply) -> bool:
    """True if the caller was authorized: the task was looked up."""
    return reply.status in {200, "OK"} or is_not_found(reply)


def is_not_found(reply: Reply) -> bool:
    return reply.reason == "TASK_NOT_FOUND" or b'"code":-32001' in reply.body.replace(b" ", b"")


async def test_nobody_gets_in_without_credentials(wire: Wire) -> None:
    """401, or UNAUTHENTICATED, with the challenge; a wrong key gets the same answer as a missing one."""
    for operation in operations_of(wire):
        for headers in ({}, {"X-API-Key": "everloop_x_y"}):
            reply = await wire.send(operation, params_of(operation, str(uuid4())), headers)
            assert reply.status in UNAUTHENTICATED, (operation, reply)
            assert wire.binding != JSONRPC or (reply.refusal and reply.refusal.code == -32031)
            assert reply.headers["www-authenticate"].startswith('ApiKey realm="everloop", header="X-API-Key"')
            assert b"everloop_x_y" not in reply.body


async def test_each_operation_takes_its_scope(cluster: Cluster, wire: Wire) -> None:
    """403, or PERMISSION_DENIED, names the missing scope; with the scope the task is looked up."""
    task_id = await cluster.task()
    before = await cluster.all_of(task_id)
    for operation in operations_of(wire):
        needed, has, lacks = ("tasks:read", "reader", "writer")
        if operation not in READ:
            needed, has, lacks = "tasks:write", lacks, has
        refused = await wire.send(operation, params_of(operation, task_id), cluster.keys[lacks])
        allowed = await wire.send(operation, params_of(operation, str(uuid4())), cluster.keys[has])
        if operation != "GetExtendedAgentCard":
            assert refused.status in FORBIDDEN, (operation, refused)
            assert needed.encode() in refused.body
            assert "www-authenticate" not in refused.headers  # no scheme of API keys knows that error
        assert is_served(allowed), (operation, allowed)
    assert await cluster.all_of(task_id) == before


async def test_scopes_may_name_agents(cluster: Cluster, wire: Wire) -> None:
    """Only the named agents are served; the card is for every authenticated caller."""
    key = cluster.keys["bound"]
    for operation in operations_of(wire):
        params = params_of(operation, str(uuid4()))
        refused = await wire.send(operation, params, key)
        if operation == "GetExtendedAgentCard":
            assert refused.status in {200, "OK"}
        else:
            assert refused.status in FORBIDDEN, (operation, refused)
            assert b"agents:staged" in refused.body
        if wire.name != "gRPC 0.3":
            allowed = await wire.send(operation, params, key, "other")
            assert is_served(allowed), (operation, allowed)


@pytest.mark.parametrize("path", ["/message:send", "/v1/message:stream", "/agents/other/message:send"])
async def test_a_missing_scope_is_told_before_a_body_is_parsed(cluster: Cluster, path: str) -> None:
    """The server does not read the body of a caller without the scope."""
    version = "0.3" if path.startswith("/v1/") else "1.0"
    headers = {**cluster.keys["reader"], "Content-Type": "application/json", "A2A-Version": version}
    answer = await cluster.gateway.http.post(path, content=b"no JSON", headers=headers)
    assert answer.status_code == 403
    assert "tasks:write" in answer.text


@pytest.mark.parametrize("path", ["/", "/message:send", "/v1/message:stream", "/agents/staged"])
async def test_a_stranger_is_refused_before_the_body_is_read(cluster: Cluster, path: str) -> None:
    """The answer comes before the body."""
    address = urlsplit(cluster.gateway.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: 1000000\r\n\r\n".encode()
    )
    assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    writer.close()


@pytest.mark.parametrize(("method", "version"), [("SendMessage", "1.0"), ("message/send", "0.3")])
async def test_a_missing_scope_is_told_before_parameters_are_checked(
    cluster: Cluster, method: str, version: str
) -> None:
    """On JSON-RPC the body names the operation; the answer has the id of the request."""
    body = {"jsonrpc": "2.0", "id": "x", "method": method, "params": {"message": {"parts": 5}}}
    headers = {**cluster.keys["reader"], "A2A-Version": version}
    answer = await cluster.gateway.http.post("/", json=body, headers=headers)
    assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (403, "x", -32032)


async def test_downloads_take_the_scope_of_reading(cluster: Cluster) -> None:
    """401 with the challenge and 403 with the scope, as JSON that caches do not store."""
    context = await cluster.artifact(await cluster.task())
    for path in DOWNLOADS:
        http, address = cluster.gateway.http, path.format(context)
        nobody, writer = await http.get(address), await http.get(address, headers=cluster.keys["writer"])
        assert [got.headers["Cache-Control"] for got in (nobody, writer)] == ["no-store"] * 2
        assert nobody.status_code == nobody.json()["error"]["code"] == 401, path
        assert nobody.headers["WWW-Authenticate"] == 'ApiKey realm="everloop", header="X-API-Key"'
        assert "nothing says who calls; send an API key in the header X-API-Key" in nobody.text
        assert (writer.status_code, "tasks:read" in writer.text) == (403, True), path


async def test_downloads_are_of_the_agents_that_scopes_name(cluster: Cluster) -> None:
    """Artifacts of other agents are not found, although the owner is the same."""
    ours, theirs = await asyncio.gather(cluster.task("other"), cluster.task())
    our_context, their_context = await cluster.artifact(ours), await cluster.artifact(theirs)
    http, key = cluster.gateway.http, cluster.keys["bound"]

    async def statuses(context: str) -> list[int]:
        answers = [await http.get(path.format(context), headers=key) for path in DOWNLOADS]
        return [answer.status_code for answer in answers]

    assert await statuses(our_context) == [200, 200, 200, 200, 404, 404]
    assert await statuses(their_context) == [200, 200, 404, 404, 404, 404]
    listed = await http.get(f"artifacts/{their_context}", headers=key)
    assert listed.json() == {"artifacts": []}


async def test_no_key_reaches_the_log_or_an_answer(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither valid nor invalid keys appear."""
    good = cluster.keys["stranger"]["X-API-Key"]
    wrong = good[:-4] + "wxyz"
    for wire in cluster.wires.values():
        for key in (good, wrong):
            reply = await wire.send("GetTask", {"id": str(uuid4())}, {"X-API-Key": key})
            assert key.encode() not in reply.body
            assert key not in str(reply.headers)
    out, err = capfd.readouterr()
    assert good[:-4] not in out + err
