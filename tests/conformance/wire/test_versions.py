"""A2A-Version: A2A 1.0 §3.6."""

from dataclasses import replace

import pytest
from a2a.types import a2a_pb2 as pb

from tests.conformance.bindings import GRPC, VERSION, Binding, refusal
from tests.conformance.messages import COMPLETES, all_of, content, message
from tests.conformance.stack import Stack


def _speaking(agent: Binding, version: str) -> Binding:
    return replace(agent, headers={"A2A-Version": version})


@pytest.mark.parametrize("version", ["99.0", "2.0", "0.1", "one"])
async def test_a_version_that_is_not_served_is_refused(agent: Binding, version: str) -> None:
    """Every operation tells that the version is not supported (§3.6.2)."""
    stranger = _speaking(agent, version)
    refused = await refusal(stranger.send(message(COMPLETES)))
    assert refused.reason == "VERSION_NOT_SUPPORTED"
    assert version in refused.message
    assert (await refusal(stranger.get("any"))).reason == "VERSION_NOT_SUPPORTED"
    assert (await refusal(stranger.list())).reason == "VERSION_NOT_SUPPORTED"
    streamed = await refusal(all_of(stranger.send_streaming(message(COMPLETES))))
    assert streamed.reason == "VERSION_NOT_SUPPORTED"


async def test_a_newer_minor_version_is_refused(agent: Binding) -> None:
    """1.7 is another version than 1.0, which this server does not know (§3.6.2: Major.Minor)."""
    refused = await refusal(_speaking(agent, "1.7").send(message(COMPLETES)))
    assert refused.reason == "VERSION_NOT_SUPPORTED"


@pytest.mark.parametrize("version", ["1.0", "1.0.0", "1.0.1"])
async def test_patch_numbers_do_not_matter(agent: Binding, version: str) -> None:
    """Major and minor number make the version (§3.6)."""
    task = await _speaking(agent, version).send(message(COMPLETES))
    assert task.status.state == pb.TASK_STATE_COMPLETED


async def test_the_name_of_the_header_has_no_case(stack: Stack) -> None:
    """Service parameters are case-insensitive (§3.2.6)."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageSize": 1}}
    for name in ("a2a-version", "A2A-VERSION"):
        answer = (await stack.http.post("/", json=body, headers={name: "1.0"})).json()
        assert "result" in answer


async def test_the_version_may_stand_in_the_query(stack: Stack) -> None:
    """A client may send it as a request parameter instead of a header (§3.6.1)."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageSize": 1}}
    answer = (await stack.http.post("/?A2A-Version=1.0", json=body)).json()
    assert "result" in answer
    response = await stack.http.get("/tasks?pageSize=1&A2A-Version=1.0")
    assert response.status_code == 200


@pytest.mark.parametrize("headers", [{}, {"A2A-Version": ""}, {"A2A-Version": "0.3"}])
async def test_no_version_means_0_3(stack: Stack, headers: dict[str, str]) -> None:
    """Without a version the methods of 0.3 answer, in its shapes, and those of 1.0 do not (§3.6.2)."""
    said = {"messageId": content(COMPLETES)["messageId"], "role": "user"}
    said |= {"kind": "message", "parts": [{"kind": "text", "text": "Please."}]}
    old = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}}
    answer = (await stack.http.post("/", json=old, headers=headers)).json()
    assert answer["result"]["kind"] == "task"
    new: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    answer = (await stack.http.post("/", json=new, headers=headers)).json()
    assert answer["error"]["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"


async def test_both_versions_see_the_same_tasks(agent: Binding, stack: Stack) -> None:
    """A task can be read by a client of the other version (own rule)."""
    task = await agent.send(message(COMPLETES))
    old = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task.id}}
    answer = (await stack.http.post("/", json=old)).json()
    assert (answer["result"]["id"], answer["result"]["status"]["state"]) == (task.id, "completed")


async def test_a_0_3_version_on_an_operation_of_1_0_is_refused(agent: Binding) -> None:
    """The interface of 1.0 does not serve 0.3 (§3.6.2)."""
    refused = await refusal(_speaking(agent, "0.3").list())
    assert refused.reason == "VERSION_NOT_SUPPORTED"
    if agent.name != GRPC:
        refused = await refusal(replace(agent, headers={}).list())
        assert refused.reason == "VERSION_NOT_SUPPORTED"
    assert await replace(agent, headers=VERSION).list(pageSize=1)
