"""Refusals of gRPC calls, and the authentication of their callers."""

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

import grpc
import pytest
import pytest_asyncio
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub as LegacyStub
from a2a.types import a2a_pb2 as pb
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl, RequestLimits
from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.context import Caller
from everloop.gateway.errors import TooManyRequestsError, UnauthenticatedError
from everloop.stores.log.log_store import TaskViews
from tests.gateway.grpc_harness import BODY_BYTES, SERVICE, GrpcGateway, refused, running_grpc_gateway
from tests.gateway.harness import PromptModel, unique
from tests.support.a2a_client import connected, request, send

OLD_SERVICE = "/a2a.v1.A2AService"


class Doorman(Authenticator):
    """Authenticates callers by the metadata `x-name`, if they connect from this machine."""

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller:
        name = headers.get("x-name", "")
        assert peer == "127.0.0.1"  # of the client, whatever proxy is before gRPC
        if name == "chaos":
            raise RuntimeError("password=hunter2")
        if name == "stranger":
            raise UnauthenticatedError("who are you? send a key", challenge='Bearer realm="everloop"')
        return Caller(owner=name or "anonymous", scheme="apiKey")


class Counter(RequestLimits):
    """Refuses the glutton."""

    async def admit_request(self, owner: str) -> None:
        if owner == "glutton":
            raise TooManyRequestsError("too many requests; come back later", retry_after=7)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> AsyncGenerator[GrpcGateway]:
    access = AccessControl(Doorman(), Counter())
    async with running_grpc_gateway(client, views, queue=queue, access=access) as gateway:
        yield gateway


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the reason of a status, whose details repeat its code and text."""
    content = dict(error.trailing_metadata())["grpc-status-details-bin"]
    assert isinstance(content, bytes)
    status, info = Status.FromString(content), ErrorInfo()
    assert (status.code, status.message) == (error.code().value[0], error.details())
    assert status.details[0].Unpack(info)
    return info.reason


async def test_a_failure_of_ours_shows_nothing_of_our_insides(
    guarded: GrpcGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets a reference to the log entry; gRPC itself logs nothing."""
    with caplog.at_level(logging.INFO, "grpc"):
        error = await refused(guarded, f"{SERVICE}/GetTask", b"", x_name="chaos")
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "internal error, reference" in (error.details() or "")
    assert "hunter2" not in str(error)
    assert not [record for record in caplog.records if record.name.startswith("grpc")]


@pytest.mark.parametrize(
    ("service", "version", "is_served"),
    [
        (SERVICE, None, True),
        (SERVICE, "1.0", True),
        (SERVICE, "1.0.1", True),
        (SERVICE, "1.1", False),
        (SERVICE, "0.3", False),
        (SERVICE, "99.0", False),
        (SERVICE, "latest", False),
        (OLD_SERVICE, None, True),
        (OLD_SERVICE, "0.3", True),
        (OLD_SERVICE, "0.3.0", True),
        (OLD_SERVICE, "1.0", False),
        (OLD_SERVICE, "99.0", False),
    ],
)
async def test_each_service_speaks_its_own_version(
    guarded: GrpcGateway, service: str, version: str | None, *, is_served: bool
) -> None:
    """A call without a version has that of the service; one with another version is refused."""
    method, content = {
        SERVICE: ("GetTask", pb.GetTaskRequest(id="x").SerializeToString()),
        OLD_SERVICE: ("GetTask", old.GetTaskRequest(name="tasks/x").SerializeToString()),
    }[service]
    metadata = {} if version is None else {"a2a_version": version}
    error = await refused(guarded, f"{service}/{method}", content, **metadata)
    assert reason_of(error) == ("TASK_NOT_FOUND" if is_served else "VERSION_NOT_SUPPORTED")


async def test_a_call_that_is_too_large_is_refused(guarded: GrpcGateway) -> None:
    """The limit is that of an HTTP request."""
    error = await refused(guarded, f"{SERVICE}/SendMessage", b"x" * (BODY_BYTES + 1))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_nothing_of_a_strangers_request_is_read(guarded: GrpcGateway, method: str) -> None:
    """Not even as much as is needed to see that it is too large."""
    content = b"x" * (BODY_BYTES + 1)
    stranger = await refused(guarded, f"{SERVICE}/{method}", content, x_name="stranger")
    glutton = await refused(guarded, f"{SERVICE}/{method}", content, x_name="glutton")
    assert stranger.code() is grpc.StatusCode.UNAUTHENTICATED
    assert reason_of(glutton) == "TOO_MANY_REQUESTS"


@pytest.mark.parametrize("method", ["GetTask", "SubscribeToTask"])
async def test_a_call_that_sends_nothing_is_ended(
    guarded: GrpcGateway, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold its place for as long as its connection lasts."""
    monkeypatch.setattr("everloop.gateway.bindings.grpc_calls.REQUEST_SECONDS", 0.1)

    async def nothing() -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""

    path = f"{SERVICE}/{method}"
    call: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = guarded.channel.stream_unary(path)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(nothing())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "no request came" in (caught.value.details() or "")


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_nothing_is_unpacked(guarded: GrpcGateway, compression: grpc.Compression) -> None:
    """A few KB could become as much as the limit of a request, before authentication."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = guarded.channel.unary_unary(f"{SERVICE}/GetTask")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"\x0a\x01x" * 10_000, compression=compression)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe"], ids=["no message", "no UTF-8"])
@pytest.mark.parametrize("service", [SERVICE, OLD_SERVICE])
async def test_what_is_no_message_is_refused(guarded: GrpcGateway, service: str, content: bytes) -> None:
    """The error is the client's, and no log line lets strangers fill the log."""
    error = await refused(guarded, f"{service}/GetTask", content)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "GetTask" in (error.details() or "")


UNSAID: dict[str, tuple[str, Message, str]] = {
    "a state": (
        "ListTasks",
        pb.ListTasksRequest(status=cast("pb.TaskState", 99)),
        "status is 99, which is no state",
    ),
    "a number": (
        "SendMessage",
        pb.SendMessageRequest(
            message=pb.Message(
                message_id="m", role=pb.ROLE_USER, parts=[pb.Part(data=Value(number_value=float("nan")))]
            )
        ),
        "message.parts[0] has a number that is infinite, or none",
    ),
}


@pytest.mark.parametrize("name", UNSAID)
async def test_what_json_cannot_say_is_refused(guarded: GrpcGateway, name: str) -> None:
    """A list with an invalid filter is refused rather than unfiltered.

    Text that cannot be stored is refused.
    """
    method, sent, words = UNSAID[name]
    error = await refused(guarded, f"{SERVICE}/{method}", sent.SerializeToString())
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in (error.details() or "")


@pytest.mark.parametrize(
    ("agent", "sent", "content"),
    [
        ("grpc-node-js/1.14.0", b"test", b"test"),
        ("grpc-node-js/1.14.0", b"\xff\xfe\x00", b"\xff\xfe\x00"),
        ("", b"//4A", b"\xff\xfe\x00"),
        ("", b"\xff\xfe\x00", b"\xff\xfe\x00"),
    ],
)
async def test_files_of_the_old_version_come_back_as_its_clients_read_them(
    guarded: GrpcGateway, agent: str, sent: bytes, content: bytes
) -> None:
    """As bytes; but in base64 for the SDK for Python; in answers and in the events of a stream."""
    part = old.Part(file=old.FilePart(file_with_bytes=sent, mime_type="application/octet-stream", name="a"))
    message = old.Message(message_id=unique("m"), role=old.Role.ROLE_USER, content=[part])
    request = old.SendMessageRequest(request=message)
    named = [("grpc.primary_user_agent", agent)] if agent else []
    target = f"127.0.0.1:{guarded.server.port}"
    async with grpc.aio.insecure_channel(target, options=named) as channel:
        stub: Any = LegacyStub(channel)
        events: AsyncIterator[old.StreamResponse] = stub.SendStreamingMessage(request)
        tasks = [each.task async for each in events if each.HasField("task")]
        answer: old.SendMessageResponse = await stub.SendMessage(request)
        tasks.append(answer.task)
    stored = (await guarded.http.call("GetTask", {"id": tasks[0].id})).json()["result"]
    assert b64decode(stored["history"][0]["parts"][0]["raw"]) == content
    shown = [each.history[0].content[0].file.file_with_bytes for each in tasks]
    assert shown == [content if agent else b64encode(content)] * 2


async def test_calls_at_once_do_not_mix(guarded: GrpcGateway) -> None:
    """Each of many callers at once gets its own task."""
    names = [unique("caller") for _ in range(20)]

    async def owned(name: str) -> str:
        async with connected(
            guarded.url, binding="GRPC", streaming=False, headers={"x-name": name}
        ) as caller:
            task = await send(caller, request(name))
            listed = await caller.list_tasks(pb.ListTasksRequest())
            assert [one.id for one in listed.tasks] == [task.id]
            return task.history[0].parts[0].text

    assert await asyncio.gather(*map(owned, names)) == names
