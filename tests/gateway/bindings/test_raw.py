"""Headers, status codes and malformed input on every binding over HTTP: the same rules everywhere."""

import json
from collections.abc import AsyncGenerator

import httpx
import pytest
import pytest_asyncio

from tests.gateway.bindings.raw_calls import RAW_BINDINGS, RawBinding, changed
from tests.gateway.harness import AGENT, RunningGateway, unique

pytestmark = pytest.mark.parametrize("binding", RAW_BINDINGS, ids=str)

SECRETS = ("Traceback", 'File "', ".py", "pydantic", "protobuf", "ParseDict", "secret")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def http(gateway: RunningGateway) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        yield http


def check(response: httpx.Response, binding: RawBinding, rpc: tuple[int, int], rest: int, reason: str) -> str:
    """The error has this code, status and reason, and shows nothing of our insides; return its text."""
    error = binding.error(response)
    assert error["reason"] == reason
    if binding.is_rest:
        assert (response.status_code, error["code"]) == (rest, rest)
    else:
        assert (response.status_code, error["code"]) == rpc
    for secret in SECRETS:
        assert secret not in response.text
    return error["message"]


async def test_unknown_and_known_addresses(http: httpx.AsyncClient, binding: RawBinding) -> None:
    """Every agent answers at its own address; without one there is nothing."""
    call = binding.get("x")
    known = await http.request(**changed(call, url=f"/agents/{AGENT.id}{call['url']}"))
    unknown = await http.request(**changed(call, url=f"/agents/nobody{call['url']}"))

    check(known, binding, (200, -32001), 404, "TASK_NOT_FOUND")
    text = check(unknown, binding, (404, -32600), 404, "ADDRESS_UNKNOWN")
    assert "no agent 'nobody' here" in text


@pytest.mark.parametrize("version", ["99.0", "1.1", "0.2", "2.0", "banana", "9" * 5000, "1.0, 0.3"])
async def test_versions_that_nobody_serves_are_refused(
    http: httpx.AsyncClient, binding: RawBinding, version: str
) -> None:
    """The error names the versions of this server."""
    call = binding.get("x")
    call["headers"]["A2A-Version"] = version

    text = check(await http.request(**call), binding, (200, -32009), 400, "VERSION_NOT_SUPPORTED")
    assert "this server speaks 1.0 and 0.3" in text


async def test_the_other_version_is_told_what_to_send(http: httpx.AsyncClient, binding: RawBinding) -> None:
    """What is of one version is not served in the other; none means 0.3."""
    call = binding.get("x")
    call["headers"] = {} if binding.version == "1.0" else {"A2A-Version": "1.0"}

    text = check(await http.request(**call), binding, (200, -32009), 400, "VERSION_NOT_SUPPORTED")
    assert ("send the header A2A-Version: 1.0" if binding.version == "1.0" else "A2A-Version: 0.3") in text


@pytest.mark.parametrize("suffix", ["", ".0", ".17"])
async def test_patch_versions_and_queries_are_understood(
    http: httpx.AsyncClient, binding: RawBinding, suffix: str
) -> None:
    """A patch number changes nothing, nor does naming the version in the query."""
    call = binding.get("x")
    call["headers"]["A2A-Version"] = binding.version + suffix
    in_query = binding.get("x")
    in_query["headers"], in_query["params"] = {}, {"A2A-Version": binding.version + suffix}

    for each in (call, in_query):
        check(await http.request(**each), binding, (200, -32001), 404, "TASK_NOT_FOUND")


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/a2a+json", "Application/JSON; charset=utf-8", "application/json;x=y"],
)
async def test_json_may_be_declared_in_two_ways(
    http: httpx.AsyncClient, binding: RawBinding, content_type: str
) -> None:
    """As JSON or as A2A's JSON, with parameters."""
    body = json.dumps(binding.send("hi", unique("m"))["json"]).encode()

    response = await http.request(**binding.body(body, **{"Content-Type": content_type}))

    assert response.status_code == 200
    assert "error" not in response.json()


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
async def test_what_is_not_declared_as_json_is_refused(
    http: httpx.AsyncClient, binding: RawBinding, content_type: str
) -> None:
    """Web pages of others can send such bodies without asking."""
    body = json.dumps(binding.send("hi", unique("m"))["json"]).encode()
    headers = {"Content-Type": content_type} if content_type else {}

    response = await http.request(**binding.body(body, **headers))

    text = check(response, binding, (415, -32005), 415, "CONTENT_TYPE_NOT_SUPPORTED")
    assert "Content-Type: application/json" in text


BODIES = {
    "empty": b"",
    "cut off": b'{"secret',
    "no UTF-8": b'{"\xff": 1}',
    "nested": b"[" * 100_000,
    "long number": b"9" * 5000,
    "NaN": b'{"x": NaN}',
    "the same name twice": b'{"secret": 1, "secret": 2}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_what_is_no_json_is_refused(http: httpx.AsyncClient, binding: RawBinding, body: bytes) -> None:
    """The text repeats nothing of it."""
    response = await http.request(**binding.body(body, **{"Content-Type": "application/json"}))

    check(response, binding, (200, -32700), 400, "PARSE_ERROR")


async def test_a_body_over_the_limit_is_refused(http: httpx.AsyncClient, binding: RawBinding) -> None:
    """The text names the limit."""
    body = b'{"x": "' + b"y" * 17_000_000 + b'"}'

    response = await http.request(**binding.body(body, **{"Content-Type": "application/json"}))

    text = check(response, binding, (413, -32600), 413, "CONTENT_TOO_LARGE")
    assert "larger than the 16000000 bytes" in text


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
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
async def test_parameters_that_do_not_fit_are_refused(
    http: httpx.AsyncClient, binding: RawBinding, params: object, *, stream: bool
) -> None:
    """Streams too are refused with a plain error, before they begin."""
    call = binding.send_params(params, stream=stream)
    call["content"] = json.dumps(call.pop("json")).encode()
    call["headers"]["Content-Type"] = "application/json"

    check(await http.request(**call), binding, (200, -32602), 400, "INVALID_PARAMS")


async def test_files_that_are_no_base64_are_refused(http: httpx.AsyncClient, binding: RawBinding) -> None:
    """A decoder would make another file of it."""
    parts: dict[str, object] = {"parts": [{"raw": "secret!"}]}
    if binding.version == "0.3" and binding.is_rest:
        parts = {"content": [{"file": {"fileWithBytes": "secret!"}}]}
    elif binding.version == "0.3":
        parts = {"parts": [{"kind": "file", "file": {"bytes": "secret!"}}]}
    role = "user" if binding.name == "JSON-RPC 0.3" else "ROLE_USER"
    call = binding.send_params({"message": {"messageId": "m", "role": role, **parts}})

    text = check(await http.request(**call), binding, (200, -32602), 400, "INVALID_PARAMS")
    assert "is no base64" in text


async def test_the_extension_is_confirmed(http: httpx.AsyncClient, binding: RawBinding) -> None:
    """Under the name of the header that activated it."""
    uri = "https://everloop.dev/extensions/events/v1"
    name = "A2A-Extensions" if binding.version == "1.0" else "X-A2A-Extensions"
    call = binding.get("x")
    call["headers"][name] = f"https://example.com/other, {uri}"

    response = await http.request(**call)

    assert response.headers[name] == uri


async def test_http_methods_that_an_address_does_not_take(
    http: httpx.AsyncClient, binding: RawBinding
) -> None:
    """405 says which it takes."""
    call = changed(binding.send("x", "m"), method="PUT")

    response = await http.request(**call)

    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert response.json()["error"]["details"][0]["reason"] == "METHOD_NOT_ALLOWED"
