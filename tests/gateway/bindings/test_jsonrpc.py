"""Rules of JSON-RPC alone: envelopes, ids, one endpoint for two versions."""

import json
from typing import Any

import pytest

from everloop.gateway.requests.proto import MAX_VALUES
from tests.gateway.harness import AGENT, RunningGateway, unique

LEGACY = {"A2A-Version": "0.3"}


@pytest.mark.parametrize("path", ["/", f"/agents/{AGENT.id}", f"/agents/{AGENT.id}/"])
@pytest.mark.parametrize(("method", "version"), [("GetTask", "1.0"), ("tasks/get", "0.3")])
async def test_both_versions_have_one_endpoint(
    gateway: RunningGateway, path: str, method: str, version: str
) -> None:
    """With a slash at its end and without, and never a redirect; answers are JSON."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "x"}}
    response = await gateway.http.post(path, json=body, headers={"A2A-Version": version})
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    assert response.json().keys() == {"jsonrpc", "id", "error"}
    assert response.json()["error"]["code"] == -32001


async def test_answers_have_the_id_of_their_request(gateway: RunningGateway) -> None:
    """Any text, whole number or null, in results and in errors, which are never both (JSON-RPC §5)."""
    for request_id in ("", "a", "ü-🙂", 0, -7, 2**53, None):
        for params in ({}, {"params": {"pageSize": 0}}):  # they may be left out (§4)
            body = {"jsonrpc": "2.0", "id": request_id, "method": "ListTasks", **params}
            answer = (await gateway.http.post("/", json=body)).json()
            assert answer.keys() == {"jsonrpc", "id", "error" if params else "result"}
            assert (answer["jsonrpc"], answer["id"]) == ("2.0", request_id)
            assert type(answer["id"]) is type(request_id)


async def test_other_ids_are_refused(gateway: RunningGateway) -> None:
    """The answer has no id, for it could not be told from another's; half a character is no text."""
    long: list[object] = ["x" * 1_000_000, "é" * 128, 2**63, -(2**64)]
    for request_id in (*long, True, 1.5, dict[str, str](), list[str](), "a\0b", "\ud800"):
        body = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "ListTasks"})
        headers = {"Content-Type": "application/json"}
        answer = (await gateway.http.post("/", content=body, headers=headers)).json()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert "id has to be" in answer["error"]["message"] or request_id == "\ud800"


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


def rpc(member: str) -> bytes:
    """Return a request with one more member, given as JSON text."""
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", {member}}}'.encode()


PART = '"params": {"message": {"role": "ROLE_USER", "messageId": "m", "parts": [%s]}}'

BODIES: dict[str, tuple[bytes, int]] = {
    "empty batch": (b"[]", -32600),
    "string": (b'"hello"', -32600),
    "number": (b"7", -32600),
    "null": (b"null", -32600),
    "empty object": (b"{}", -32600),
    "batch": (b"[" + rpc('"x": 1') + b"]", -32600),
    "JSON-RPC 1.0": (b'{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}', -32600),
    "no JSON-RPC": (b'{"id": 1, "method": "GetTask"}', -32600),
    "no id": (b'{"jsonrpc": "2.0", "method": "GetTask"}', -32600),
    "object method": (b'{"jsonrpc": "2.0", "id": 1, "method": {}}', -32600),
    "no method": (b'{"jsonrpc": "2.0", "id": 1}', -32600),
    "another member": (rpc('"params": {}, "context": {}'), -32600),
    "nested params": (rpc(f'"params": {deep(500)}'), -32602),
    "nested data": (rpc(PART % f'{{"data": {deep(500)}}}'), -32602),
    "too many values": (rpc(f'"x": [{"[]," * MAX_VALUES}0]'), -32700),
    "too many values, and no JSON": (b'["x"' + b",{}" * 2 * MAX_VALUES + b"}", -32700),
    "infinity": (rpc(PART % '{"data": {"x": 1e999}}'), -32602),
    "lone surrogate": (rpc(PART % '{"text": "\\ud800"}'), -32602),
}


async def test_a_body_that_is_no_request_is_refused(gateway: RunningGateway) -> None:
    """Malformed JSON is a parse error; JSON that is not a JSON-RPC 2.0 request is an invalid request."""
    for name, (body, code) in BODIES.items():
        for headers in ({}, LEGACY):
            response = await gateway.http.post(
                "/", content=body, headers={"content-type": "application/json", **headers}
            )
            answer = response.json()
            expected = -32009 if headers and code == -32602 else code  # the method is of 1.0
            assert (response.status_code, answer["error"]["code"]) == (200, expected), name
            assert answer["id"] == (None if code == -32700 else answer["id"])
            assert "Traceback" not in response.text
            assert (f"more than {MAX_VALUES} values" in response.text) == name.startswith("too many"), name


async def test_the_kind_of_a_part_says_what_it_lacks(gateway: RunningGateway) -> None:
    """The error names the missing field of that kind. Parts are counted before they are read."""
    refused: list[tuple[list[dict[str, Any]], str]] = [
        ([{"kind": "file", "file": {}}], "message.parts[0].file.bytes does not fit: field required"),
        ([{"kind": "data"}], "message.parts[0].data does not fit: field required"),
        ([{"kind": "text", "text": 5}], "message.parts[0].text does not fit"),
        ([{"kind": "text", "text": 5}] * 1001, "message.parts has 1001 parts; one message may have 1000"),
    ]
    for parts, words in refused:
        params = {"message": {"messageId": "m", "role": "user", "parts": parts}}
        error = (await gateway.call("message/send", params, **LEGACY)).json()["error"]
        assert (error["code"], words in error["message"]) == (-32602, True), error


async def test_texts_hold_no_values(gateway: RunningGateway) -> None:
    """However many brackets and commas they have: only values are counted."""
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "GetTask",
        "params": {"id": "x", "x": '\\",{[' * MAX_VALUES},
    }
    assert (await gateway.http.post("/", json=body)).json()["error"]["code"] == -32001


@pytest.mark.parametrize("field", ["messageId", "message_id"])
@pytest.mark.parametrize("headers", [{}, LEGACY], ids=["1.0", "0.3"])
async def test_both_spellings_are_taken(gateway: RunningGateway, headers: dict[str, str], field: str) -> None:
    """Fields may be in camelCase or in snake_case; unknown fields are ignored (§5.5, §5.7)."""
    part = {"kind": "text", "text": "hi", "new": [1]}
    message = {
        field: unique("m"),
        "role": "user" if headers else "ROLE_USER",
        "parts": [part],
        "new": {"a": 1},
    }
    method = "message/send" if headers else "SendMessage"
    answer = await gateway.call(method, {"message": message, "fromTheFuture": True}, **headers)
    task = answer.json()["result"]
    assert task.get("task", task)["status"]["state"] in {"completed", "TASK_STATE_COMPLETED"}
