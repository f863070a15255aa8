"""What is JSON-RPC's own: A2A 1.0 §9, JSON-RPC 2.0."""

from typing import Any

import httpx

from tests.conformance.messages import COMPLETES, STREAMS, VERSION, content
from tests.conformance.stack import Stack
from tests.support.wires.events import events_of


async def _post(stack: Stack, body: object, path: str = "/") -> httpx.Response:
    return await stack.http.post(path, json=body, headers=VERSION)


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


async def test_a_deleted_config_is_answered_with_null(stack: Stack) -> None:
    """There is a result, and nothing in it (JSON-RPC §5)."""
    task = (await _post(stack, _call("SendMessage", {"message": content(COMPLETES)}))).json()["result"][
        "task"
    ]
    params = {"taskId": task["id"], "id": "none"}
    answer = (await _post(stack, _call("DeleteTaskPushNotificationConfig", params))).json()
    assert "result" in answer
    assert not answer["result"]
