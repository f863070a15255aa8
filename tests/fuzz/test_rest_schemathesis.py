# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Schemathesis leaves open what its cases hold.
"""Requests that an OpenAPI document describes, and others, are answered by the REST binding as it says."""

from http import HTTPStatus
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import Case, CheckFunction, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.insides import MAX_REFUSAL, insides
from tests.fuzz.target import FUZZ, HOOK, Target

pytestmark = pytest.mark.slow

_TEXT = {"type": "string"}
_COUNT = {"type": "integer"}
_STRUCT = {"type": "object"}


def _object(required: list[str] | None = None, **properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


_PART = {
    "oneOf": [
        _object(["text"], text=_TEXT, metadata=_STRUCT),
        _object(["data"], data={}, mediaType=_TEXT),
        _object(["raw"], raw={"type": "string", "format": "byte"}, filename=_TEXT),
        _object(["url"], url={"type": "string", "format": "uri"}),
    ]
}
_PUSH = _object(["url"], id=_TEXT, url={"enum": [HOOK, "http://10.0.0.1/", "x"]}, token=_TEXT)
_MESSAGE = _object(
    ["messageId", "role", "parts"],
    messageId={"type": "string", "minLength": 1, "maxLength": 50},
    role={"enum": ["ROLE_USER", "ROLE_AGENT"]},
    parts={"type": "array", "items": _PART, "minItems": 1, "maxItems": 5},
    contextId=_TEXT,
    taskId={"enum": ["nobody", ""]},
    metadata=_STRUCT,
    extensions={"type": "array", "items": _TEXT},
    referenceTaskIds={"type": "array", "items": _TEXT},
)
_SEND = _object(
    ["message", "configuration"],
    message=_MESSAGE,
    configuration=_object(
        ["returnImmediately"],
        returnImmediately={"const": True},
        historyLength=_COUNT,
        acceptedOutputModes={"type": "array", "items": _TEXT},
        taskPushNotificationConfig=_PUSH,
    ),
    metadata=_STRUCT,
    tenant={"enum": ["", "staged", "nobody"]},
)

_TASK = _object(["id", "contextId", "status"], id=_TEXT, contextId=_TEXT, status=_object(["state"]))
_TASKS = _object(["tasks", "pageSize", "totalSize"], tasks={"type": "array", "items": _TASK}, pageSize=_COUNT)
_DETAIL = _object(["@type", "reason", "domain"], reason=_TEXT, domain={"const": "a2a-protocol.org"})
_ERROR = _object(
    ["error"],
    error=_object(
        ["code", "status", "message", "details"],
        code=_COUNT,
        status=_TEXT,
        message=_TEXT,
        details={"type": "array", "items": _DETAIL, "minItems": 1},
    ),
)


def _media(schema: object) -> dict[str, Any]:
    return {"application/a2a+json": {"schema": schema}}


def _operation(
    result: object, *parameters: object, body: object = None, stream: bool = False
) -> dict[str, Any]:
    content = {"text/event-stream": {"schema": _TEXT}} if stream else _media(result)
    refused = {"application/json": {"schema": _ERROR}, **_media(_ERROR)}
    responses = {"200": {"description": "", "content": content}}
    for status in ("400", "404", "405", "413", "415"):
        responses[status] = {"description": "", "content": refused}
    declared: dict[str, Any] = {"parameters": [*parameters], "responses": responses}
    if body is not None:
        content = {"application/json": {"schema": body}}
        declared["requestBody"] = {"required": True, "content": content}
    return declared


def _parameter(where: str, name: str, schema: object) -> dict[str, Any]:
    return {"in": where, "name": name, "required": where == "path", "schema": schema}


def _document(task_id: str) -> dict[str, Any]:
    """Return the addresses of the REST binding; half of the tasks that are named exist."""
    task = _parameter("path", "task", {"enum": [task_id, "nobody", "%00", "a/b", "é" * 200]})
    config = _parameter("path", "config", {"type": "string", "minLength": 1, "maxLength": 300})
    query = {
        "contextId": _TEXT,
        "status": {"enum": ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]},
        "pageSize": _COUNT,
        "pageToken": _TEXT,
        "historyLength": _COUNT,
        "statusTimestampAfter": {"type": "string", "format": "date-time"},
        "includeArtifacts": {"type": "boolean"},
        "tenant": _TEXT,
    }
    filters = [_parameter("query", name, schema) for name, schema in query.items()]
    length, tenant = _parameter("query", "historyLength", _COUNT), _parameter("query", "tenant", _COUNT)
    configs = "/tasks/{task}/pushNotificationConfigs"
    return {
        "openapi": "3.1.0",
        "info": {"title": "A2A", "version": "1.0"},
        "paths": {
            "/message:send": {"post": _operation(_object(), body=_SEND)},
            "/message:stream": {"post": _operation(None, body=_SEND, stream=True)},
            "/tasks": {"get": _operation(_TASKS, *filters)},
            "/tasks/{task}": {"get": _operation(_TASK, task, length)},
            configs: {
                "get": _operation(_object(), task, _parameter("query", "pageSize", _COUNT)),
                "post": _operation(_object(["url"]), task, body=_PUSH),
            },
            f"{configs}/{{config}}": {
                "get": _operation(_object(["url"]), task, config),
                "delete": _operation(_object(), task, config),
            },
            "/extendedAgentCard": {"get": _operation(_object(["name", "skills"]), tenant)},
        },
    }


_OPERATIONS = [(path, method.upper()) for path, item in _document("x")["paths"].items() for method in item]
_CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


async def send(target: Target, case: Case[Any]) -> httpx.Response:
    """Send a case; of a stream only the beginning comes."""
    sent = case.as_transport_kwargs(base_url=target.gateway.url)
    sent["content"] = sent.pop("data", None)
    headers = {**sent.pop("headers"), "A2A-Version": "1.0"}
    async with target.gateway.http.stream(**sent, headers=headers) as answer:
        if not answer.headers["Content-Type"].startswith("text/event-stream"):
            await answer.aread()
        return answer


def check(case: Case[Any], answer: httpx.Response) -> None:
    """The answer is one of those that are described, and shows nothing of our insides."""
    if not answer.is_stream_consumed:
        assert answer.status_code == HTTPStatus.OK
        return
    case.validate_response(answer, checks=_CHECKS)
    if answer.is_error:
        assert len(answer.content) <= MAX_REFUSAL
        assert not insides(answer.text)


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize(("path", "method"), _OPERATIONS)
@given(data=st.data())
@settings(FUZZ, max_examples=20)
async def test_rest_answers_as_it_says(
    target: Target, path: str, method: str, mode: GenerationMode, data: st.DataObject
) -> None:
    """Requests that fit the description, and those that do not, are answered as described: never 500."""
    schema = schemathesis.openapi.from_dict(_document(target.task_id))
    case = data.draw(schema[path][method].as_strategy(mode))

    check(case, await send(target, case))
