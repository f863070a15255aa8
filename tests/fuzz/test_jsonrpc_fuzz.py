"""Whatever comes to the JSON-RPC endpoint is answered as JSON-RPC, and nothing of our insides gets out."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, NoReturn

import httpx
import pytest
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.insides import MAX_REFUSAL, insides
from tests.fuzz.mutations import BROKEN, exchanges, mutated, written
from tests.fuzz.target import CONFIG, FUZZ, HOOK, Target
from tests.gateway.harness import unique
from tests.support.wires.operations import LEGACY, OPERATIONS, legacy_params, params_of

TASK = "the task that there is"
"""Stands for its id."""

INTERNAL = -32603

_KNOWN = {code for code in JSON_RPC_ERROR_CODE_MAP.values() if code != INTERNAL}
_STATUSES = {200, 413, 415}

_HEADERS: st.SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {},
    optional={
        "A2A-Version": st.sampled_from(["1.0", "0.3", "", "99.0", "1", "x" * 1000, "1.0, 0.3", "9" * 5000]),
        "A2A-Extensions": st.sampled_from(["", ",", "urn:x", "x," * 2000, "\xff"]),
        "Content-Type": st.sampled_from(
            ["application/json", "text/plain", "", "application/json; charset=utf-16", "a/" * 2000]
        ),
        "Last-Event-ID": st.sampled_from(["", "0-0", "x", "9" * 5000, "1-1-1", "18446744073709551616-0"]),
        "Idempotency-Key": st.sampled_from(["", "x", "y" * 300, "..", "\xff"]),
        "traceparent": st.sampled_from(["", "00-0-0-0", "00-" + "f" * 32 + "-" + "0" * 16 + "-01"]),
    },
)


@dataclass(frozen=True)
class Sample:
    """A request that is right, and the version that it is of."""

    version: str
    body: Mapping[str, Any]


def _sample(operation: str, version: str, task: str) -> Sample:
    params = params_of(operation, task, CONFIG)
    params = legacy_params(operation, params) if version == "0.3" else params
    written = json.dumps(params).replace("https://hooks.example/x", HOOK)
    method = OPERATIONS[operation].method if version == "0.3" else operation
    return Sample(version, {"jsonrpc": "2.0", "id": 1, "method": method, "params": json.loads(written)})


def _samples() -> list[Sample]:
    versions = {"1.0": [*OPERATIONS], "0.3": LEGACY}
    return [
        _sample(operation, version, task)
        for version, operations in versions.items()
        for operation in operations
        for task in (TASK, "nobody", "")
        if (operation, task) != ("CancelTask", TASK)  # it would be gone for the other samples
    ]


_PUSH = {"url": HOOK, "token": "t", "authentication": {"scheme": "Bearer", "credentials": "c"}}
_FULL: dict[str, tuple[str, dict[str, Any]]] = {
    "1.0": (
        "SendMessage",
        {
            "message": {
                "messageId": "new",
                "contextId": "new",
                "role": "ROLE_USER",
                "parts": [
                    {"text": "hi", "metadata": {"a": 1}},
                    {"data": {"a": [1]}, "mediaType": "application/json"},
                    {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"},
                    {"url": "https://there.example/a"},
                ],
                "metadata": {"a": {"b": 1}},
                "extensions": ["urn:x"],
                "referenceTaskIds": [],
            },
            "configuration": {
                "acceptedOutputModes": ["text/plain"],
                "historyLength": 1,
                "returnImmediately": True,
                "taskPushNotificationConfig": _PUSH,
            },
            "metadata": {"a": 1},
        },
    ),
    "0.3": (
        "message/send",
        {
            "message": {
                "kind": "message",
                "messageId": "new",
                "contextId": "new",
                "role": "user",
                "parts": [
                    {"kind": "text", "text": "hi", "metadata": {"a": 1}},
                    {"kind": "data", "data": {"a": [1]}},
                    {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}},
                    {"kind": "file", "file": {"uri": "https://there.example/a"}},
                ],
                "metadata": {"a": {"b": 1}},
                "extensions": ["urn:x"],
                "referenceTaskIds": [],
            },
            "configuration": {
                "acceptedOutputModes": ["text/plain"],
                "historyLength": 1,
                "blocking": False,
                "pushNotificationConfig": {
                    "url": HOOK,
                    "token": "t",
                    "authentication": {"schemes": ["Bearer"], "credentials": "c"},
                },
            },
            "metadata": {"a": 1},
        },
    ),
}
"""A message with all that it can have, by version."""


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request that is almost right."""
    sample = draw(st.sampled_from(_samples()))
    headers = {"Content-Type": "application/json", "A2A-Version": sample.version}
    if draw(st.integers(0, 4)) == 0:
        headers |= draw(_HEADERS)
    return draw(mutated(sample.body)), headers


async def post(target: Target, body: bytes, headers: Mapping[str, str]) -> tuple[httpx.Response, bytes]:
    """Return an answer and its body, of a stream the first event."""
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    async with target.gateway.http.stream("POST", "/", content=body, headers=sent, timeout=20) as answer:
        if answer.headers["Content-Type"].startswith("text/event-stream"):
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    return answer, line.removeprefix("data: ").encode()
        return answer, await answer.aread()


def _no_json(constant: str) -> NoReturn:
    raise AssertionError(constant)


def read_json(content: bytes) -> Any:  # noqa: ANN401 -- any JSON
    """Return what JSON says; Python alone would read Infinity too."""
    return json.loads(content.decode(), parse_constant=_no_json)


def check(answer: httpx.Response, content: bytes) -> None:
    """It is an answer of JSON-RPC: a result, or an error of a known code that tells only what it must."""
    told = read_json(content)
    assert answer.status_code in _STATUSES, content
    assert told["jsonrpc"] == "2.0"
    assert ("result" in told) is not ("error" in told)
    if "error" not in told:
        return
    error = told["error"]
    assert error["code"] in _KNOWN, error
    assert error["data"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert len(content) <= MAX_REFUSAL
    assert not insides(content.decode())


def batched(bodies: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the bodies, so many at a time."""
    remaining = iter(bodies)
    while batch := [*islice(remaining, size)]:
        yield batch


@pytest.mark.slow
@given(request=requests())
@settings(FUZZ, max_examples=400)
async def test_requests_that_are_almost_right(target: Target, request: tuple[bytes, dict[str, str]]) -> None:
    """Fields of other types, gone, twice or of any size: a result or a refusal, never a failure."""
    body, headers = request
    check(*await post(target, body.replace(TASK.encode(), target.task_id.encode()), headers))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_anything_in_the_place_of_any_field_of_a_message(target: Target, version: str) -> None:
    """Text that is no UTF-8, numbers of thousands of digits, brackets by the thousand."""
    method, params = _FULL[version]
    message = {**params["message"], "taskId": "nobody"}  # which is found out last
    sample = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "message": message}}
    headers = {"Content-Type": "application/json", "A2A-Version": version}

    for bodies in batched(exchanges(sample), 8):
        for answer in await asyncio.gather(*(post(target, body, headers) for body in bodies)):
            check(*answer)
    assert await target.is_well()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_what_passes_as_content_can_be_worked_on(target: Target, version: str) -> None:
    """Whatever a message may hold, a task starts with it, and is shown with it."""
    data = {"data": "@mark-0@"} if version == "1.0" else {"kind": "data", "data": {"a": "@mark-0@"}}
    text = {"text": "@mark-0@"} if version == "1.0" else {"kind": "text", "text": "@mark-0@"}
    role, method = ("ROLE_USER", "SendMessage") if version == "1.0" else ("user", "message/send")
    headers = {"Content-Type": "application/json", "A2A-Version": version}
    bodies: list[bytes] = []
    for content, parts in product(BROKEN, ([data], [text], [text, data])):
        message = {"messageId": unique("m"), "role": role, "parts": parts, "metadata": {"a": "@mark-0@"}}
        configuration = {"returnImmediately": True} if version == "1.0" else {"blocking": False}
        params = {"message": message, "configuration": configuration}
        sample = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        bodies.append(written(sample, [content]))
    results = 0

    for batch in batched(bodies, 8):
        for answer, content in await asyncio.gather(*(post(target, body, headers) for body in batch)):
            check(answer, content)
            results += "result" in read_json(content)
    assert results > 20


@pytest.mark.slow
@given(body=st.binary(max_size=300))
@settings(FUZZ, max_examples=100)
async def test_bodies_that_are_no_requests(target: Target, body: bytes) -> None:
    """Any bytes are answered, with an error."""
    answer, content = await post(target, body, {"Content-Type": "application/json"})

    check(answer, content)
    assert "error" in json.loads(content)


async def test_every_sample_is_understood(target: Target) -> None:
    """What the fuzzer starts from is right: the gateway refuses none as malformed, and still serves."""
    for sample in _samples():
        body = json.dumps(sample.body).replace(TASK, target.task_id).encode()
        headers = {"Content-Type": "application/json", "A2A-Version": sample.version}
        answer, content = await post(target, body, headers)
        check(answer, content)
        code = json.loads(content).get("error", {}).get("code", 0)
        assert code in {0, -32001, -32004} or '""' in body.decode(), content
    assert await target.is_well()
