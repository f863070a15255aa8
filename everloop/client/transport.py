"""The SDK's transports, and one of ours: streams of JSON-RPC with event ids, which that of the SDK drops."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import uuid4

import grpc
import httpx
from a2a.client.client import ClientCallContext
from a2a.client.transports.base import ClientTransport
from a2a.client.transports.grpc import GrpcTransport
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.client.transports.rest import RestTransport
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.compat.v0_3.grpc_transport import CompatGrpcTransport
from a2a.compat.v0_3.jsonrpc_transport import CompatJsonRpcTransport
from a2a.compat.v0_3.rest_transport import CompatRestTransport
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import TransportProtocol
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from everloop.client.errors import ServerError, UnreachableError, check_success, rpc_error, unreadable

EVENT_ID = "event_id"
"""Key in the state of a call: the id of the last yielded event; empty if it has none."""

SILENCE = 60.0
"""Seconds without a byte after which a stream counts as lost; servers send comments in between."""

CONNECT_TIMEOUT = 10.0
"""Seconds to make a connection."""


def make_transport(
    interface: pb.AgentInterface,
    card: pb.AgentCard,
    url: str,
    http: httpx.AsyncClient,
    channel: grpc.aio.Channel | None = None,
) -> ClientTransport:
    """Return the transport for an interface of a card, of A2A 1.x or 0.3; gRPC needs a `channel`."""
    is_legacy = interface.protocol_version.startswith("0.")
    if channel:
        made = CompatGrpcTransport(channel, card) if is_legacy else GrpcTransport(channel, card)
    elif interface.protocol_binding == TransportProtocol.JSONRPC:
        kind = CompatJsonRpcTransport if is_legacy else IdentifyingTransport
        made = kind(http, card, url, is_shared_httpx=True)
    else:
        kind = CompatRestTransport if is_legacy else RestTransport
        made = kind(http, card, url, is_shared_httpx=True)
    return TenantTransportDecorator(made, interface.tenant) if interface.tenant else made


class IdentifyingTransport(JsonRpcTransport):
    """JSON-RPC. While an event is processed, its id is in the state of the call (`EVENT_ID`)."""

    def send_message_streaming(
        self, request: pb.SendMessageRequest, *, context: ClientCallContext | None = None
    ) -> AsyncGenerator[pb.StreamResponse]:
        return self._events("SendStreamingMessage", request, context or ClientCallContext())

    def subscribe(
        self, request: pb.SubscribeToTaskRequest, *, context: ClientCallContext | None = None
    ) -> AsyncGenerator[pb.StreamResponse]:
        return self._events("SubscribeToTask", request, context or ClientCallContext())

    async def _events(
        self,
        method: str,
        request: pb.SendMessageRequest | pb.SubscribeToTaskRequest,
        context: ClientCallContext,
    ) -> AsyncGenerator[pb.StreamResponse]:
        body = {"jsonrpc": "2.0", "id": str(uuid4()), "method": method, "params": MessageToDict(request)}
        headers = {**(context.service_parameters or {}), "Accept": "text/event-stream"}
        timeout = httpx.Timeout(SILENCE, connect=CONNECT_TIMEOUT)
        async with self.httpx_client.stream(
            "POST", self.url, json=body, headers=headers, timeout=timeout
        ) as response:
            await check_success(response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                yield _response(await response.aread())
                return
            async with aclosing(_server_sent(response)) as events:
                async for event_id, data in events:
                    context.state[EVENT_ID] = event_id
                    yield _response(data)


def _response(data: bytes) -> pb.StreamResponse:
    try:
        answer = json.loads(data)
        if isinstance(answer.get("error"), dict):
            raise rpc_error(answer["error"])
        return ParseDict(answer["result"], pb.StreamResponse(), ignore_unknown_fields=True)
    except ParseError as error:
        raise unreadable("what the server streams", error) from None
    except (ValueError, AttributeError, KeyError):
        begins = data[:100].decode(errors="replace")
        raise ServerError(f"what the server streams is no A2A: {begins!r}") from None


async def _server_sent(response: httpx.Response) -> AsyncGenerator[tuple[str, bytes]]:
    """Yield the events of a stream, each with its id.

    Raises:
        UnreachableError: the server announces its stop, and the event after which to resume.
    """
    event_id, data, stops = "", list[bytes](), False
    async with aclosing(_lines(response)) as lines:
        async for line in lines:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name == b"id":
                event_id = value.decode(errors="replace")
            elif name == b"retry":
                stops = True
            elif not line and data:
                yield event_id, b"\n".join(data)
                event_id, data = "", []
    if stops:
        raise UnreachableError("the server stops")


_LINE_END = re.compile(rb"\r\n|\n|\r(?=[^\n])")
"""The end of a line. A CR at the end of the received bytes may be followed by its LF."""


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the lines of a body. In server-sent events only CR and LF end one."""
    rest = bytearray()
    async for chunk in response.aiter_bytes():
        rest += chunk
        if b"\n" not in chunk and b"\r" not in chunk:
            continue
        *lines, last = _LINE_END.split(rest)
        rest = bytearray(last)
        for line in lines:
            yield bytes(line)
    if rest.endswith(b"\r"):
        yield bytes(rest[:-1])
