"""What is JSON-RPC's own: A2A 1.0 §9, JSON-RPC 2.0."""

import json
from typing import Any

import httpx
import pytest

from tests.conformance.bindings import VERSION
from tests.conformance.event_stream import data_of
from tests.conformance.messages import COMPLETES, STREAMS, content
from tests.conformance.stack import Stack


async def _post(stack: Stack, body: object, path: str = "/") -> httpx.Response:
    return await stack.http.post(path, json=body, headers=VERSION)


def _call(method: str, params: object, request_id: object = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


@pytest.mark.parametrize("request_id", [1, 0, -7, "one", "", "ü-🙂", 2**40])
async def test_an_answer_has_the_id_of_its_request(stack: Stack, request_id: object) -> None:
    """The id comes back as it was sent, number or string, with results and errors (JSON-RPC §5)."""
    answer = (await _post(stack, _call("ListTasks", {"pageSize": 1}, request_id))).json()
    assert answer["id"] == request_id
    assert type(answer["id"]) is type(request_id)
    refused = (await _post(stack, _call("GetTask", {"id": "none"}, request_id))).json()
    assert refused["id"] == request_id


async def test_an_answer_is_a_result_or_an_error(stack: Stack) -> None:
    """Never both; the version of JSON-RPC is always there (JSON-RPC §5)."""
    answer = (await _post(stack, _call("ListTasks", {"pageSize": 1}))).json()
    assert answer.keys() == {"jsonrpc", "id", "result"}
    refused = (await _post(stack, _call("GetTask", {"id": "none"}))).json()
    assert refused.keys() == {"jsonrpc", "id", "error"}
    assert answer["jsonrpc"] == refused["jsonrpc"] == "2.0"
    assert isinstance(refused["error"]["code"], int)
    assert isinstance(refused["error"]["data"], list)


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"jsonrpc": "2.0", "id": 1,', b"\xff\xfe", b"not json", b"[" * 100_000]
)
async def test_what_is_no_json_is_a_parse_error(stack: Stack, body: bytes) -> None:
    """-32700, and no id, which nobody could read (JSON-RPC §5.1)."""
    headers = {**VERSION, "Content-Type": "application/json"}
    response = await stack.http.post("/", content=body, headers=headers)
    answer = response.json()
    assert (answer["error"]["code"], answer["id"]) == (-32700, None)


@pytest.mark.parametrize(
    "body",
    [
        {"id": 1, "method": "ListTasks", "params": {}},
        {"jsonrpc": "1.0", "id": 1, "method": "ListTasks", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": 7, "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "", "params": {}},
        {"jsonrpc": "2.0", "id": {"a": 1}, "method": "ListTasks", "params": {}},
        {"jsonrpc": "2.0", "id": True, "method": "ListTasks", "params": {}},
        7,
        "ListTasks",
        {},
        {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": "text"},
    ],
)
async def test_what_is_no_request_is_invalid(stack: Stack, body: object) -> None:
    """-32600 for JSON that is no request (JSON-RPC §4, §5.1)."""
    answer = (await _post(stack, body)).json()
    assert answer["error"]["code"] == -32600
    assert answer["jsonrpc"] == "2.0"


@pytest.mark.parametrize("body", [[], [_call("ListTasks", {"pageSize": 1})]])
async def test_batches_are_refused(stack: Stack, body: object) -> None:
    """A2A has no batches: one request, one answer (§9.3)."""
    answer = (await _post(stack, body)).json()
    assert answer["error"]["code"] == -32600


@pytest.mark.parametrize("method", ["Nothing", "sendMessage", "SENDMESSAGE", "tasks/list", "rpc.discover"])
async def test_unknown_methods_are_not_found(stack: Stack, method: str) -> None:
    """-32601; names have a case (JSON-RPC §5.1)."""
    answer = (await _post(stack, _call(method, {}))).json()
    assert (answer["error"]["code"], answer["id"]) == (-32601, 1)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("SendMessage", {"message": "text"}),
        ("SendMessage", {"message": {"parts": {}}}),
        ("SendMessage", [1, 2]),
        ("GetTask", {"id": 7}),
        ("GetTask", {}),
        ("GetTask", {"id": "a", "historyLength": "many"}),
        ("ListTasks", {"pageSize": "many"}),
        ("ListTasks", {"statusTimestampAfter": "yesterday"}),
    ],
)
async def test_wrong_parameters_are_invalid(stack: Stack, method: str, params: object) -> None:
    """-32602 for parameters of a wrong shape or type (§9.5)."""
    answer = (await _post(stack, _call(method, params))).json()
    assert (answer["error"]["code"], answer["id"]) == (-32602, 1)


async def test_parameters_in_snake_case_are_taken(stack: Stack) -> None:
    """Proto's own names are read beside camelCase, as ProtoJSON demands of parsers (§5.5)."""
    said = content(COMPLETES)
    said["message_id"] = said.pop("messageId")
    params = {"message": said, "configuration": {"history_length": 0}}
    answer = (await _post(stack, _call("SendMessage", params))).json()
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "history" not in answer["result"]["task"]


async def test_fields_that_nobody_knows_are_ignored(stack: Stack) -> None:
    """On every level (§5.7)."""
    said = content(COMPLETES, somethingNew={"a": 1})
    said["parts"][0]["somethingElse"] = [1]
    params = {"message": said, "fromTheFuture": True, "configuration": {"andThis": None}}
    answer = (await _post(stack, _call("SendMessage", params))).json()
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_answers_are_json(stack: Stack) -> None:
    """Results and errors are application/json (§9.1)."""
    for body in (_call("ListTasks", {"pageSize": 1}), _call("Nothing", {})):
        response = await _post(stack, body)
        assert response.status_code == 200
        assert response.headers["content-type"].split(";")[0] == "application/json"


async def test_a_stream_is_server_sent_events_of_answers(stack: Stack) -> None:
    """Each event's data is one JSON-RPC answer to the request, whose result is a StreamResponse (§9.4.2)."""
    body = _call("SendStreamingMessage", {"message": content(STREAMS)}, "stream-1")
    async with stack.http.stream("POST", "/", json=body, headers=VERSION) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].split(";")[0] == "text/event-stream"
        answers = [json.loads(data) async for data in data_of(response)]
    assert len(answers) > 2
    for answer in answers:
        assert answer.keys() == {"jsonrpc", "id", "result"}
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", "stream-1")
        assert len(answer["result"]) == 1
        assert answer["result"].keys() <= {"task", "message", "statusUpdate", "artifactUpdate"}


async def test_a_stream_that_is_refused_is_one_answer(stack: Stack) -> None:
    """An error before the first event is an ordinary answer of JSON-RPC (§9.4.6)."""
    response = await _post(stack, _call("SubscribeToTask", {"id": "none"}, "s"))
    assert response.headers["content-type"].split(";")[0] == "application/json"
    assert (response.json()["error"]["code"], response.json()["id"]) == (-32001, "s")


async def test_the_endpoint_answers_with_and_without_a_slash(stack: Stack) -> None:
    """An agent's address is the same with a slash at its end (own rule)."""
    catalogue = (await stack.http.get("/agents")).json()
    for path in ("/", "", *(f"/agents/{one['id']}{end}" for one in catalogue for end in ("", "/"))):
        answer = (await _post(stack, _call("ListTasks", {"pageSize": 1}), path)).json()
        assert "result" in answer, path


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "PATCH"])
async def test_other_verbs_are_not_allowed(stack: Stack, verb: str) -> None:
    """JSON-RPC is POST (§9.1)."""
    assert (await stack.http.request(verb, "/", headers=VERSION)).status_code == 405


async def test_methods_without_parameters_need_none(stack: Stack) -> None:
    """`params` may be left out (JSON-RPC §4; §9.4.8)."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}
    assert "tasks" in (await _post(stack, body)).json()["result"]


async def test_a_deleted_config_is_answered_with_null(stack: Stack) -> None:
    """There is a result, and nothing in it (JSON-RPC §5)."""
    task = (await _post(stack, _call("SendMessage", {"message": content(COMPLETES)}))).json()["result"][
        "task"
    ]
    params = {"taskId": task["id"], "id": "none"}
    answer = (await _post(stack, _call("DeleteTaskPushNotificationConfig", params))).json()
    assert "result" in answer
    assert not answer["result"]
