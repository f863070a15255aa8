"""Errors for invalid requests: clear, and without internals."""

import json
import logging
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure, NotFoundFailure
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everloop.gateway.errors import (
    TaskUnknownError,
    TemporalUnavailableError,
    translate_not_found,
    translate_temporal_errors,
)
from everloop.runtime.temporal.describe import UNAVAILABLE
from everloop.stores.log.log_store import TaskViews
from tests.gateway.grpc_harness import MESSAGE_BYTES, GrpcGateway
from tests.gateway.harness import RunningGateway, running_gateway, unique
from tests.support.wires.operations import Json
from tests.support.wires.wires import Wire

INVALID_PARAMS, TASK_NOT_FOUND = -32602, -32001
SECRETS = ("Traceback", 'File "', ".py", "gateway.", "temporalio", "redis", "passwd")


def message(changes: Json) -> Json:
    """Return the params of a valid SendMessage, with changes to the message."""
    valid = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    return {"message": {**valid, **changes}}


def nested(depth: int) -> Any:  # noqa: ANN401 -- JSON
    return json.loads("[" * depth + "1" + "]" * depth)


TEXT = {"text": "hi"}
LONG = "x" * 500_000

REFUSED: dict[str, tuple[Json, str]] = {
    "a part too many": ({"parts": [TEXT] * 1_001}, "1000"),
    "10,000 lists": ({"parts": [{"data": []}] * 10_000}, "1000"),
    "a file too many": ({"parts": [{"raw": "aGk="}] * 101}, "has 101 files; one message may have 100"),
    "a large part": ({"parts": [{"text": "y" * MESSAGE_BYTES}]}, f"this server takes {MESSAGE_BYTES}"),
    "large parts": ({"parts": [{"text": "y" * 20_000}] * 51}, f"this server takes {MESSAGE_BYTES}"),
    "a long messageId": ({"messageId": LONG}, "message.messageId has 500000 bytes; an id may have 255"),
    "a long contextId": ({"contextId": LONG}, "message.contextId has 500000 bytes; an id may have 255"),
    "a long taskId": ({"taskId": LONG}, "message.taskId has 500000 bytes; an id may have 255"),
    "NUL in messageId": ({"messageId": "a\0b"}, "message.messageId has control characters"),
    "a line in contextId": ({"contextId": "a\r\nb"}, "message.contextId has control characters"),
    "C1 in taskId": ({"taskId": "a\x85b"}, "message.taskId has control characters"),
    "a step in contextId": ({"contextId": ".."}, "message.contextId is a step of a path"),
    "a step in taskId": ({"taskId": "."}, "message.taskId is a step of a path"),
}
"""Requests that are invalid on every binding."""

CODES: Mapping[str, tuple[int | str, int | str]] = {
    "JSON-RPC 1.0": (INVALID_PARAMS, 200),
    "JSON-RPC 0.3": (INVALID_PARAMS, 200),
    "REST 1.0": (400, 400),
    "REST 0.3": (400, 400),
    "gRPC 1.0": ("INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "gRPC 0.3": ("INVALID_ARGUMENT", "INVALID_ARGUMENT"),
}
"""The error text of each binding for invalid parameters, and the status."""


@pytest.mark.parametrize("wire", CODES)
async def test_a_message_that_is_too_much_is_refused(wires: Mapping[str, Wire], wire: str) -> None:
    """The text names the field and the limit, and repeats no content."""
    for name, (changes, words) in REFUSED.items():
        reply = await wires[wire].send("SendMessage", message(changes))
        assert reply.refusal, name
        assert (reply.refusal.code, reply.status) == CODES[wire], name
        assert words in reply.refusal.message, name
        assert len(reply.body) < 1_000
    for depth in (120, 400) if not wire.startswith("gRPC") else ():  # a gRPC client cannot even write it
        reply = await wires[wire].send("SendMessage", message({"parts": [{"data": nested(depth)}]}))
        assert reply.refusal
        assert (reply.refusal.code, reply.status) == CODES[wire]
        assert "nested too deeply" in reply.refusal.message


def check_error(response: httpx.Response, code: int, words: str) -> None:
    """Assert that the body is a JSON-RPC error with this code and these words, and without internals."""
    error = response.json()["error"]
    assert error["code"] == code
    assert words in error["message"]
    for secret in SECRETS:
        assert secret not in response.text


PARTS: list[tuple[Json, str]] = [
    ({"filename": "x"}, "parts[0] is empty"),
    ({"text": 5}, "parts[0].text is a number; it has to be a text"),
    ({"url": "ftp://there/x"}, "parts[0].url is no web address"),
    ({"url": "file:///etc/passwd"}, "parts[0].url is no web address"),
    ({"url": "/etc/passwd"}, "parts[0].url is no web address"),
    ({"url": "http://"}, "parts[0].url is no web address"),
    ({"url": "http://a b/"}, "parts[0].url is no web address"),
    ({"url": "http://a\nb/"}, "parts[0].url is no web address"),
    ({"url": "http://[::1/"}, "parts[0].url is no web address"),
    ({"url": "http://a:99999/"}, "parts[0].url is no web address"),
    ({"url": "https://me:passwd@a/"}, "parts[0].url has a user name or a password"),
    ({"url": "https://me@a/"}, "parts[0].url has a user name or a password"),
    ({"text": True}, "parts[0].text is a boolean; it has to be a text"),
    ({"text": "x", "url": "y"}, "parts[0] has both text and url; send one of them"),
    ({"raw": "name,passwd\n1,2\n"}, "parts[0].raw is no base64; encode the bytes of the file"),
    ({"raw": "YQ==\n"}, "parts[0].raw is no base64"),
    ({"raw": "YQ="}, "parts[0].raw is no base64"),
    ({"raw": "YQ==YQ=="}, "parts[0].raw is no base64"),
    ({"raw": "data:image/png;base64,iVBORw0KGgo="}, "parts[0].raw is no base64"),
    ({"url": ""}, "parts[0].url is no web address"),
    ({"url": "http://a/" + "x" * 2000}, "parts[0].url has 2009 characters; a URL may have 2000"),
    ({"raw": "aGk=", "mediaType": "png"}, "parts[0].mediaType is no media type"),
    ({"raw": "aGk=", "mediaType": "image/png\r\nX: 1"}, "parts[0].mediaType is no media type"),
    ({"raw": "aGk=", "mediaType": "image/*"}, "parts[0].mediaType is no media type"),
    ({"raw": "aGk=", "mediaType": "a/" + "b" * 300}, "parts[0].mediaType is no media type"),
    ({"text": "hi", "mediaType": "text plain"}, "parts[0].mediaType is no media type"),
    ({"raw": "aGk=", "filename": "../x"}, "parts[0].filename is a path; give the name of the file alone"),
    ({"raw": "aGk=", "filename": "a\\b"}, "parts[0].filename is a path"),
    ({"raw": "aGk=", "filename": ".."}, "parts[0].filename is a path"),
    ({"raw": "aGk=", "filename": "a\x00b"}, "parts[0].filename has control characters"),
    ({"url": "http://a/", "filename": "a\nb"}, "parts[0].filename has control characters"),
    ({"raw": "aGk=", "filename": "é" * 128}, "parts[0].filename is too long"),
]


async def test_a_part_that_cannot_be_taken_is_refused(gateway: RunningGateway) -> None:
    """Each error names the field, the problem and the expected form, and repeats no content."""
    for part, words in PARTS:
        check_error(
            await gateway.call("SendMessage", message({"parts": [part]})), INVALID_PARAMS, f"message.{words}"
        )


MESSAGES: list[tuple[object, int, str]] = [
    ({}, INVALID_PARAMS, "message is missing"),
    (message({"messageId": ""}), INVALID_PARAMS, "message.messageId is empty"),
    (message({"messageId": "é" * 200}), INVALID_PARAMS, "message.messageId has 400 bytes"),
    (message({"role": "ROLE_UNSPECIFIED"}), INVALID_PARAMS, "message.role must be ROLE_USER"),
    (message({"role": "ROLE_AGENT"}), INVALID_PARAMS, "message.role must be ROLE_USER"),
    (message({"role": "ROLE_KING"}), INVALID_PARAMS, "message.role has to be one of ROLE_USER, ROLE_AGENT"),
    (message({"parts": []}), INVALID_PARAMS, "message.parts is empty"),
    (message({"parts": {}}), INVALID_PARAMS, "message.parts is an object; it has to be a list"),
    (message({"parts": [None]}), INVALID_PARAMS, "message.parts[0] is null; it has to be an object"),
    (message({"extensions": [5] * 1_001}), INVALID_PARAMS, "message.extensions has 1001 entries"),
    (message({"metadata": []}), INVALID_PARAMS, "message.metadata is a list; it has to be an object"),
    ({"message": "x"}, INVALID_PARAMS, "message has to be an object"),
    ({"configuration": {"returnImmediately": "true"}}, INVALID_PARAMS, "has to be true or false"),
    ({"configuration": {"historyLength": 1.5}}, INVALID_PARAMS, "has to be a whole number of 32 bits"),
    ({"configuration": {"historyLength": 2**31}}, INVALID_PARAMS, "has to be a whole number of 32 bits"),
    (message({"parts": [{"text": ""}, {"text": " \n"}]}), INVALID_PARAMS, "all its texts are empty"),
    (message({"parts": [{"data": {"x": "y" * 11_000_000}}]}), INVALID_PARAMS, "this server takes 10000000"),
    (message({"metadata": {"x": "y" * 11_000_000}}), INVALID_PARAMS, "this server takes 10000000"),
    (message({"parts": [TEXT, {"url": "x"}]}), INVALID_PARAMS, "message.parts[1].url is no web address"),
    ({**message({}), "configuration": {"historyLength": -1}}, INVALID_PARAMS, "historyLength is -1"),
    (message({"taskId": "../../etc"}), TASK_NOT_FOUND, "no task '../../etc' here"),
    (message({"taskId": "}:{*}"}), TASK_NOT_FOUND, "no task '}:{*}' here"),
    ([], INVALID_PARAMS, ""),
    ("hello", -32600, ""),
    (None, INVALID_PARAMS, ""),
]


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_message_that_cannot_be_taken_is_refused(gateway: RunningGateway, method: str) -> None:
    """Each error has the code of A2A 1.0 §5.4 and names the field, the problem and the expected form."""
    for params, code, words in MESSAGES:
        response = await gateway.call(method, params)
        assert response.status_code == 200
        check_error(response, code, words)


REQUESTS: list[tuple[str, Json, int, str]] = [
    ("GetTask", {"id": "nobody"}, TASK_NOT_FOUND, "no task 'nobody' here"),
    ("GetTask", {}, INVALID_PARAMS, "id is empty"),
    ("CancelTask", {}, INVALID_PARAMS, "id is empty"),
    ("GetTask", {"id": 7}, INVALID_PARAMS, "id"),
    ("GetTask", {"id": "x", "tenant": "t" * 10_000}, INVALID_PARAMS, "which is no agent of this server"),
    ("GetTask", {"id": "a\tb"}, INVALID_PARAMS, "id has control characters"),
    ("GetTask", {"id": "nobody", "historyLength": -2}, INVALID_PARAMS, "historyLength is -2"),
    ("GetTask", {"id": "nobody", "historyLength": "many"}, INVALID_PARAMS, "historyLength"),
    (
        "GetTask",
        {"id": "nobody", "historyLength": 1, "history_length": 2},
        INVALID_PARAMS,
        "has both historyLength and history_length; send one of them",
    ),
    ("CancelTask", {"id": "nobody"}, TASK_NOT_FOUND, "no task 'nobody' here"),
    ("SubscribeToTask", {"id": "nobody"}, TASK_NOT_FOUND, "no task 'nobody' here"),
    ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "http://x"}, TASK_NOT_FOUND, "no task"),
    ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, TASK_NOT_FOUND, "no task"),
    ("ListTaskPushNotificationConfigs", {"taskId": "t"}, TASK_NOT_FOUND, "no task"),
    ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "c"}, TASK_NOT_FOUND, "no task"),
    ("ListTasks", {"pageSize": 0}, INVALID_PARAMS, "pageSize is 0; it must be 1 to 100"),
    ("ListTasks", {"pageSize": -1}, INVALID_PARAMS, "pageSize is -1"),
    ("ListTasks", {"pageSize": 101}, INVALID_PARAMS, "pageSize is 101"),
    ("ListTasks", {"pageSize": "many"}, INVALID_PARAMS, "pageSize"),
    ("ListTasks", {"pageToken": "bad"}, INVALID_PARAMS, "pageToken is not one that this list returned"),
    ("ListTasks", {"pageToken": "MTI6YQ"}, INVALID_PARAMS, "pageToken"),
    ("ListTasks", {"pageToken": "é" * 5_000}, INVALID_PARAMS, "pageToken"),
    ("ListTasks", {"historyLength": -1}, INVALID_PARAMS, "historyLength is -1"),
    ("ListTasks", {"contextId": "a\nb"}, INVALID_PARAMS, "contextId has control characters"),
    ("ListTasks", {"contextId": "c" * 256}, INVALID_PARAMS, "contextId has 256 bytes"),
    ("ListTasks", {"statusTimestampAfter": "yesterday"}, INVALID_PARAMS, "statusTimestampAfter"),
    ("ListTasks", {"status": "KING"}, INVALID_PARAMS, "status has to be one of TASK_STATE_SUBMITTED"),
    ("Nonsense", {}, -32601, "no such method; this server has SendMessage"),
    ("sendMessage", {}, -32601, "no such method"),
]


async def test_a_request_that_makes_no_sense_is_refused(served: GrpcGateway) -> None:
    """Every operation checks its parameters."""
    for method, params, code, words in REQUESTS:
        response = await served.http.call(method, params)
        check_error(response, code, words)
        assert len(response.content) < 1_000


async def test_what_nobody_foresaw_is_answered_as_json(
    client: Client, views: TaskViews, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also outside of the bindings: 500 with a reference, under which the whole error is logged."""

    async def broken(_: Request) -> Response:
        raise ZeroDivisionError("password=hunter2")

    async with running_gateway(client, views, queue="none") as gateway:
        gateway.app.router.routes.insert(0, Route("/broken", broken))
        answer = await gateway.http.get("/broken")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["status"]) == (500, 500, "INTERNAL")
    reference = error["message"].removeprefix("internal error, reference ")
    assert reference != error["message"]
    assert reference in caplog.text + capsys.readouterr().out
    assert "hunter2" not in answer.text


async def test_content_stays_out_of_the_logs(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Content of accepted and refused messages is not logged at info level or above."""
    caplog.set_level(logging.INFO)
    secret = unique("secret")
    for params in (
        message({"parts": [{"text": secret}]}),
        message({"parts": [{"text": secret, "bogus": 1}, {"text": [secret]}]}),
        message({"parts": [{"raw": secret}]}),
        message({"parts": [{"text": secret}], "taskId": "nobody"}),
        {**message({}), "configuration": {"historyLength": secret}},
    ):
        await gateway.call("SendMessage", params)
    assert secret not in caplog.text
    assert secret not in capsys.readouterr().out


@pytest.mark.parametrize("status", sorted(set(RPCStatusCode) - {RPCStatusCode.OK}))
async def test_what_passes_is_an_outage(status: RPCStatusCode) -> None:
    """Errors that the SDK retries become retryable; invalid or forbidden calls do not."""
    with pytest.raises(TemporalUnavailableError if status in UNAVAILABLE else RPCError):
        async with translate_temporal_errors():
            raise RPCError("away", status, b"")


@pytest.mark.parametrize(
    ("detail", "meaning"),
    [(NotFoundFailure(), TaskUnknownError), (NamespaceNotFoundFailure(), TemporalUnavailableError)],
)
async def test_a_namespace_that_is_not_found_is_an_outage(
    detail: NotFoundFailure | NamespaceNotFoundFailure, meaning: type[Exception]
) -> None:
    """A server that was paused answers so for a moment; no task becomes unknown because of it."""
    packed = AnyMessage()
    packed.Pack(detail)
    status = GrpcStatus(code=RPCStatusCode.NOT_FOUND, details=[packed])
    with pytest.raises(meaning):
        async with translate_temporal_errors(), translate_not_found("task"):
            raise RPCError("not found", RPCStatusCode.NOT_FOUND, status.SerializeToString())
