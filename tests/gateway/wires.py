"""All operations on all bindings, as raw requests and answers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

import grpc
import httpx
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub as LegacyStub
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from tests.gateway.wire_requests import CURRENT, LEGACY, NAMES, PATHS, Ask, legacy_proto


@dataclass(frozen=True)
class Reply:
    """What came back: the status of HTTP or gRPC, headers or metadata in small letters, and the rest."""

    status: int | str
    headers: Mapping[str, str]
    body: bytes

    def without(self, task_id: str) -> "Reply":
        """Return it as it would be for any other task of an id as long."""
        hidden = "I" * len(task_id)
        headers = {name: value.replace(task_id, hidden) for name, value in self.headers.items()}
        return Reply(self.status, headers, self.body.replace(task_id.encode(), hidden.encode()))


class Wire(ABC):
    """One binding in one version."""

    name: str
    knows_agents: bool = True

    @abstractmethod
    async def send(self, ask: Ask, headers: Mapping[str, str]) -> Reply: ...

    @abstractmethod
    def is_not_found(self, reply: Reply) -> bool:
        """Whether it says that there is no such task."""


class _HttpWire(Wire):
    def __init__(self, http: httpx.AsyncClient, version: str) -> None:
        self._http = http
        self._version = version

    async def _exchange(
        self, verb: str, ask: Ask, path: str, body: object, headers: Mapping[str, str]
    ) -> Reply:
        prefix = f"agents/{ask.agent}" if ask.agent else ""
        sent = {"A2A-Version": self._version, **headers}
        answer = await self._http.request(
            verb, f"{prefix}{path}", json=body if verb == "POST" else None, headers=sent
        )
        received = {name: value for name, value in answer.headers.items() if name != "date"}
        return Reply(answer.status_code, received, answer.content)


class JsonRpcWire(_HttpWire):
    """JSON-RPC in either version."""

    def __init__(self, http: httpx.AsyncClient, version: str) -> None:
        super().__init__(http, version)
        self.name = f"JSON-RPC {version}"
        self._is_legacy = version == "0.3"
        self._params = LEGACY if self._is_legacy else CURRENT

    async def send(self, ask: Ask, headers: Mapping[str, str]) -> Reply:
        method = NAMES[ask.operation][self._is_legacy]
        params = self._params[ask.operation](ask)
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self._exchange("POST", ask, "/", body, headers)

    def is_not_found(self, reply: Reply) -> bool:
        return b'"code":-32001' in reply.body.replace(b" ", b"")


class RestWire(_HttpWire):
    """HTTP+JSON in 1.0."""

    name = "REST 1.0"

    def __init__(self, http: httpx.AsyncClient) -> None:
        super().__init__(http, "1.0")

    async def send(self, ask: Ask, headers: Mapping[str, str]) -> Reply:
        verb, template = PATHS[ask.operation]
        path = template.format(task=ask.task_id, config=ask.config_id)
        inside = {"taskId": ask.task_id, "id": ask.task_id}
        body = {k: v for k, v in CURRENT[ask.operation](ask).items() if inside.get(k) != v}
        return await self._exchange(verb, ask, path, body, headers)

    def is_not_found(self, reply: Reply) -> bool:
        return reply.status == HTTPStatus.NOT_FOUND and b"TASK_NOT_FOUND" in reply.body


class LegacyRestWire(_HttpWire):
    """HTTP+JSON in 0.3, under /v1."""

    name = "REST 0.3"

    def __init__(self, http: httpx.AsyncClient) -> None:
        super().__init__(http, "0.3")

    async def send(self, ask: Ask, headers: Mapping[str, str]) -> Reply:
        verb, template = PATHS[ask.operation]
        path = "/card" if ask.operation == "on_get_extended_agent_card" else template
        path = "/v1" + path.format(task=ask.task_id, config=ask.config_id)
        return await self._exchange(verb, ask, path, legacy_proto(ask), headers)

    def is_not_found(self, reply: Reply) -> bool:
        return reply.status == HTTPStatus.NOT_FOUND and b"TaskNotFoundError" in reply.body


class GrpcWire(Wire):
    """The service of 1.0; the agent is a tenant."""

    name = "gRPC 1.0"

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: object = A2AServiceStub(channel)

    async def send(self, ask: Ask, headers: Mapping[str, str]) -> Reply:
        method = NAMES[ask.operation][0]
        kinds = {
            "SendStreamingMessage": "SendMessageRequest",
            "CreateTaskPushNotificationConfig": "TaskPushNotificationConfig",
        }
        kind = cast("type[Message]", getattr(pb, kinds.get(method, f"{method}Request")))
        params = CURRENT[ask.operation](ask) | ({"tenant": ask.agent} if ask.agent else {})
        return await _call(self._stub, method, ParseDict(params, kind()), headers)

    def is_not_found(self, reply: Reply) -> bool:
        return reply.status == "NOT_FOUND"


class LegacyGrpcWire(Wire):
    """The service of 0.3, which knows the default agent only."""

    name = "gRPC 0.3"
    knows_agents = False

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: object = LegacyStub(channel)

    async def send(self, ask: Ask, headers: Mapping[str, str]) -> Reply:
        method, kind = {
            "on_message_send_stream": ("SendStreamingMessage", "SendMessageRequest"),
            "on_subscribe_to_task": ("TaskSubscription", "TaskSubscriptionRequest"),
            "on_list_task_push_notification_configs": (
                "ListTaskPushNotificationConfig",
                "ListTaskPushNotificationConfigRequest",
            ),
            "on_get_extended_agent_card": ("GetAgentCard", "GetAgentCardRequest"),
        }.get(ask.operation) or (NAMES[ask.operation][0], f"{NAMES[ask.operation][0]}Request")
        message = cast("type[Message]", getattr(pb03, kind))
        return await _call(self._stub, method, ParseDict(legacy_proto(ask), message()), headers)

    def is_not_found(self, reply: Reply) -> bool:
        return reply.status == "NOT_FOUND"


async def _call(stub: object, method: str, request: Message, headers: Mapping[str, str]) -> Reply:
    metadata = tuple((name.lower(), value) for name, value in headers.items())
    call = getattr(stub, method)(request, metadata=metadata, timeout=30)
    body = b""
    try:
        if hasattr(call, "__aiter__"):
            async for message in call:
                body += message.SerializeToString()
        else:
            body = (await call).SerializeToString()
    except grpc.aio.AioRpcError as error:
        trailing = {str(k): v if isinstance(v, str) else repr(v) for k, v in error.trailing_metadata() or ()}
        return Reply(error.code().name, trailing, (error.details() or "").encode())
    return Reply("OK", {}, body)


def all_wires(http: httpx.AsyncClient, channel: grpc.aio.Channel) -> dict[str, Wire]:
    """Return all bindings by name."""
    wires: list[Wire] = [
        JsonRpcWire(http, "1.0"),
        RestWire(http),
        GrpcWire(channel),
        JsonRpcWire(http, "0.3"),
        LegacyRestWire(http),
        LegacyGrpcWire(channel),
    ]
    return {wire.name: wire for wire in wires}
