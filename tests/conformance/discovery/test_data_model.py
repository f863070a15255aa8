"""The shapes of JSON, on both bindings that have it: A2A 1.0 §4, §5.5 to §5.7."""

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.conformance.bindings import JSONRPC, REST, VERSION
from tests.conformance.messages import (
    ASKS,
    COMPLETES,
    REJECTS,
    WRITES_DATA,
    WRITES_FILE,
    WRITES_TEXT,
    content,
    fresh,
)
from tests.conformance.stack import Stack

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(\d{3}){0,2}Z")
CAMEL_CASE = re.compile(r"[a-z][a-zA-Z0-9]*")

over_json = pytest.mark.parametrize("binding", [JSONRPC, REST])


async def _send(stack: Stack, binding: str, behaviour: str, **fields: object) -> dict[str, Any]:
    """Return the task as the JSON of a binding has it."""
    params = {"message": content(behaviour, **fields)}
    if binding == REST:
        return (await stack.http.post("/message:send", json=params, headers=VERSION)).json()["task"]
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return (await stack.http.post("/", json=body, headers=VERSION)).json()["result"]["task"]


async def _list(stack: Stack, binding: str, params: dict[str, Any]) -> dict[str, Any]:
    if binding == REST:
        return (await stack.http.get("/tasks", params=params, headers=VERSION)).json()
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
    return (await stack.http.post("/", json=body, headers=VERSION)).json()["result"]


def _keys(value: Any) -> Iterator[str]:  # noqa: ANN401 -- any JSON
    """Yield the names of all fields, but not those of metadata and data, which are the users' own."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _keys(item)
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield key
            if key not in {"metadata", "data"}:
                yield from _keys(item)


@over_json
@pytest.mark.parametrize("behaviour", [COMPLETES, ASKS, REJECTS, WRITES_TEXT, WRITES_FILE, WRITES_DATA])
async def test_a_task_is_what_the_schema_says(stack: Stack, binding: str, behaviour: str) -> None:
    """Nothing in a task is unknown to the protocol's definition (§4.1.1)."""
    task = await _send(stack, binding, behaviour)
    ParseDict(task, pb.Task(), ignore_unknown_fields=False)


@over_json
async def test_field_names_are_camel_case(stack: Stack, binding: str) -> None:
    """No field is named as in proto files (§5.5)."""
    task = await _send(stack, binding, WRITES_TEXT)
    names = set(_keys(task))
    assert "contextId" in names
    assert not [name for name in names if not CAMEL_CASE.fullmatch(name)]


@over_json
@pytest.mark.parametrize(
    ("behaviour", "state"),
    [
        (COMPLETES, "TASK_STATE_COMPLETED"),
        (ASKS, "TASK_STATE_INPUT_REQUIRED"),
        (REJECTS, "TASK_STATE_REJECTED"),
    ],
)
async def test_states_and_roles_have_the_names_of_the_definition(
    stack: Stack, binding: str, behaviour: str, state: str
) -> None:
    """Enums are written as ProtoJSON does: by name (§5.5)."""
    task = await _send(stack, binding, behaviour)
    assert task["status"]["state"] == state
    assert {said["role"] for said in task["history"]} <= {"ROLE_USER", "ROLE_AGENT"}


@over_json
async def test_times_are_utc_with_milliseconds(stack: Stack, binding: str) -> None:
    """ISO 8601, with Z and at least milliseconds, which are there even if they are zero (§5.6.1)."""
    task = await _send(stack, binding, COMPLETES)
    assert TIME.fullmatch(task["status"]["timestamp"]), task["status"]["timestamp"]


@over_json
async def test_there_are_no_kinds_in_1_0(stack: Stack, binding: str) -> None:
    """The discriminator of 0.3 is gone: what a part is, its field says (§4.1.6, A.2.1)."""
    task = await _send(stack, binding, WRITES_TEXT)
    assert "kind" not in set(_keys(task))
    parts = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    assert all(len(part.keys() & {"text", "raw", "url", "data"}) == 1 for part in parts)


@over_json
async def test_required_fields_are_there(stack: Stack, binding: str) -> None:
    """Tasks have an id, a context and a state; messages and artifacts have what they need (§4.1, §5.7)."""
    task = await _send(stack, binding, WRITES_TEXT)
    assert task["id"]
    assert task["contextId"]
    assert task["status"]["state"]
    for said in task["history"]:
        assert said["messageId"]
        assert said["role"]
        assert said["parts"]
    for artifact in task["artifacts"]:
        assert artifact["artifactId"]
        assert artifact["parts"]


@over_json
async def test_no_history_is_no_field(stack: Stack, binding: str) -> None:
    """With historyLength 0 the field is left out (§3.2.4)."""
    context_id = fresh("context")
    await _send(stack, binding, COMPLETES, contextId=context_id)
    (task,) = (await _list(stack, binding, {"contextId": context_id, "historyLength": 0}))["tasks"]
    assert not task.get("history")


@over_json
async def test_a_page_has_its_required_fields(stack: Stack, binding: str) -> None:
    """Tasks, token, page size and total stand in every page, whatever they are (§3.1.4)."""
    page = await _list(stack, binding, {"contextId": fresh("context")})
    assert page == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


@over_json
async def test_a_listed_task_without_artifacts_has_no_such_field(stack: Stack, binding: str) -> None:
    """Unless they are wanted, the field is absent: not empty, not null (§3.1.4)."""
    context_id = fresh("context")
    await _send(stack, binding, WRITES_TEXT, contextId=context_id)
    (task,) = (await _list(stack, binding, {"contextId": context_id}))["tasks"]
    assert "artifacts" not in task
    wanted = {"contextId": context_id, "includeArtifacts": "true" if binding == REST else True}
    (task,) = (await _list(stack, binding, wanted))["tasks"]
    assert task["artifacts"]


@over_json
async def test_bytes_are_base64(stack: Stack, binding: str) -> None:
    """Raw parts are base64 in JSON, and what was sent in the URL's alphabet is read, too (§4.1.6)."""
    task = await _send(stack, binding, COMPLETES, parts=[{"raw": "-_8=", "filename": "two-bytes"}])
    (said,) = [one for one in task["history"] if one["role"] == "ROLE_USER"]
    assert said["parts"][0]["raw"] == "+/8="
