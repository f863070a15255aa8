"""What is each binding's own, and A2A-Version: A2A 1.0 §3.6, §9, §11."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.conformance.messages import ASKS, COMPLETES, STREAMS, VERSION, WRITES_TEXT, content, fresh, message
from tests.conformance.stack import Stack
from tests.support.rigs.operator import until
from tests.support.wires.agent import Agent
from tests.support.wires.events import events_of


async def _send(stack: Stack, behaviour: str = COMPLETES, **fields: object) -> dict[str, Any]:
    body = {"message": content(behaviour, **fields)}
    response = await stack.http.post("/message:send", json=body, headers=VERSION)
    assert response.status_code == 200, response.text
    return response.json()["task"]


async def _get(stack: Stack, path: str, **params: str) -> httpx.Response:
    return await stack.http.get(path, params=params, headers=VERSION)


async def _listed(stack: Stack, query: Mapping[str, str]) -> list[dict[str, Any]]:
    listed = await _get(stack, "/tasks", **query)
    assert listed.status_code == 200, listed.text
    return listed.json()["tasks"]


def _media_type(response: httpx.Response) -> str:
    return response.headers["content-type"].split(";")[0]


async def test_query_parameters_have_the_names_of_json(stack: Stack) -> None:
    """Names in camelCase, enums by name, booleans in small letters, times as ISO 8601 (§11.5)."""
    context_id = fresh("context")
    task = await _send(stack, WRITES_TEXT, contextId=context_id)
    query = {
        "contextId": context_id,
        "status": "TASK_STATE_COMPLETED",
        "pageSize": "10",
        "historyLength": "0",
        "includeArtifacts": "true",
        "statusTimestampAfter": "2020-01-01T00:00:00Z",
    }
    (found,) = await until(lambda: _listed(stack, query))  # lists follow the task
    assert found["id"] == task["id"]
    assert found["artifacts"]
    assert not found.get("history")


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_subscribing_is_a_stream(stack: Stack, verb: str) -> None:
    """POST by the table of methods, GET as the proto has it: both begin with the task (§5.3, §11.3.2)."""
    task = await _send(stack, ASKS)
    path = f"/tasks/{task['id']}:subscribe"
    async with stack.http.stream(verb, path, headers=VERSION) as response:
        assert (response.status_code, _media_type(response)) == (200, "text/event-stream")
        events = events_of(response)
        assert (await anext(events)).data["task"]["id"] == task["id"]
    await stack.http.post(f"/tasks/{task['id']}:cancel", headers=VERSION)


async def test_a_stream_is_server_sent_events_of_stream_responses(stack: Stack) -> None:
    """Each event's data is a StreamResponse, without an envelope (§11.7)."""
    body = {"message": content(STREAMS)}
    async with stack.http.stream("POST", "/message:stream", json=body, headers=VERSION) as response:
        assert (response.status_code, _media_type(response)) == (200, "text/event-stream")
        events = [event.data async for event in events_of(response) if event.data]
    assert len(events) > 2
    for event in events:
        assert len(event) == 1
        assert event.keys() <= {"task", "message", "statusUpdate", "artifactUpdate"}


async def test_a_cancel_needs_no_body(stack: Stack) -> None:
    """The id is in the path (§11.3.2); a body may come, too."""
    for body in (None, {}, {"metadata": {"why": "tired"}}):
        task = await _send(stack, ASKS)
        response = await stack.http.post(f"/tasks/{task['id']}:cancel", json=body, headers=VERSION)
        assert response.status_code == 200
        assert response.json()["status"]["state"] == "TASK_STATE_CANCELED"


def _call(method: str, params: object, request_id: object = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


async def test_a_stream_is_server_sent_events_of_answers(stack: Stack) -> None:
    """Each event's data is one JSON-RPC answer to the request, whose result is a StreamResponse (§9.4.2)."""
    body = _call("SendStreamingMessage", {"message": content(STREAMS)}, "stream-1")
    async with stack.http.stream("POST", "/", json=body, headers=VERSION) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].split(";")[0] == "text/event-stream"
        answers = [event.data async for event in events_of(response) if event.data]
    assert len(answers) > 2
    for answer in answers:
        assert answer.keys() == {"jsonrpc", "id", "result"}
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", "stream-1")
        assert len(answer["result"]) == 1
        assert answer["result"].keys() <= {"task", "message", "statusUpdate", "artifactUpdate"}


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
