"""Connection to a peer: its card, and which of the card's addresses may be asked, with which credentials."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import grpc
import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import ClientCallContext
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import TransportProtocol
from google.protobuf.json_format import ParseError
from opentelemetry import propagate

from everloop.agents.peer.peer_definition import Peer
from everloop.agents.peer.peer_errors import is_away, text_of_error
from everloop.client.connection import Connection, Responses
from everloop.client.errors import (
    ClientError,
    InvalidError,
    ServerError,
    UnreachableError,
    UnsupportedError,
    check_success,
    client_error,
    translate_errors,
    unreadable,
)
from everloop.client.follow import HISTORY
from everloop.client.http import HttpClient, origin_of, system_tls
from everloop.client.transport import SILENCE, make_transport
from everloop.runtime.outbound.backend import public_transport
from everloop.runtime.outbound.policy import WebhookPolicy
from everloop.runtime.outbound.response_bounds import UNCOMPRESSED, bounding

CARD_TTL = 300.0
"""Lifetime of a cached card in seconds."""

CALL_TIMEOUT = 30.0
"""Timeout in seconds of a call that answers at once."""

_BINDINGS = [TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON, TransportProtocol.GRPC]
_VERSIONS = ("1.", "0.3")
_KEEPALIVE = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 20_000)]

_PLACE = "it"
"""The peer in errors: the model reads them."""


@asynccontextmanager
async def connected(peer: Peer, headers: Mapping[str, str]) -> AsyncGenerator["PeerConnection"]:
    """Yield the connection to a peer for one call of its tool, whose requests carry these headers."""
    async with AsyncExitStack() as stack:
        yield PeerConnection(peer, headers, stack, await stack.enter_async_context(_http_client()))


class PeerConnection(Connection):
    """Connection to a peer for one call of its tool."""

    def __init__(
        self, peer: Peer, headers: Mapping[str, str], stack: AsyncExitStack, http: httpx.AsyncClient
    ) -> None:
        super().__init__(_PLACE, timeout=CALL_TIMEOUT, unstreamed=peer.timeout.total_seconds())
        self._peer = peer
        self._headers = headers
        self._stack = stack
        self._http = http
        self._is_stranger = False
        self._is_legacy = False

    async def card(self) -> pb.AgentCard:
        """Return the card of the peer, which is cached."""
        peer, now = self._peer, asyncio.get_running_loop().time()
        if peer.card is None or now >= peer.card_until:
            peer.card, peer.card_until = await self._fetch_card(), now + CARD_TTL
        return peer.card

    async def send(self, request: pb.SendMessageRequest) -> Responses:
        """Send a message; yield the responses, a single one if the card promises streams that it lacks."""
        try:
            async for response in super().send(request):
                yield response
        except UnsupportedError:
            card = await self.card()
            if not card.capabilities.streaming:
                raise
            card.capabilities.streaming = False
            async for response in super().send(request):
                yield response

    async def subscribe(self, task_id: str, after: str) -> Responses:
        """Yield the responses of a task's stream. In A2A 0.3 it does not begin with the task."""
        await self.transport()
        if self._is_legacy:
            yield pb.StreamResponse(task=await self.get_task(task_id, HISTORY)), ""
        async for response in super().subscribe(task_id, after):
            yield response

    def is_own(self, url: str) -> bool:
        """Return True for an address on the server of the peer's card, chosen by the agent's author."""
        return origin_of(url) == origin_of(self._peer.card_url)

    async def download(self, url: str) -> AsyncGenerator[bytes]:
        """Yield the content of an address of the peer's own, with the credentials of the call."""
        with self._translated():
            async with self._http.stream("GET", url, headers=_traced(self._headers)) as response:
                if not response.is_success:  # a redirect may lead to another server
                    raise InvalidError(f"HTTP {response.status_code}")
                async for chunk in response.aiter_bytes():
                    yield chunk

    async def _connect(self) -> ClientTransport:
        card, http = await self.card(), self._http
        offered = _spoken(card)
        usable = [one for one in offered if self._is_trusted(one.url)]
        if not usable:
            # The card sets these addresses: they get no credentials, and must not be private.
            self._is_stranger = True
            http = await self._stack.enter_async_context(_http_client(WebhookPolicy()))
            usable = [one for one in offered if one.url.startswith("https://") and not _is_grpc(one)]
        if not usable:
            raise InvalidError(
                "its card names no address at its own origin, and none by https elsewhere, in a version "
                "of A2A that we speak; say with peer(hosts=[…]) which hosts it may name"
            )
        chosen = min(usable, key=_is_legacy)
        self._is_legacy = _is_legacy(chosen)
        channel = self._channel(chosen.url) if _is_grpc(chosen) else None
        transport = make_transport(chosen, card, chosen.url, http, channel)
        self._stack.push_async_callback(transport.close)
        return transport

    def _is_trusted(self, url: str) -> bool:
        """Return True if the author of the agent has named this address, or its host."""
        parts = urlsplit(url if "://" in url else f"//{url}")
        try:
            is_named = self._peer.allowance.has_host((parts.hostname or "").lower(), parts.port or 0)
        except ValueError:  # no port
            return False
        return is_named or self.is_own(url)

    async def _fetch_card(self) -> pb.AgentCard:
        headers = _traced(self._headers)
        try:
            with translate_errors(_PLACE):
                response = await self._http.get(self._peer.card_url, headers=headers, timeout=CALL_TIMEOUT)
                await check_success(response)
        except ClientError as error:
            text = f"its card cannot be had: {text_of_error(error)}"
            raise (UnreachableError(text, is_unsent=True) if is_away(error) else type(error)(text)) from None
        try:
            return parse_agent_card(response.json())
        except ParseError as error:
            raise unreadable("its card", error) from None
        except ValueError:
            raise InvalidError("there is no agent card at this address") from None

    def _channel(self, url: str) -> grpc.aio.Channel:
        address = urlsplit(url).netloc or url
        if urlsplit(self._peer.card_url).scheme == "https":
            return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(), options=_KEEPALIVE)
        return grpc.aio.insecure_channel(address, options=_KEEPALIVE)

    def _context(self, timeout: float | None, headers: Mapping[str, str] | None = None) -> ClientCallContext:
        sent = _traced({} if self._is_stranger else self._headers)
        sent |= {name.lower(): value for name, value in (headers or {}).items()}  # as gRPC requires
        return ClientCallContext(timeout=timeout, service_parameters=sent)

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Translate errors of a call: unreadable answers raise any exception in the SDK."""
        try:
            yield
        except ClientError:
            raise
        except Exception as error:  # noqa: BLE001 -- as above
            raise client_error(error, _PLACE) from None


def _traced(headers: Mapping[str, str]) -> dict[str, str]:
    sent = dict(headers)
    propagate.inject(sent)
    return sent


def _http_client(policy: WebhookPolicy | None = None) -> httpx.AsyncClient:
    """Return a client that reads limited answers; with a policy, one that connects only as it allows."""
    return HttpClient(
        timeout=httpx.Timeout(SILENCE, connect=10),
        verify=system_tls(),
        transport=public_transport(policy, system_tls()) if policy else None,
        headers={"A2A-Version": "1.0", **UNCOMPRESSED},
        event_hooks={"response": [bounding(ServerError)]},
    )


def _spoken(card: pb.AgentCard) -> Sequence[pb.AgentInterface]:
    """Return the supported interfaces.

    Raises:
        InvalidError: there are none, or the card requires an extension; we support none of these.
    """
    required = [each.uri for each in card.capabilities.extensions if each.required]
    if required:
        raise InvalidError(f"its card requires the extension {required[0]!r}, which this agent does not know")
    supported = [one for one in card.supported_interfaces if one.protocol_binding in _BINDINGS]
    offered = [one for one in supported if one.protocol_version.startswith(_VERSIONS)]
    if not offered:
        versions = ", ".join(dict.fromkeys(one.protocol_version for one in supported))
        raise InvalidError(
            f"its card offers A2A {versions}, and this agent speaks 1.0 and 0.3"
            if versions
            else "its card offers no binding that this agent speaks: JSONRPC, HTTP+JSON or GRPC"
        )
    return offered


def _is_grpc(interface: pb.AgentInterface) -> bool:
    return interface.protocol_binding == TransportProtocol.GRPC


def _is_legacy(interface: pb.AgentInterface) -> bool:
    return not interface.protocol_version.startswith("1.")
