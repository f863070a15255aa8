"""Headers, status codes and malformed input on every binding over HTTP: the same rules everywhere."""

import gzip
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from tests.gateway.grpc_harness import BODY_BYTES
from tests.support.wires.operations import params_of
from tests.support.wires.wires import REST, Call, HttpWire, Reply, reply_of

SECRETS = ("Traceback", 'File "', ".py", "pydantic", "protobuf", "ParseDict", "secret")
INVALID, NOT_FOUND = ((200, -32602), 400, "INVALID_PARAMS"), ((200, -32001), 404, "TASK_NOT_FOUND")
UNFIT = ((415, -32005), 415, "CONTENT_TYPE_NOT_SUPPORTED")
VERSION = ((200, -32009), 400, "VERSION_NOT_SUPPORTED")

Expected = tuple[tuple[int, int], int, str]
"""Status and code of JSON-RPC, the status of REST, which is its code too, and the reason."""


def check(reply: Reply, wire: HttpWire, expected: Expected) -> str:
    """Assert code, status and reason of an error, and that it shows no internals; return its text."""
    rpc, rest, reason = expected
    refused = reply.refusal
    assert refused, reply
    assert (refused.reason, refused.error_info["domain"]) == (reason, "a2a-protocol.org")
    assert (reply.status, refused.code) == ((rest, rest) if wire.binding == REST else rpc)
    for secret in SECRETS:
        assert secret not in reply.body.decode()
    return refused.message


async def answer(wire: HttpWire, call: Call) -> Reply:
    return reply_of(await wire.http.request(**call))


def reading(wire: HttpWire, **headers: str) -> Call:
    """Read a task that does not exist; `A2A_Version` stands for A2A-Version."""
    return wire.call("GetTask", {"id": "x"}, {name.replace("_", "-"): v for name, v in headers.items()})


async def test_versions_that_nobody_serves_are_refused(over_http: HttpWire) -> None:
    """The error names the versions of this server. Operations of one version are not served in the other."""
    for version in ("99.0", "1.1", "1.7", "0.2", "2.0", "banana", "9" * 5000, "1.0, 0.3"):
        text = check(await answer(over_http, reading(over_http, A2A_Version=version)), over_http, VERSION)
        assert "this server speaks 1.0 and 0.3" in text
    call = reading(over_http)
    call["headers"] = {"A2A-Version": "1.0"} if over_http.is_legacy else {}
    text = check(await answer(over_http, call), over_http, VERSION)
    assert ("A2A-Version: 0.3" if over_http.is_legacy else "send the header A2A-Version: 1.0") in text


async def test_patch_versions_and_queries_are_understood(over_http: HttpWire) -> None:
    """The patch number is ignored; the query may name the version; header names have no case."""
    for suffix in ("", ".0", ".17"):
        version = over_http.version + suffix
        in_query: Call = {**reading(over_http), "headers": {}}
        in_query["params"] = {**in_query.get("params", {}), "A2A-Version": version}
        lower: Call = {**reading(over_http), "headers": {"a2a-version": version}}
        for call in (reading(over_http, A2A_Version=version), in_query, lower):
            check(await answer(over_http, call), over_http, NOT_FOUND)


async def test_a_body_has_to_be_declared_as_json(over_http: HttpWire) -> None:
    """As JSON or as A2A's JSON, with parameters: browsers send other types without a preflight.

    A compressed body is refused with an error that says so.
    """
    call = over_http.call("SendMessage", params_of("SendMessage"))
    body = json.dumps(call["json"]).encode()
    for kind in ("application/json", "application/a2a+json", "Application/JSON; charset=utf-8"):
        taken = await answer(over_http, over_http.raw_body(body, **{"Content-Type": kind}))
        assert (taken.status, taken.refusal) == (200, None)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "json"):
        headers = {"Content-Type": kind} if kind else {}
        refused = await answer(over_http, over_http.raw_body(body, **headers))
        text = check(refused, over_http, UNFIT)
        assert "Content-Type: application/json" in text
    json_type = {"Content-Type": "application/json"}
    for coding in ("", "Identity"):
        sent = over_http.raw_body(body, **json_type, **{"Content-Encoding": coding})
        plain = await answer(over_http, sent)
        assert (plain.status, plain.refusal) == (200, None)
    packed = over_http.raw_body(gzip.compress(body), **json_type, **{"Content-Encoding": "gzip"})
    text = check(await answer(over_http, packed), over_http, UNFIT)
    assert "Content-Encoding is 'gzip'; send the body as it is" in text


BODIES = {
    "empty": b"",
    "cut off": b'{"secret',
    "no UTF-8": b'{"\xff": 1}',
    "nested": b"[" * 100_000,
    "long number": b"9" * 5000,
    "NaN": b'{"x": NaN}',
    "the same name twice": b'{"secret": 1, "secret": 2}',
}


async def test_what_is_no_json_is_refused(over_http: HttpWire) -> None:
    """The error does not repeat the body."""
    for body in BODIES.values():
        reply = await answer(over_http, over_http.raw_body(body, **{"Content-Type": "application/json"}))
        check(reply, over_http, ((200, -32700), 400, "PARSE_ERROR"))


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_refused(over_http: HttpWire, *, declared: bool) -> None:
    """413, and the text names the limit, with a Content-Length and without."""
    body = b'{"x": "' + b"y" * BODY_BYTES + b'"}'

    async def pieces() -> AsyncGenerator[bytes]:
        yield body

    call = over_http.raw_body(body, **{"Content-Type": "application/json"})
    reply = await answer(over_http, call if declared else {**call, "content": pieces()})
    text = check(reply, over_http, ((413, -32600), 413, "CONTENT_TOO_LARGE"))
    assert f"larger than the {BODY_BYTES} bytes" in text


DEEP = json.loads("[" * 300 + "]" * 300)

PARAMS: dict[str, object] = {
    "list": [],
    "message is a text": {"message": "secret"},
    "message is a list": {"message": []},
    "no parts": {"message": {"messageId": "m", "role": "ROLE_USER"}},
    "odd role": {"message": {"messageId": "m", "role": "secret", "parts": [{"text": "x"}]}},
    "odd part": {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": 5}]}},
    "nested": {"message": {"messageId": "m", "metadata": {"x": DEEP}}},
    "nested metadata": {"message": {"messageId": "m", "role": "user", "parts": []}, "metadata": {"x": DEEP}},
    "half a character": {"message": {"messageId": "\ud800", "role": "user", "parts": []}},
}


@pytest.mark.parametrize("stream", [False, True])
async def test_parameters_that_do_not_fit_are_refused(over_http: HttpWire, *, stream: bool) -> None:
    """Streams too are refused with a plain error, before they begin."""
    for params in PARAMS.values():
        call = over_http.raw(params, stream=stream)
        call["content"] = json.dumps(call.pop("json")).encode()
        call["headers"]["Content-Type"] = "application/json"
        check(await answer(over_http, call), over_http, INVALID)


async def test_files_that_are_no_base64_are_refused(over_http: HttpWire) -> None:
    """A lenient decoder would produce another file."""
    parts: dict[str, Any] = {"parts": [{"raw": "secret!"}]}
    if over_http.is_legacy:
        parts = {"parts": [{"kind": "file", "file": {"bytes": "secret!"}}]}
    if over_http.name == "REST 0.3":
        parts = {"content": [{"file": {"fileWithBytes": "secret!"}}]}
    role = "user" if over_http.name == "JSON-RPC 0.3" else "ROLE_USER"
    reply = await answer(over_http, over_http.raw({"message": {"messageId": "m", "role": role, **parts}}))
    assert "is no base64" in check(reply, over_http, INVALID)


@pytest.mark.parametrize("place", ["part", "metadata"])
async def test_whole_numbers_that_would_become_others_are_refused(over_http: HttpWire, place: str) -> None:
    """A2A carries numbers as doubles: 9007199254740993 would silently become 9007199254740992."""
    value = {"secret": [{"id": 2**53 + 1}]}
    part: dict[str, Any] = {"data": value}
    if over_http.is_legacy:
        part = {"data": {"data": value}} if over_http.name == "REST 0.3" else {"kind": "data", "data": value}
    text: dict[str, Any] = {"kind": "text", "text": "x"} if "kind" in part else {"text": "x"}
    sent: dict[str, Any] = {"metadata": value, "parts": [text]} if place == "metadata" else {"parts": [part]}
    if over_http.name == "REST 0.3":
        sent["content"] = sent.pop("parts")
    role = "user" if over_http.name == "JSON-RPC 0.3" else "ROLE_USER"

    reply = await answer(over_http, over_http.raw({"message": {"messageId": "m", "role": role, **sent}}))

    assert "has a whole number that no double is; send it as a text" in check(reply, over_http, INVALID)


async def test_the_extension_is_confirmed(over_http: HttpWire) -> None:
    """The answer repeats the header that activated the extension; header names have no case."""
    name = "X-A2A-Extensions" if over_http.is_legacy else "A2A-Extensions"
    for each in (name, name.lower()):
        asked = {each: f"https://example.com/other, {EVENTS_EXTENSION}"}
        reply = await over_http.send("GetTask", {"id": "x"}, asked)
        assert reply.headers[name.lower()] == EVENTS_EXTENSION
