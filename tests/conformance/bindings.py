"""One client for each binding of A2A 1.0, with nothing between a test and the wire but the encoding.

They share one interface, so that one test body proves a rule on all bindings, and keep what the official
client hides: statuses, codes, details.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from urllib.parse import quote

import grpc
import httpx
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from tests.conformance.event_stream import data_of

JSONRPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"

BINDINGS = (JSONRPC, REST, GRPC)
"""All that the gateway serves."""

ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
DETAILS_KEY = "grpc-status-details-bin"
VERSION = {"A2A-Version": "1.0"}

Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True)
class Operation:
    """An operation: its answer, and its place in REST (§5.3; what is in braces are fields of the request)."""

    answer: type[Message]
    verb: str = "GET"
    path: str = ""
    streams: bool = False


_CONFIGS = "/tasks/{task_id}/pushNotificationConfigs"

OPERATIONS: dict[str, Operation] = {
    "SendMessage": Operation(pb.SendMessageResponse, "POST", "/message:send"),
    "SendStreamingMessage": Operation(pb.StreamResponse, "POST", "/message:stream", streams=True),
    "GetTask": Operation(pb.Task, "GET", "/tasks/{id}"),
    "ListTasks": Operation(pb.ListTasksResponse, "GET", "/tasks"),
    "CancelTask": Operation(pb.Task, "POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": Operation(pb.StreamResponse, "POST", "/tasks/{id}:subscribe", streams=True),
    "CreateTaskPushNotificationConfig": Operation(pb.TaskPushNotificationConfig, "POST", _CONFIGS),
    "GetTaskPushNotificationConfig": Operation(pb.TaskPushNotificationConfig, "GET", f"{_CONFIGS}/{{id}}"),
    "ListTaskPushNotificationConfigs": Operation(pb.ListTaskPushNotificationConfigsResponse, "GET", _CONFIGS),
    "DeleteTaskPushNotificationConfig": Operation(Empty, "DELETE", f"{_CONFIGS}/{{id}}"),
    "GetExtendedAgentCard": Operation(pb.AgentCard, "GET", "/extendedAgentCard"),
}


@dataclass
class Refusal(Exception):  # noqa: N818 -- it is what a test expects
    """What a server refuses a call with. `code` is the binding's own: JSON-RPC's, HTTP's, or gRPC's name."""

    code: int | str
    message: str
    details: Sequence[Mapping[str, Any]] = ()
    http_status: int | None = None

    @property
    def reason(self) -> str:
        """The reason of the ErrorInfo, which is the same on all bindings."""
        return str(self.error_info.get("reason", ""))

    @property
    def error_info(self) -> Mapping[str, Any]:
        """The ErrorInfo among the details; empty if there is none."""
        infos = [one for one in self.details if one.get("@type") == ERROR_INFO]
        return infos[0] if infos else dict[str, Any]()


async def refusal(call: Awaitable[object]) -> Refusal:
    """Return what a call is refused with; fail if it is not."""
    try:
        answer = await call
    except Refusal as refused:
        return refused
    raise AssertionError(f"not refused, but answered with {answer}")


@dataclass
class Binding(ABC):
    """The operations of an agent over one binding. `headers` go with every call (gRPC: metadata)."""

    name: str = field(init=False)
    headers: Mapping[str, str] = field(default_factory=lambda: VERSION, kw_only=True)

    @abstractmethod
    async def _call(self, operation: str, request: Message) -> Message: ...

    @abstractmethod
    def stream(self, operation: str, request: Message) -> AsyncGenerator[pb.StreamResponse]:
        """Yield the events of a streaming operation; close it to leave early."""

    async def call(self, operation: str, request: Message) -> Any:  # noqa: ANN401 -- the operation's answer
        """Return the answer of an operation that does not stream.

        Raises:
            Refusal: the server answers with an error.
        """
        return await self._call(operation, request)

    async def send(self, request: pb.SendMessageRequest) -> pb.Task:
        """Send a message and return the task."""
        answer: pb.SendMessageResponse = await self.call("SendMessage", request)
        assert answer.HasField("task"), answer
        return answer.task

    async def get(self, task_id: str, **fields: object) -> pb.Task:
        task = await self.call("GetTask", ParseDict({"id": task_id, **fields}, pb.GetTaskRequest()))
        return cast("pb.Task", task)

    async def cancel(self, task_id: str) -> pb.Task:
        return cast("pb.Task", await self.call("CancelTask", pb.CancelTaskRequest(id=task_id)))

    async def list(self, **fields: object) -> pb.ListTasksResponse:
        page = await self.call("ListTasks", ParseDict(fields, pb.ListTasksRequest()))
        return cast("pb.ListTasksResponse", page)

    def send_streaming(self, request: pb.SendMessageRequest) -> AsyncGenerator[pb.StreamResponse]:
        return self.stream("SendStreamingMessage", request)

    def subscribe(self, task_id: str) -> AsyncGenerator[pb.StreamResponse]:
        return self.stream("SubscribeToTask", pb.SubscribeToTaskRequest(id=task_id))


@dataclass
class JsonRpcBinding(Binding):
    """JSON-RPC 2.0 over HTTP (§9)."""

    http: httpx.AsyncClient
    path: str = "/"

    def __post_init__(self) -> None:
        self.name = JSONRPC

    async def _call(self, operation: str, request: Message) -> Message:
        response = await self.http.post(self.path, json=_rpc(operation, request), headers=self.headers)
        result = _result(response.json(), response.status_code)
        return ParseDict(result or {}, OPERATIONS[operation].answer())

    async def stream(self, operation: str, request: Message) -> AsyncGenerator[pb.StreamResponse]:
        body = _rpc(operation, request)
        async with self.http.stream("POST", self.path, json=body, headers=self.headers) as response:
            async for event in _events(response):
                yield ParseDict(_result(event, response.status_code), pb.StreamResponse())


@dataclass
class RestBinding(Binding):
    """HTTP+JSON (§11)."""

    http: httpx.AsyncClient
    prefix: str = ""

    def __post_init__(self) -> None:
        self.name = REST

    async def _call(self, operation: str, request: Message) -> Message:
        response = await self.http.request(**self._request(operation, request))
        if response.is_error:
            raise _rest_refusal(response.json(), response.status_code)
        return ParseDict(response.json() if response.content else {}, OPERATIONS[operation].answer())

    async def stream(self, operation: str, request: Message) -> AsyncGenerator[pb.StreamResponse]:
        async with self.http.stream(**self._request(operation, request)) as response:
            if response.is_error:
                raise _rest_refusal(json.loads(await response.aread()), response.status_code)
            async for event in _events(response):
                if "error" in event:
                    raise _rest_refusal(event, response.status_code)
                yield ParseDict(event, pb.StreamResponse())

    def _request(self, operation: str, request: Message) -> dict[str, Any]:
        """Return the arguments of httpx's request; fields of the path are left out of query and body."""
        kind, fields = OPERATIONS[operation], MessageToDict(request)
        by_name = MessageToDict(request, preserving_proto_field_name=True)
        path = kind.path.format_map({name: quote(str(v), safe="") for name, v in by_name.items()})
        if "{id}" in kind.path:
            fields.pop("id")
        if "{task_id}" in kind.path:
            fields.pop("taskId")
        sent: dict[str, Any] = {"json": fields} if kind.verb == "POST" else {"params": _query(fields)}
        return {"method": kind.verb, "url": self.prefix + path, "headers": self.headers, **sent}


@dataclass
class GrpcBinding(Binding):
    """gRPC (§10)."""

    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.name = GRPC

    async def _call(self, operation: str, request: Message) -> Message:
        call = getattr(A2AServiceStub(self.channel), operation)
        try:
            return cast("Message", await call(request, metadata=self._metadata()))
        except grpc.aio.AioRpcError as error:
            raise _grpc_refusal(error) from None

    async def stream(self, operation: str, request: Message) -> AsyncGenerator[pb.StreamResponse]:
        call = getattr(A2AServiceStub(self.channel), operation)(request, metadata=self._metadata())
        try:
            async for event in call:
                yield event
        except grpc.aio.AioRpcError as error:
            raise _grpc_refusal(error) from None
        finally:
            call.cancel()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple((name.lower(), value) for name, value in self.headers.items())


@asynccontextmanager
async def opened(url: str, grpc_address: str, name: str) -> AsyncGenerator[Binding]:
    """Yield a client of the default agent over the binding of that name."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        if name == JSONRPC:
            yield JsonRpcBinding(http)
        elif name == REST:
            yield RestBinding(http)
        else:
            async with grpc.aio.insecure_channel(grpc_address) as channel:
                yield GrpcBinding(channel)


def _rpc(operation: str, request: Message) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": operation, "params": MessageToDict(request)}


def _result(body: Mapping[str, Any], status: int) -> Any:  # noqa: ANN401 -- any JSON
    if error := body.get("error"):
        raise Refusal(error["code"], error["message"], error.get("data") or (), status)
    return body["result"]


async def _events(response: httpx.Response) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of a stream; an answer that is none is a single one."""
    if "text/event-stream" not in response.headers["content-type"]:
        yield json.loads(await response.aread())
        return
    async for data in data_of(response):
        yield json.loads(data)


def _rest_refusal(body: Mapping[str, Any], status: int) -> Refusal:
    error = body["error"]
    return Refusal(error["code"], error["message"], error.get("details") or (), status)


def _grpc_refusal(error: grpc.aio.AioRpcError) -> Refusal:
    trailing = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(cast("bytes", trailing.get(DETAILS_KEY, b"")))
    infos: list[dict[str, Any]] = []
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            infos.append({"@type": ERROR_INFO, **MessageToDict(info)})
        else:
            infos.append({"@type": detail.type_url})
    return Refusal(error.code().name, error.details() or "", infos)


def _query(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return query parameters as §11.5 writes them: booleans in small letters."""
    return {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in fields.items()}
