"""Messages that no server should take, as clients of each binding and version would send them."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub as LegacyStub
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.protobuf.json_format import ParseDict

Json = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What a client was told: the code or status of the binding, the HTTP status (of gRPC none), the text."""

    code: int | str
    status: int
    text: str
    size: int = 0


class MessageWires:
    """Sends a message of A2A 1.0, written in JSON, on any binding in either version."""

    def __init__(self, http: httpx.AsyncClient, channel: grpc.aio.Channel) -> None:
        self.http = http
        self._stub: Any = A2AServiceStub(channel)
        self._legacy_stub: Any = LegacyStub(channel)

    async def send(self, wire: str, message: Json) -> Told:
        """Send it; `wire` is the name of a binding and the version, such as `REST 0.3`."""
        match wire:
            case "JSON-RPC 1.0":
                return await self._rpc("SendMessage", message, "1.0")
            case "JSON-RPC 0.3":
                return await self._rpc("message/send", _legacy(message), "0.3")
            case "REST 1.0":
                return await self._rest("/message:send", {"message": message}, "1.0")
            case "REST 0.3":
                return await self._rest("/v1/message:send", {"message": _legacy_proto(message)}, "0.3")
            case "gRPC 1.0":
                sent = ParseDict({"message": message}, pb.SendMessageRequest())
                return await _call(self._stub.SendMessage, sent)
            case _:
                old = ParseDict({"request": _legacy_proto(message)}, pb03.SendMessageRequest())
                return await _call(self._legacy_stub.SendMessage, old)

    async def _rpc(self, method: str, message: Json, version: str) -> Told:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
        answer = await self.http.post("/", json=body, headers={"A2A-Version": version})
        error: Mapping[str, Any] = answer.json().get("error", {})
        size = len(answer.content)
        return Told(error.get("code", 0), answer.status_code, error.get("message", ""), size)

    async def _rest(self, path: str, body: Json, version: str) -> Told:
        answer = await self.http.post(path, json=body, headers={"A2A-Version": version})
        error: Mapping[str, Any] = answer.json().get("error", {})
        size = len(answer.content)
        return Told(error.get("code", 0), answer.status_code, error.get("message", ""), size)


async def _call(method: Any, request: object) -> Told:  # noqa: ANN401 -- a method of a generated stub
    try:
        await method(request, timeout=30)
    except grpc.aio.AioRpcError as error:
        return Told(error.code().name, 0, error.details() or "", len(error.details() or ""))
    return Told("OK", 0, "")


def _legacy(message: Json) -> Json:
    return {
        **message,
        "kind": "message",
        "role": "user",
        "parts": [_legacy_part(p) for p in message["parts"]],
    }


def _legacy_part(part: Json) -> Json:
    match part:
        case {"raw": raw}:
            return {"kind": "file", "file": {"bytes": raw}}
        case {"data": data}:
            return {"kind": "data", "data": {"a": data}}
        case _:
            return {"kind": "text", **part}


def _legacy_proto(message: Json) -> Json:
    rest = {name: value for name, value in message.items() if name not in {"parts", "referenceTaskIds"}}
    return {**rest, "content": [_legacy_proto_part(part) for part in message["parts"]]}


def _legacy_proto_part(part: Json) -> Json:
    match part:
        case {"raw": raw}:
            return {"file": {"fileWithBytes": base64.b64encode(raw.encode()).decode()}}
        case {"data": data}:
            return {"data": {"data": {"a": data}}}
        case _:
            return part
