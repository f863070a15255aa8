"""A2A-Version: A2A 1.0 §3.6."""

import pytest

from tests.conformance.messages import COMPLETES, content, message
from tests.conformance.stack import Stack
from tests.support.wires.agent import Agent


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


async def test_both_versions_see_the_same_tasks(agent: Agent, stack: Stack) -> None:
    """A task can be read by a client of the other version (own rule)."""
    task = await agent.send(message(COMPLETES))
    old = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task.id}}
    answer = (await stack.http.post("/", json=old)).json()
    assert (answer["result"]["id"], answer["result"]["status"]["state"]) == (task.id, "completed")
