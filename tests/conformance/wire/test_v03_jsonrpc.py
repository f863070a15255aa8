"""Clients of A2A 0.3 over JSON-RPC: 0.3 §6 (objects), §7 (methods), §8 (errors)."""

from typing import Any

import httpx
import pytest
from a2a.compat.v0_3 import types as v03

from tests.conformance.messages import (
    ASKS,
    COMPLETES,
    LASTS,
    REJECTS,
    WRITES_DATA,
    WRITES_FILE,
    WRITES_FILE_URL,
    WRITES_TEXT,
    fresh,
)
from tests.conformance.stack import Stack
from tests.support.wires.events import events_of


def said(behaviour: str, **fields: object) -> dict[str, Any]:
    """Return a message of 0.3 that makes the agent behave like that."""
    return {
        "kind": "message",
        "messageId": fresh(behaviour),
        "role": "user",
        "parts": [{"kind": "text", "text": "Please."}],
        **fields,
    }


async def call(http: httpx.AsyncClient, method: str, params: object) -> dict[str, Any]:
    """Return the answer to a JSON-RPC request; clients of 0.3 send no version."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await http.post("/", json=body)).json()


async def send(http: httpx.AsyncClient, behaviour: str, **fields: object) -> dict[str, Any]:
    """Return the task of a message."""
    params = {"message": said(behaviour, **fields), "configuration": {"blocking": True}}
    return (await call(http, "message/send", params))["result"]


async def stream(http: httpx.AsyncClient, method: str, params: object) -> list[dict[str, Any]]:
    """Return all events of a streaming method."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with http.stream("POST", "/", json=body) as response:
        return [event.data async for event in events_of(response) if event.data]


@pytest.mark.parametrize("behaviour", [COMPLETES, ASKS, REJECTS, WRITES_TEXT, WRITES_FILE, WRITES_DATA])
async def test_a_task_is_what_0_3_says(stack: Stack, behaviour: str) -> None:
    """The result of message/send fits the schema of a 0.3 task (0.3 §6.1, §7.1).

    States are words joined by hyphens (§6.3), messages and parts say their kinds (§6.4, §6.5).
    """
    task = await send(stack.http, behaviour)
    assert task["kind"] == "task"
    v03.Task.model_validate(task)
    states = {ASKS: "input-required", REJECTS: "rejected"}
    assert task["status"]["state"] == states.get(behaviour, "completed")
    messages = [*task["history"], *([task["status"]["message"]] if "message" in task["status"] else [])]
    assert {one["kind"] for one in messages} == {"message"}
    assert {one["role"] for one in messages} <= {"user", "agent"}
    assert {part["kind"] for one in messages for part in one["parts"]} <= {"text", "data"}
    written: dict[str, dict[str, Any]] = {
        WRITES_TEXT: {"kind": "text", "text": "Generated text content"},
        WRITES_DATA: {"kind": "data", "data": {"key": "value", "count": 42}},
    }
    parts = [part for artifact in task.get("artifacts", []) for part in artifact["parts"]]
    assert behaviour not in written or any(written[behaviour].items() <= part.items() for part in parts)


@pytest.mark.parametrize(("behaviour", "content"), [(WRITES_FILE, "bytes"), (WRITES_FILE_URL, "uri")])
async def test_files_have_bytes_or_a_uri(stack: Stack, behaviour: str, content: str) -> None:
    """A file part holds a file with a name, a MIME type, and one of bytes and uri (0.3 §6.6)."""
    task = await send(stack.http, behaviour)
    parts = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    (part,) = [part for part in parts if part["kind"] == "file"]
    assert (part["file"]["name"], part["file"]["mimeType"]) == ("output.txt", "text/plain")
    assert {"bytes", "uri"} & part["file"].keys() == {content}


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "text", "text": "some text"},
        {"kind": "data", "data": {"a": [1, None]}},
        {"kind": "file", "file": {"bytes": "aGVsbG8=", "name": "hello.txt", "mimeType": "text/plain"}},
        {"kind": "file", "file": {"uri": "https://example.com/hello.txt", "mimeType": "text/plain"}},
    ],
)
async def test_each_kind_of_part_is_taken(stack: Stack, part: dict[str, Any]) -> None:
    """Parts of a client of 0.3 come back unchanged (0.3 §6.5)."""
    task = await send(stack.http, COMPLETES, parts=[part])
    assert task["status"]["state"] == "completed"
    (mine,) = [one for one in task["history"] if one["role"] == "user"]
    assert [{**part, **one} for one in mine["parts"]] == mine["parts"]


async def test_a_send_that_does_not_block_returns_at_once(stack: Stack) -> None:
    """`blocking` false returns the task in progress (0.3 §7.1.1)."""
    params = {"message": said(LASTS), "configuration": {"blocking": False}}
    task = (await call(stack.http, "message/send", params))["result"]
    assert task["status"]["state"] in {"submitted", "working"}
    canceled = (await call(stack.http, "tasks/cancel", {"id": task["id"]}))["result"]
    assert (canceled["kind"], canceled["status"]["state"]) == ("task", "canceled")


async def test_configs_are_set_read_listed_and_deleted(stack: Stack) -> None:
    """The four methods of push notifications.

    A deletion answers null, also when repeated (0.3 §7.5 to §7.8).
    """
    task = await send(stack.http, ASKS)
    config = {"url": "https://example.com/hook", "token": "t"}
    params = {"taskId": task["id"], "pushNotificationConfig": config}
    made = (await call(stack.http, "tasks/pushNotificationConfig/set", params))["result"]
    assert made["taskId"] == task["id"]
    assert made["pushNotificationConfig"]["url"] == config["url"]
    config_id = made["pushNotificationConfig"]["id"]
    named = {"id": task["id"], "pushNotificationConfigId": config_id}
    found = (await call(stack.http, "tasks/pushNotificationConfig/get", named))["result"]
    assert found == made
    listed = (await call(stack.http, "tasks/pushNotificationConfig/list", {"id": task["id"]}))["result"]
    assert listed == [made]
    for _ in range(2):
        deleted = await call(stack.http, "tasks/pushNotificationConfig/delete", named)
        assert deleted == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert (await call(stack.http, "tasks/pushNotificationConfig/list", {"id": task["id"]}))["result"] == []


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/resubscribe", {"id": "none"}, -32001),
        ("message/stream", {"message": said(COMPLETES, taskId="none")}, -32001),
    ],
)
async def test_a_refused_stream_is_one_event(stack: Stack, method: str, params: object, code: int) -> None:
    """Clients of 0.3 read only events as answers to these methods (0.3 §7.2, §7.9)."""
    (event,) = await stream(stack.http, method, params)
    answer = event
    assert (answer["id"], answer["error"]["code"]) == (1, code)


async def test_an_ended_task_refuses_a_stream_by_an_event(stack: Stack) -> None:
    """A message to it is -32004, and so is subscribing; it is not cancelable: -32002 (0.3 §8.2)."""
    done = await send(stack.http, COMPLETES)
    assert (await call(stack.http, "tasks/cancel", {"id": done["id"]}))["error"]["code"] == -32002
    params = {"message": said(COMPLETES, taskId=done["id"])}
    assert (await call(stack.http, "message/send", params))["error"]["code"] == -32004
    (written,) = await stream(stack.http, "message/stream", {"message": said(COMPLETES, taskId=done["id"])})
    (followed,) = await stream(stack.http, "tasks/resubscribe", {"id": done["id"]})
    assert {each["error"]["code"] for each in (written, followed)} == {-32004}


async def test_a_canceled_task_cannot_be_canceled_again(stack: Stack) -> None:
    """Only 1.0 says that it is idempotent (0.3 §7.4)."""
    asking = await send(stack.http, ASKS)
    first = await call(stack.http, "tasks/cancel", {"id": asking["id"]})
    again = await call(stack.http, "tasks/cancel", {"id": asking["id"]})
    assert first["result"]["status"]["state"] == "canceled"
    assert again["error"]["code"] == -32002


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/get", {"id": "none"}, -32001),
        ("tasks/cancel", {"id": "none"}, -32001),
        ("tasks/pushNotificationConfig/list", {"id": "none"}, -32001),
        ("message/send", {"message": said(COMPLETES, taskId="none")}, -32001),
        ("tasks/nothing", {}, -32601),
        ("tasks/list", {}, -32601),  # ListTasks under a name of 0.3, which never had it
        ("tasks/get", {}, -32602),
        ("tasks/get", {"id": 7}, -32602),
        ("message/send", {}, -32602),
        ("message/send", {"message": {"kind": "message", "role": "user", "parts": []}}, -32602),
        ("message/send", {"message": {"messageId": "a", "role": "nobody", "parts": []}}, -32602),
    ],
)
async def test_errors_have_the_codes_of_0_3(stack: Stack, method: str, params: object, code: int) -> None:
    """Invalid requests get the same numbers (0.3 §8)."""
    answer = await call(stack.http, method, params)
    assert answer["error"]["code"] == code
    assert answer["id"] == 1
    assert answer["error"]["message"]
