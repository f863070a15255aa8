"""Connection to a peer: its card, and the A2A client for that card."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import cast
from urllib.parse import urlsplit

import grpc
import httpx
from a2a.client import Client, ClientConfig, client_factory
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import ClientCallContext
from a2a.client.client_factory import ClientFactory
from a2a.compat.v0_3.grpc_transport import CompatGrpcTransport
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import TransportProtocol
from google.protobuf.json_format import ParseError
from opentelemetry import propagate

from everloop.agents.peer.definition import Peer
from everloop.agents.peer.errors import (
    PeerAwayError,
    PeerError,
    PeerRefusedError,
    PeerUnableError,
    peer_error,
    problem_of,
)
from everloop.client.http import HttpClient, system_tls
from everloop.runtime.outbound.backend import public_transport
from everloop.runtime.outbound.policy import WebhookPolicy
from everloop.runtime.outbound.responses import UNCOMPRESSED, bounding

CARD_TTL = 300.0
"""Lifetime of a cached card in seconds."""

CALL_TIMEOUT = 30.0
"""Timeout in seconds of a call that answers at once."""

SILENCE = 60.0
"""Seconds without a byte after which a stream counts as lost; servers send comments in between."""

# In a process that has imported the SDK's server of 0.3 before its client, which import each other, this is
# None, and the client speaks 1.0 to a peer of 0.3. Here both are imported.
client_factory.CompatGrpcTransport = CompatGrpcTransport  # pyright: ignore[reportPrivateImportUsage] -- as above

_BINDINGS = [TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON, TransportProtocol.GRPC]
_VERSIONS = ("1.", "0.3")
_KEEPALIVE = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 20_000)]


@contextmanager
def translate_client_errors() -> Generator[None]:
    """Translate exceptions of the A2A client, or of HTTP, to a `PeerError`."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- unreadable answers raise any exception in the client
        raise peer_error(error) from None


@asynccontextmanager
async def connected(peer: Peer, headers: Mapping[str, str]) -> AsyncGenerator["Connection"]:
    """Yield the connection to a peer for one call of its tool, whose requests carry these headers."""
    async with AsyncExitStack() as stack:
        yield Connection(peer, headers, stack, await stack.enter_async_context(_http_client()))


class Connection:
    """Connection to a peer for one call of its tool. All methods raise `PeerError`."""

    def __init__(
        self, peer: Peer, headers: Mapping[str, str], stack: AsyncExitStack, http: httpx.AsyncClient
    ) -> None:
        self._peer = peer
        self._headers = headers
        self._stack = stack
        self._http = http
        self._client: Client | None = None
        self._is_stranger = False

    async def streams(self) -> bool:
        """Return True if the peer offers streaming."""
        return (await self._current_card()).capabilities.streaming

    async def send(self, request: pb.SendMessageRequest) -> AsyncGenerator[pb.StreamResponse]:
        """Send a message and yield the responses; without streaming, a single one."""
        try:
            async for response in self._sent(request):
                yield response
        except PeerUnableError:
            card = await self._current_card()
            if not card.capabilities.streaming:
                raise
            # Nothing was accepted; the card promises more than the peer supports.
            card.capabilities.streaming, self._client = False, None
            async for response in self._sent(request):
                yield response

    async def _sent(self, request: pb.SendMessageRequest) -> AsyncGenerator[pb.StreamResponse]:
        client = await self._connected()
        seconds = None if await self.streams() else self._peer.timeout.total_seconds()
        # A server that de-duplicates by this header need not parse the message.
        context = self._context(seconds, {"idempotency-key": request.message.message_id})
        async for response in _translated(client.send_message(request, context=context)):
            yield response

    async def subscribe(self, task_id: str) -> AsyncGenerator[pb.StreamResponse]:
        """Yield the events of a task from now on."""
        client = await self._connected()
        request = pb.SubscribeToTaskRequest(id=task_id)
        async for response in _translated(client.subscribe(request, context=self._context(None))):
            yield response

    async def get_task(self, task_id: str, history: int) -> pb.Task:
        """Return a task with its newest messages, `history` of them."""
        client = await self._connected()
        request = pb.GetTaskRequest(id=task_id, history_length=history)
        with translate_client_errors():
            return await client.get_task(request, context=self._context(CALL_TIMEOUT))

    async def cancel_task(self, task_id: str) -> None:
        """Cancel a task of the peer."""
        client = await self._connected()
        with translate_client_errors():
            await client.cancel_task(pb.CancelTaskRequest(id=task_id), context=self._context(CALL_TIMEOUT))

    def is_own(self, url: str) -> bool:
        """Return True for an address on the server of the peer's card, chosen by the agent's author."""
        return _origin(url) == _origin(self._peer.card_url)

    async def download(self, url: str) -> AsyncGenerator[bytes]:
        """Yield the content of an address of the peer's own, with the credentials of the call."""
        with translate_client_errors():
            async with self._http.stream("GET", url, headers=_traced(self._headers)) as response:
                if not response.is_success:  # a redirect may lead to another server
                    raise PeerRefusedError(f"HTTP {response.status_code}")
                async for chunk in response.aiter_bytes():
                    yield chunk

    async def _connected(self) -> Client:
        if self._client is None:
            card = await self._current_card()
            offered = _spoken(card)
            trusted = [one for one in offered if self._is_trusted(one.url)]
            self._client = await self._connect(card, trusted, self._http)
            if self._client is None:
                # The card sets these addresses: they get no credentials, and must not be private.
                self._is_stranger = True
                stranger = await self._stack.enter_async_context(_http_client(WebhookPolicy()))
                others = [one for one in offered if one.url.startswith("https://")]
                self._client = await self._connect(card, others, stranger)
            if self._client is None:
                raise PeerRefusedError(
                    "its card names no address at its own origin, and none by https elsewhere, in a version "
                    "of A2A that we speak; say with peer(hosts=[…]) which hosts it may name"
                )
        return self._client

    async def _connect(
        self, card: pb.AgentCard, interfaces: Sequence[pb.AgentInterface], http: httpx.AsyncClient
    ) -> Client | None:
        """Return a client for one of the interfaces; None if none is usable."""
        chosen = pb.AgentCard()
        chosen.CopyFrom(card)
        del chosen.supported_interfaces[:]
        chosen.supported_interfaces.extend(interfaces)
        config = ClientConfig(
            polling=not card.capabilities.streaming,
            httpx_client=http,
            grpc_channel_factory=self._channel,
            supported_protocol_bindings=list(_BINDINGS),
        )
        try:
            client = ClientFactory(config).create(chosen)
        except ValueError:
            return None
        return await self._stack.enter_async_context(client)

    def _is_trusted(self, url: str) -> bool:
        """Return True if the author of the agent has named this address, or its host."""
        parts = urlsplit(url if "://" in url else f"//{url}")
        try:
            is_named = self._peer.allowance.has_host((parts.hostname or "").lower(), parts.port or 0)
        except ValueError:  # no port
            return False
        return is_named or self.is_own(url)

    async def _current_card(self) -> pb.AgentCard:
        peer, now = self._peer, asyncio.get_running_loop().time()
        if peer.card is None or now >= peer.card_until:
            peer.card, peer.card_until = await self._fetch_card(), now + CARD_TTL
        return peer.card

    async def _fetch_card(self) -> pb.AgentCard:
        try:
            headers = _traced(self._headers)
            response = await self._http.get(self._peer.card_url, headers=headers, timeout=CALL_TIMEOUT)
            return parse_agent_card(response.raise_for_status().json())
        except (httpx.HTTPError, PeerError) as error:
            problem = peer_error(error)
            problem.args = (f"its card cannot be had: {problem}",)
            if isinstance(problem, PeerAwayError):
                problem.is_unsent = True
            raise problem from None
        except ParseError as error:
            raise PeerRefusedError(f"its card is no A2A ({problem_of(error)})") from None
        except ValueError:
            raise PeerRefusedError("there is no agent card at this address") from None

    def _channel(self, url: str) -> grpc.aio.Channel:
        address = urlsplit(url).netloc or url
        if urlsplit(self._peer.card_url).scheme == "https":
            return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(), options=_KEEPALIVE)
        return grpc.aio.insecure_channel(address, options=_KEEPALIVE)

    def _context(self, seconds: float | None, headers: dict[str, str] | None = None) -> ClientCallContext:
        sent = _traced({} if self._is_stranger else self._headers)
        return ClientCallContext(timeout=seconds, service_parameters={**sent, **(headers or {})})


async def _translated(stream: AsyncIterator[pb.StreamResponse]) -> AsyncGenerator[pb.StreamResponse]:
    # The client's methods are generators, against their declared type.
    async with aclosing(cast("AsyncGenerator[pb.StreamResponse]", stream)) as responses:
        with translate_client_errors():
            async for response in responses:
                yield response


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
        headers=UNCOMPRESSED,
        event_hooks={"response": [bounding(PeerRefusedError)]},
    )


def _spoken(card: pb.AgentCard) -> list[pb.AgentInterface]:
    """Return the supported interfaces.

    Raises:
        PeerRefusedError: there are none, or the card requires an extension; we support none of these.
    """
    required = [each.uri for each in card.capabilities.extensions if each.required]
    if required:
        raise PeerRefusedError(
            f"its card requires the extension {required[0]!r}, which this agent does not know"
        )
    known = [one for one in card.supported_interfaces if one.protocol_binding in _BINDINGS]
    offered = [one for one in known if one.protocol_version.startswith(_VERSIONS)]
    if not offered:
        versions = ", ".join(dict.fromkeys(one.protocol_version for one in known))
        raise PeerRefusedError(
            f"its card offers A2A {versions}, and this agent speaks 1.0 and 0.3"
            if versions
            else "its card offers no binding that this agent speaks: JSONRPC, HTTP+JSON or GRPC"
        )
    return offered


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
