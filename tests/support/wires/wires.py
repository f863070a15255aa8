"""One client for each binding of A2A in each version, which only encodes.

They return the parts that the official client hides: statuses, headers, codes, details, bytes.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

import grpc
import httpx
import pytest
from _pytest.mark.structures import ParameterSet
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub as LegacyStub
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from tests.support.wires.events import Event, events_of
from tests.support.wires.operations import OPERATIONS, Json, legacy_params, legacy_proto

JSONRPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"

Call = dict[str, Any]
"""The arguments of httpx for a request."""

Headers = Mapping[str, str]

NAMES = ("JSON-RPC 1.0", "REST 1.0", "gRPC 1.0", "JSON-RPC 0.3", "REST 0.3", "gRPC 0.3")
OVER_HTTP = tuple(name for name in NAMES if not name.startswith("gRPC"))


def each(names: Iterable[str] = NAMES, *, gate: Collection[str] = NAMES[:1]) -> list[ParameterSet]:
    """Return names of wires as parameters: those of the gate, and the others as slow ones."""
    return [pytest.param(name, marks=() if name in gate else pytest.mark.slow) for name in names]


@dataclass
class Refusal(Exception):  # noqa: N818 -- it is what a test expects
    """The refusal of a call. `code` is the binding's own: JSON-RPC's, HTTP's, or gRPC's name."""

    code: int | str
    message: str
    details: Sequence[Mapping[str, Any]] = ()
    http_status: int | None = None

    @property
    def error_info(self) -> Mapping[str, Any]:
        """The ErrorInfo among the details; empty if there is none."""
        return next((one for one in self.details if one.get("@type") == ERROR_INFO), dict[str, Any]())

    @property
    def reason(self) -> str:
        """The reason of the ErrorInfo, which is the same on all bindings."""
        return str(self.error_info.get("reason", ""))


@dataclass(frozen=True)
class Reply:
    """The answer: the status of HTTP or gRPC, headers or metadata in lower case, and the content.

    gRPC's content is in the JSON of REST.
    """

    status: int | str
    headers: Headers
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 -- any JSON
        """Return the content; of a stream the last event."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return json.loads(self.body.rpartition(b"data: ")[2].partition(b"\r\n")[0])
        return json.loads(self.body)

    @property
    def result(self) -> Any:  # noqa: ANN401 -- any JSON
        """Return the result.

        Raises:
            Refusal: It was an error.
        """
        if refused := self.refusal:
            raise refused
        content: Any = self.json if self.body else {}
        return content.get("result", content) if "jsonrpc" in content else content

    @property
    def refusal(self) -> Refusal | None:
        """The error, if it is one."""
        content: Any = self.json if self.body else None
        if not isinstance(content, dict) or "error" not in content:
            return None
        error = cast("Json", content["error"])
        status = self.status if isinstance(self.status, int) else None
        details = error.get("details") or error.get("data") or ()
        return Refusal(error["code"], error["message"], details, status)

    @property
    def reason(self) -> str:
        """The reason of a refusal, or empty."""
        refused = self.refusal
        return refused.reason if refused else ""

    def without(self, task_id: str) -> "Reply":
        """Return it as for any other task with an id of this length."""
        hidden = "I" * len(task_id)
        headers = {name: value.replace(task_id, hidden) for name, value in self.headers.items()}
        return Reply(self.status, headers, self.body.replace(task_id.encode(), hidden.encode()))


@dataclass(frozen=True)
class Wire(ABC):
    """One binding in one version."""

    version: str = "1.0"
    binding: str = field(init=False)

    @property
    def name(self) -> str:
        """Its name in `NAMES`."""
        return f"{ {JSONRPC: 'JSON-RPC', REST: 'REST', GRPC: 'gRPC'}[self.binding] } {self.version}"

    @property
    def is_legacy(self) -> bool:
        """True for 0.3."""
        return self.version == "0.3"

    @abstractmethod
    async def send(
        self, operation: str, params: Json, headers: Headers | None = None, agent: str = ""
    ) -> Reply:
        """Call an operation, with parameters of 1.0, at the address of an agent; read the complete answer."""

    @abstractmethod
    def stream(self, operation: str, params: Json, headers: Headers | None = None) -> AsyncGenerator[Event]:
        """Yield the events of a streaming operation; close it to leave early.

        Raises:
            Refusal: The server answers with an error, or ends with one.
        """


@dataclass(frozen=True)
class HttpWire(Wire):
    """A binding over HTTP."""

    http: httpx.AsyncClient = field(kw_only=True)

    @abstractmethod
    def written(self, operation: str, params: Json) -> Call:
        """Return the arguments of httpx for an operation, with parameters of 1.0."""

    @abstractmethod
    def raw(self, params: object, *, stream: bool = False) -> Call:
        """Return the arguments of httpx for a message with unchanged parameters."""

    def raw_body(self, content: bytes, **headers: str) -> Call:
        """Return the arguments of httpx for a message with any body."""
        call = self.raw({})
        return {
            "method": "POST",
            "url": call["url"],
            "content": content,
            "headers": {**call["headers"], **headers},
        }

    def call(self, operation: str, params: Json, headers: Headers | None = None, agent: str = "") -> Call:
        """Return the arguments of httpx at the address of an agent."""
        call = self.written(operation, params)
        prefix = f"/agents/{agent}" if agent else ""
        return {**call, "url": prefix + call["url"], "headers": {**call["headers"], **(headers or {})}}

    async def send(
        self, operation: str, params: Json, headers: Headers | None = None, agent: str = ""
    ) -> Reply:
        return reply_of(await self.http.request(**self.call(operation, params, headers, agent)))

    async def stream(
        self, operation: str, params: Json, headers: Headers | None = None
    ) -> AsyncGenerator[Event]:
        async with self.http.stream(**self.call(operation, params, headers)) as response:
            if not response.headers["content-type"].startswith("text/event-stream"):
                await response.aread()
                raise reply_of(response).refusal or AssertionError(response.text)
            async for event in events_of(response):
                if event.data and "error" in event.data:
                    body = json.dumps(event.data).encode()
                    raise Reply(response.status_code, {}, body).refusal or AssertionError
                if event.data:
                    yield event

    @property
    def _headers(self) -> Headers:
        return {"A2A-Version": self.version}


def reply_of(answer: httpx.Response) -> Reply:
    """Return the answer over HTTP, without the time."""
    received = {name: value for name, value in answer.headers.items() if name != "date"}
    return Reply(answer.status_code, received, answer.content)


@dataclass(frozen=True)
class JsonRpcWire(HttpWire):
    """JSON-RPC 2.0 (§9)."""

    binding: str = field(default=JSONRPC, init=False)

    def written(self, operation: str, params: Json) -> Call:
        if self.is_legacy:
            return self._call(OPERATIONS[operation].method, legacy_params(operation, params))
        return self._call(operation, params)

    def raw(self, params: object, *, stream: bool = False) -> Call:
        operation = "SendStreamingMessage" if stream else "SendMessage"
        return self._call(OPERATIONS[operation].method if self.is_legacy else operation, params)

    def _call(self, method: str, params: object) -> Call:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return {"method": "POST", "url": "/", "headers": {**self._headers}, "json": body}


@dataclass(frozen=True)
class RestWire(HttpWire):
    """HTTP+JSON (§11); in 0.3 under /v1."""

    binding: str = field(default=REST, init=False)

    def written(self, operation: str, params: Json) -> Call:
        """Fields of the path are left out of query and body."""
        kind, prefix = OPERATIONS[operation], "/v1" if self.is_legacy else ""
        path = "/card" if self.is_legacy and operation == "GetExtendedAgentCard" else kind.path
        path = path.format_map({name: quote(str(value), safe="") for name, value in params.items()})
        rest = {name: value for name, value in params.items() if f"{{{name}}}" not in kind.path}
        if self.is_legacy:
            rest = legacy_proto(operation, params) if kind.verb == "POST" else {}
        sent = {"json": rest} if kind.verb == "POST" else {"params": _query(rest)}
        return {"method": kind.verb, "url": prefix + path, "headers": {**self._headers}, **sent}

    def raw(self, params: object, *, stream: bool = False) -> Call:
        url = f"{'/v1' if self.is_legacy else ''}/message:{'stream' if stream else 'send'}"
        return {"method": "POST", "url": url, "headers": {**self._headers}, "json": params}


def _query(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return query parameters by §11.5: booleans in lower case."""
    return {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in fields.items()}


@dataclass(frozen=True)
class GrpcWire(Wire):
    """gRPC (§10); an agent is a tenant, and 0.3 has the default agent only."""

    binding: str = field(default=GRPC, init=False)
    channel: grpc.aio.Channel = field(kw_only=True)

    async def send(
        self, operation: str, params: Json, headers: Headers | None = None, agent: str = ""
    ) -> Reply:
        content: Json = {}
        try:
            async for message in self._messages(operation, params, headers, agent):
                content = MessageToDict(message)
        except grpc.aio.AioRpcError as error:
            trailing = {
                str(k): v if isinstance(v, str) else repr(v) for k, v in error.trailing_metadata() or ()
            }
            refused = _refusal(error)
            told = {"code": refused.code, "message": refused.message, "details": refused.details}
            return Reply(refused.code, trailing, json.dumps({"error": told}, ensure_ascii=False).encode())
        return Reply("OK", {}, json.dumps(content, ensure_ascii=False).encode())

    async def stream(
        self, operation: str, params: Json, headers: Headers | None = None
    ) -> AsyncGenerator[Event]:
        try:
            async for message in self._messages(operation, params, headers):
                yield Event("", MessageToDict(message))
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from None

    async def _messages(
        self, operation: str, params: Json, headers: Headers | None, agent: str = ""
    ) -> AsyncGenerator[Message]:
        definition, stub = (pb03, LegacyStub) if self.is_legacy else (pb, A2AServiceStub)
        method = OPERATIONS[operation].rpc or operation if self.is_legacy else operation
        kind = GetMessageClass(
            definition.DESCRIPTOR.services_by_name["A2AService"].methods_by_name[method].input_type
        )
        params = (
            legacy_proto(operation, params)
            if self.is_legacy
            else params | ({"tenant": agent} if agent else {})
        )
        metadata = {"a2a-version": self.version, **{name.lower(): v for name, v in (headers or {}).items()}}
        call = getattr(stub(self.channel), method)(
            ParseDict(params, kind()), metadata=tuple(metadata.items()), timeout=60
        )
        if not hasattr(call, "__aiter__"):
            yield await call
            return
        try:
            async for message in call:
                yield message
        finally:
            call.cancel()


def _refusal(error: grpc.aio.AioRpcError) -> Refusal:
    trailing = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(cast("bytes", trailing.get("grpc-status-details-bin", b"")))
    details: list[Json] = []
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        known = MessageToDict(info) if detail.Unpack(info) else {}
        details.append({"@type": detail.type_url, **known})
    return Refusal(error.code().name, error.details() or "", details)


def all_wires(http: httpx.AsyncClient, channel: grpc.aio.Channel) -> dict[str, Wire]:
    """Return all bindings by name."""
    return {**http_wires(http), **{f"gRPC {v}": GrpcWire(v, channel=channel) for v in ("1.0", "0.3")}}


def http_wires(http: httpx.AsyncClient) -> dict[str, HttpWire]:
    """Return the bindings over HTTP by name."""
    kinds = [(kind, version) for version in ("1.0", "0.3") for kind in (JsonRpcWire, RestWire)]
    return {wire.name: wire for kind, version in kinds for wire in (kind(version, http=http),)}
