"""The shapes of JSON, on both bindings that have it: A2A 1.0 §4, §5.5 to §5.7."""

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.conformance.messages import (
    ASKS,
    COMPLETES,
    REJECTS,
    VERSION,
    WRITES_DATA,
    WRITES_FILE,
    WRITES_TEXT,
    content,
)
from tests.conformance.stack import Stack
from tests.support.wires.wires import JSONRPC, REST

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(\d{3}){0,2}Z")
CAMEL_CASE = re.compile(r"[a-z][a-zA-Z0-9]*")

over_json = pytest.mark.parametrize("binding", [JSONRPC, pytest.param(REST, marks=pytest.mark.slow)])


async def _send(stack: Stack, binding: str, behaviour: str, **fields: object) -> dict[str, Any]:
    """Return the task in the JSON of a binding."""
    params = {"message": content(behaviour, **fields)}
    if binding == REST:
        return (await stack.http.post("/message:send", json=params, headers=VERSION)).json()["task"]
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return (await stack.http.post("/", json=body, headers=VERSION)).json()["result"]["task"]


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
    """All fields are defined (§4.1), and required ones are there (§5.7); there are no kinds.

    Names are camelCase (§5.5), times UTC with milliseconds (§5.6.1); the field of a part gives its kind
    (§4.1.6).
    """
    task = await _send(stack, binding, behaviour)
    ParseDict(task, pb.Task(), ignore_unknown_fields=False)
    names = set(_keys(task))
    assert "contextId" in names
    assert "kind" not in names
    assert not [name for name in names if not CAMEL_CASE.fullmatch(name)]
    assert TIME.fullmatch(task["status"]["timestamp"]), task["status"]["timestamp"]
    assert all((task["id"], task["contextId"]))
    assert task["status"]["state"].startswith("TASK_STATE_")
    assert {said["role"] for said in task["history"]} <= {"ROLE_USER", "ROLE_AGENT"}
    for said in task["history"]:
        assert all((said["messageId"], said["role"], said["parts"]))
    for artifact in task.get("artifacts", []):
        assert all((artifact["artifactId"], artifact["parts"]))
        assert all(len(part.keys() & {"text", "raw", "url", "data"}) == 1 for part in artifact["parts"])


@over_json
async def test_bytes_are_base64(stack: Stack, binding: str) -> None:
    """Raw parts are base64 in JSON, and the URL alphabet is accepted, too (§4.1.6)."""
    task = await _send(stack, binding, COMPLETES, parts=[{"raw": "-_8=", "filename": "two-bytes"}])
    (said,) = [one for one in task["history"] if one["role"] == "ROLE_USER"]
    assert said["parts"][0]["raw"] == "+/8="
