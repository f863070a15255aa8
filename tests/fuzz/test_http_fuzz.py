"""Any input to the bindings over HTTP gets an answer of theirs, without internals."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from tests.support.wires import operations
from tests.support.wires.operations import LEGACY, OPERATIONS, params_of
from tests.support.wires.wires import JSONRPC, OVER_HTTP, Reply, http_wires

TASK = "the-task-that-there-is"
"""A placeholder for its id."""

INTERNAL = -32603
_CODES = {code for code in JSON_RPC_ERROR_CODE_MAP.values() if code != INTERNAL}
_STATUSES = {400, 404, 405, 413, 415}

_WIRES = http_wires(httpx.AsyncClient())  # for what they write: nothing is sent by this client

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
_QUERY = st.dictionaries(
    st.sampled_from(["contextId", "status", "pageSize", "pageToken", "historyLength", "includeArtifacts"])
    | st.sampled_from(["statusTimestampAfter", "tenant", "x"]),
    st.text(max_size=20)
    | st.sampled_from([broken.decode(errors="ignore").strip('"') for broken in BROKEN if len(broken) < 100]),
    max_size=3,
)
_ODD_IDS = st.sampled_from(["%00", "a%2Fb", "%C3%A9" * 200, "%ff", "..", ":", " "])


@dataclass(frozen=True)
class Request:
    """A request on the binding of this name."""

    wire: str
    method: str
    url: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Sample:
    """A valid request, if it names a task; `tree` is its body, if it has one."""

    request: Request
    tree: Mapping[str, Any] | None
    names_task: bool

    @property
    def whole(self) -> Request:
        body = b"" if self.tree is None else json.dumps(self.tree).encode()
        return replace(self.request, body=body)


def _sample(wire: str, operation: str, task: str) -> Sample:
    params = json.loads(json.dumps(params_of(operation, task, CONFIG)).replace(operations.HOOK, HOOK))
    call = _WIRES[wire].call(operation, params)
    headers = {"Content-Type": "application/json", **call["headers"]}
    request = Request(wire, call["method"], call["url"], headers=headers, query=call.get("params", {}))
    return Sample(request, call.get("json"), bool(task))


_SAMPLES = [
    _sample(wire, operation, task)
    for wire in OVER_HTTP
    for operation in (LEGACY if _WIRES[wire].is_legacy else OPERATIONS)
    for task in (TASK, "nobody", "")
    if (operation, task) != ("CancelTask", TASK)  # it would be gone for the other samples
]

_PUSH = {"url": HOOK, "token": "t", "authentication": {"scheme": "Bearer", "credentials": "c"}}
_MESSAGE: dict[str, Any] = {
    "messageId": "new",
    "contextId": "new",
    "taskId": "nobody",  # which is found last
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
}
_CONFIGURATION = {"acceptedOutputModes": ["text/plain"], "historyLength": 1}
_OLD_PARTS = [
    {"kind": "text", "text": "hi", "metadata": {"a": 1}},
    {"kind": "data", "data": {"a": [1]}},
    {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}},
    {"kind": "file", "file": {"uri": "https://there.example/a"}},
]
_OLD_PUSH = {**_PUSH, "authentication": {"schemes": ["Bearer"], "credentials": "c"}}
_FULL: dict[str, dict[str, Any]] = {
    "1.0": {
        "message": _MESSAGE,
        "configuration": {**_CONFIGURATION, "returnImmediately": True, "taskPushNotificationConfig": _PUSH},
        "metadata": {"a": 1},
    },
    "0.3": {
        "message": {**_MESSAGE, "kind": "message", "role": "user", "parts": _OLD_PARTS},
        "configuration": {**_CONFIGURATION, "blocking": False, "pushNotificationConfig": _OLD_PUSH},
        "metadata": {"a": 1},
    },
}
"""The parameters of a message with all of its fields, by version."""


def _tree(version: str, params: object) -> dict[str, Any]:
    """Return the body of a message with these parameters."""
    return _WIRES[f"JSON-RPC {version}"].raw(params)["json"]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Return a request that is almost right."""
    sample = draw(st.sampled_from(_SAMPLES))
    request = sample.request
    if sample.tree is None:
        request = replace(request, query={**request.query, **draw(_QUERY)})
    else:
        request = replace(request, body=draw(mutated(sample.tree)))
    if draw(st.integers(0, 4)) == 0:
        request = replace(request, headers={**request.headers, **draw(_HEADERS)})
    if draw(st.integers(0, 4)) == 0:
        request = replace(request, url=request.url.replace("nobody", draw(_ODD_IDS)))
    return request


async def send(target: Target, request: Request) -> Reply:
    """Return the answer, of a stream the first event."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in request.headers.items()]
    async with target.gateway.http.stream(
        request.method,
        request.url.replace(TASK, target.task_id),
        content=request.body.replace(TASK.encode(), target.task_id.encode()),
        params=request.query or None,
        headers=headers,
        timeout=20,
    ) as answer:
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    return Reply(answer.status_code, {}, line.removeprefix("data: ").encode())
        return Reply(answer.status_code, {}, await answer.aread())


async def post(target: Target, version: str, body: bytes) -> Reply:
    headers = {"Content-Type": "application/json", "A2A-Version": version}
    return await send(target, Request(f"JSON-RPC {version}", "POST", "/", body, headers))


def _no_json(constant: str) -> NoReturn:
    raise AssertionError(constant)


def check(reply: Reply, wire: str = f"{JSONRPC} 1.0") -> None:
    """Assert that it is an answer of the binding: a result, or a known code without internals."""
    told: Any = json.loads(reply.body.decode(), parse_constant=_no_json)  # Python alone reads Infinity too
    refused = reply.refusal
    if wire.startswith("REST"):
        assert (reply.status == 200) is (refused is None), reply
        assert refused is None or refused.code == reply.status in _STATUSES, reply
    else:
        assert reply.status in {200, 413, 415}, reply
        assert told["jsonrpc"] == "2.0"
        assert ("result" in told) is (refused is None)
        assert refused is None or refused.code in _CODES, reply
    if refused:
        assert refused.reason, reply
        assert len(reply.body) <= MAX_REFUSAL
        assert not insides(reply.body.decode())


def batched(bodies: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the bodies in batches of this size."""
    remaining = iter(bodies)
    while batch := [*islice(remaining, size)]:
        yield batch


@pytest.mark.slow
@given(request=requests())
@settings(FUZZ, max_examples=1000)
async def test_requests_that_are_almost_right(target: Target, request: Request) -> None:
    """Fields of other types, missing, twice or of any size: a result or a refusal, never a failure."""
    check(await send(target, request), request.wire)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_anything_in_the_place_of_any_field_of_a_message(target: Target, version: str) -> None:
    """Text that is not UTF-8, numbers of thousands of digits, brackets by the thousand."""
    for bodies in batched(exchanges(_tree(version, _FULL[version])), 8):
        for reply in await asyncio.gather(*(post(target, version, body) for body in bodies)):
            check(reply)
    assert await target.is_well()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_what_passes_as_content_can_be_worked_on(target: Target, version: str) -> None:
    """A task starts with any valid content of a message, and shows it."""
    is_old = version == "0.3"
    data = {"kind": "data", "data": {"a": "@mark-0@"}} if is_old else {"data": "@mark-0@"}
    text = {"kind": "text", "text": "@mark-0@"} if is_old else {"text": "@mark-0@"}
    configuration = {"blocking": False} if is_old else {"returnImmediately": True}
    bodies: list[bytes] = []
    for content, parts in product(BROKEN, ([data], [text], [text, data])):
        message = {"messageId": unique("m"), "role": "user" if is_old else "ROLE_USER", "parts": parts}
        params = {"message": {**message, "metadata": {"a": "@mark-0@"}}, "configuration": configuration}
        bodies.append(written(_tree(version, params), [content]))
    results = 0

    for batch in batched(bodies, 8):
        for reply in await asyncio.gather(*(post(target, version, body) for body in batch)):
            check(reply)
            results += reply.refusal is None
    assert results > 20


@pytest.mark.slow
@given(body=st.binary(max_size=300), wire=st.sampled_from(OVER_HTTP))
@settings(FUZZ, max_examples=200)
async def test_bodies_that_are_no_requests(target: Target, body: bytes, wire: str) -> None:
    """Any bytes are answered, with an error."""
    call = _WIRES[wire].raw({})
    headers = {**call["headers"], "Content-Type": "application/json"}
    reply = await send(target, Request(wire, "POST", call["url"], body, headers))

    check(reply, wire)
    assert reply.refusal


async def test_every_sample_is_understood(target: Target) -> None:
    """The fuzzer's samples are valid: the gateway refuses none as malformed, and still serves."""
    for sample in _SAMPLES:
        reply = await send(target, sample.whole)
        check(reply, sample.request.wire)
        if sample.names_task:
            assert reply.reason in {"", "TASK_NOT_FOUND", "UNSUPPORTED_OPERATION"}, reply
    assert await target.is_well()
