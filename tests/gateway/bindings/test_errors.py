"""What a client is told when something is wrong with its request: clearly, and nothing of our insides."""

import json
import logging
from collections.abc import AsyncGenerator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.client import Client

from everloop.gateway.errors import ANSWERS, NoWorkerError, TaskUnknownError, to_a2a
from everloop.stores.views.interface import TaskViews
from tests.gateway.harness import RunningGateway, running_gateway, unique

INVALID_PARAMS = -32602
TASK_NOT_FOUND = -32001


def message(**changes: object) -> dict[str, object]:
    """Return the params of a valid SendMessage, with changes to the message."""
    valid = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    return {"message": {**valid, **changes}}


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


def check_error(response: httpx.Response, code: int, words: str) -> None:
    """The body is a JSON-RPC error of this code; it says these words and shows no code of ours."""
    error = response.json()["error"]
    assert error["code"] == code
    assert words in error["message"]
    for secret in ("Traceback", 'File "', ".py", "gateway.", "temporalio", "redis"):
        assert secret not in response.text


@pytest.mark.parametrize(
    ("params", "code", "words"),
    [
        ({}, INVALID_PARAMS, "message is missing"),
        (message(messageId=""), INVALID_PARAMS, "message.messageId is empty"),
        (message(messageId="x" * 256), INVALID_PARAMS, "message.messageId has 256 bytes; an id may have 255"),
        (message(messageId="é" * 200), INVALID_PARAMS, "message.messageId has 400 bytes"),
        (message(messageId="a\nb"), INVALID_PARAMS, "message.messageId has control characters"),
        (message(taskId="a\x00b"), INVALID_PARAMS, "message.taskId has control characters"),
        (message(contextId="x" * 300), INVALID_PARAMS, "message.contextId has 300 bytes"),
        (message(role="ROLE_AGENT"), INVALID_PARAMS, "message.role must be ROLE_USER"),
        (message(role="ROLE_KING"), INVALID_PARAMS, "message.role has to be one of ROLE_USER, ROLE_AGENT"),
        (message(parts=[]), INVALID_PARAMS, "message.parts is empty"),
        (message(parts=[{"filename": "x"}]), INVALID_PARAMS, "message.parts[0] is empty"),
        (message(parts=[{"text": ""}, {"text": " \n"}]), INVALID_PARAMS, "all its texts are empty"),
        (message(parts=[{"text": "x" * 11_000_000}]), INVALID_PARAMS, "this server takes 10000000"),
        (message(parts=[{"data": {"x": "y" * 11_000_000}}]), INVALID_PARAMS, "this server takes 10000000"),
        (message(metadata={"x": "y" * 11_000_000}), INVALID_PARAMS, "this server takes 10000000"),
        (message(parts=[{"text": "x"}, {"url": "x"}]), INVALID_PARAMS, "message.parts[1].url is no address"),
        (
            message(parts=[{"text": 5}]),
            INVALID_PARAMS,
            "message.parts[0].text is a number; it has to be a text",
        ),
        ({**message(), "configuration": {"historyLength": -1}}, INVALID_PARAMS, "historyLength is -1"),
        (
            {**message(), "configuration": {"taskPushNotificationConfig": {"url": "http://x"}}},
            -32003,
            "Push Notification is not supported",
        ),
        (message(taskId="../../etc"), TASK_NOT_FOUND, "no task '../../etc' here"),
        (message(taskId="}:{*}"), TASK_NOT_FOUND, "no task '}:{*}' here"),
        ([], INVALID_PARAMS, "message"),
        ("hello", -32600, ""),
        (None, INVALID_PARAMS, ""),
    ],
)
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_message_that_cannot_be_taken_is_refused(
    gateway: RunningGateway, method: str, params: object, code: int, words: str
) -> None:
    """Each refusal has the code of A2A 1.0 §5.4 and names the field, what is wrong and what was expected."""
    response = await gateway.call(method, params)

    assert response.status_code == 200
    check_error(response, code, words if isinstance(params, dict) else "")


@pytest.mark.parametrize(
    ("method", "params", "code", "words"),
    [
        ("GetTask", {"id": "nobody"}, TASK_NOT_FOUND, "no task 'nobody' here"),
        ("GetTask", {}, INVALID_PARAMS, "id is empty"),
        ("GetTask", {"id": "a\tb"}, INVALID_PARAMS, "id has control characters"),
        ("GetTask", {"id": "nobody", "historyLength": -2}, INVALID_PARAMS, "historyLength is -2"),
        ("CancelTask", {"id": "nobody"}, TASK_NOT_FOUND, "no task 'nobody' here"),
        ("SubscribeToTask", {"id": "nobody"}, TASK_NOT_FOUND, "no task 'nobody' here"),
        ("ListTasks", {"pageSize": 0}, INVALID_PARAMS, "pageSize is 0; it must be 1 to 100"),
        ("ListTasks", {"pageSize": 101}, INVALID_PARAMS, "pageSize is 101"),
        ("ListTasks", {"pageToken": "bad"}, INVALID_PARAMS, "pageToken is not one that ListTasks returned"),
        ("ListTasks", {"historyLength": -1}, INVALID_PARAMS, "historyLength is -1"),
        ("ListTasks", {"contextId": "a\nb"}, INVALID_PARAMS, "contextId has control characters"),
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "http://x"}, TASK_NOT_FOUND, "no task"),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, TASK_NOT_FOUND, "no task"),
        ("ListTaskPushNotificationConfigs", {"taskId": "t"}, TASK_NOT_FOUND, "no task"),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, TASK_NOT_FOUND, "no task"),
        ("ListTasks", {"status": "KING"}, INVALID_PARAMS, "status has to be one of TASK_STATE_SUBMITTED"),
        ("Nonsense", {}, -32601, "no such method; this server has SendMessage"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    gateway: RunningGateway, method: str, params: object, code: int, words: str
) -> None:
    """Every operation checks what it is given."""
    check_error(await gateway.call(method, params), code, words)


def rpc(member: str) -> bytes:
    """Return a request whose one other member is this JSON text."""
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", {member}}}'.encode()


PART = '"params": {"message": {"role": "ROLE_USER", "messageId": "m", "parts": [%s]}}'

BODIES: dict[str, tuple[bytes, int]] = {
    "empty": (b"", -32700),
    "cut off": (b"{", -32700),
    "no UTF-8": (b"\xff\xfe{}", -32700),
    "endless nesting": (deep(100_000).encode(), -32700),
    "endless number": (rpc(f'"x": {"9" * 5000}'), -32700),
    "empty batch": (b"[]", -32600),
    "string": (b'"hello"', -32600),
    "null": (b"null", -32600),
    "batch": (b"[" + rpc('"x": 1') + b"]", -32600),
    "JSON-RPC 1.0": (b'{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}', -32600),
    "boolean id": (b'{"jsonrpc": "2.0", "id": true, "method": "GetTask"}', -32600),
    "object id": (b'{"jsonrpc": "2.0", "id": {}, "method": "GetTask"}', -32600),
    "fractional id": (b'{"jsonrpc": "2.0", "id": 1.5, "method": "GetTask"}', -32600),
    "no id": (b'{"jsonrpc": "2.0", "method": "GetTask"}', -32600),
    "object method": (b'{"jsonrpc": "2.0", "id": 1, "method": {}}', -32600),
    "no method": (b'{"jsonrpc": "2.0", "id": 1}', -32600),
    "nested params": (rpc(f'"params": {deep(500)}'), INVALID_PARAMS),
    "nested data": (rpc(PART % f'{{"data": {deep(500)}}}'), INVALID_PARAMS),
    "NaN": (rpc(PART % '{"data": NaN}'), -32700),
    "the same name twice": (rpc(PART % '{"text": "a", "text": "b"}'), -32700),
    "infinity": (rpc(PART % '{"data": {"x": 1e999}}'), INVALID_PARAMS),
    "lone surrogate": (rpc(PART % '{"text": "\\ud800"}'), INVALID_PARAMS),
}


@pytest.mark.parametrize(("body", "code"), BODIES.values(), ids=BODIES)
async def test_a_body_that_is_no_request_is_refused(gateway: RunningGateway, body: bytes, code: int) -> None:
    """Malformed JSON is a parse error; JSON that is no JSON-RPC 2.0 request is an invalid request."""
    response = await gateway.http.post("/", content=body, headers={"content-type": "application/json"})

    assert response.status_code == 200
    check_error(response, code, "")


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_refused_unread(gateway: RunningGateway, *, declared: bool) -> None:
    """413 with a JSON-RPC error that names the limit, with a Content-Length and without."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"x": "y" * 17_000_000}})

    async def pieces() -> AsyncGenerator[bytes]:
        yield body.encode()

    content = body if declared else pieces()
    response = await gateway.http.post("/", content=content, headers={"Content-Type": "application/json"})

    assert response.status_code == 413
    check_error(response, -32600, "larger than the 16000000 bytes")


async def test_an_unknown_failure_is_answered_with_a_reference_only(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """What we did not foresee is logged whole under the reference that the client gets."""
    error = to_a2a(ValueError("password=hunter2"))

    assert "hunter2" not in str(error)
    reference = str(error).removeprefix("internal error, reference ")
    logged = caplog.text + capsys.readouterr().out
    assert reference in logged


@pytest.mark.parametrize("failure", list(ANSWERS), ids=lambda kind: kind.__name__)
def test_the_table_answers_for_subclasses_too(failure: type[Exception]) -> None:
    """A failure is looked up by its class and those it inherits from; outages say when to come back."""

    class Special(failure):
        def __init__(self) -> None:
            Exception.__init__(self, "special")

    answer = to_a2a(Special())

    assert isinstance(answer, ANSWERS[failure].error)
    assert getattr(answer, "retry_after", None) == ANSWERS[failure].retry_after


async def test_what_nobody_foresaw_is_answered_as_json(client: Client, views: TaskViews) -> None:
    """Also outside of the bindings: 500 with a reference."""

    async def broken(_: Request) -> Response:
        raise ZeroDivisionError("password=hunter2")

    async with running_gateway(client, views, queue="none") as gateway:
        gateway.app.router.routes.insert(0, Route("/broken", broken))
        answer = await gateway.http.get("/broken")

    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["status"]) == (500, 500, "INTERNAL")
    assert error["message"].startswith("internal error, reference ")
    assert "hunter2" not in answer.text


async def test_other_tasks_of_the_namespace_are_not_shown(gateway: RunningGateway) -> None:
    """The answer for an id is the same whether nobody has it or somebody else does."""
    assert "here" in str(to_a2a(TaskUnknownError("x")))
    assert "worker" in str(to_a2a(NoWorkerError()))
    check_error(await gateway.call("GetTask", {"id": unique("x")}), TASK_NOT_FOUND, "no task")


async def test_content_stays_out_of_the_logs(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither what was refused nor what was answered is logged at info level or above."""
    caplog.set_level(logging.INFO)
    secret = unique("secret")
    for params in (
        message(parts=[{"text": secret}]),
        message(parts=[{"text": secret, "bogus": 1}, {"text": [secret]}]),
        message(parts=[{"raw": secret}]),
        message(parts=[{"text": secret}], taskId="nobody"),
        {**message(), "configuration": {"historyLength": secret}},
    ):
        await gateway.call("SendMessage", params)

    assert secret not in caplog.text
    assert secret not in capsys.readouterr().out
