"""The way to a peer: its card, and the A2A client that its card asks for."""

import asyncio
import inspect
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Self, cast
from urllib.parse import urlsplit

import grpc
import httpcore
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
    PeerCredentialsError,
    PeerError,
    PeerRefusedError,
    peer_error,
)
from everloop.agents.questions import AuthRequired
from everloop.agents.tool_context import ToolContext
from everloop.runtime.bounded_answers import UNCOMPRESSED, bounding
from everloop.runtime.outbound import JudgedBackend, WebhookPolicy

# What a call to a peer carries to show who asks.

SHORTEST = 6
"""Characters; a shorter value would be found in texts that have nothing to do with it."""

_HIDDEN = "[secret]"


@dataclass(frozen=True)
class Credentials:
    """The headers of the requests of one call; names are in lower case, as gRPC wants them."""

    headers: dict[str, str] = field(repr=False)

    def hide(self, text: str) -> str:
        """Return what a peer says without the values of the headers: it may repeat what it was sent."""
        for value in sorted(self._values(), key=len, reverse=True):
            text = text.replace(value, _HIDDEN)
        return text

    def _values(self) -> set[str]:
        """Return the values, and what stands behind the scheme in one such as `Bearer …`."""
        whole = set(self.headers.values())
        return {
            value for value in whole | {value.rpartition(" ")[2] for value in whole} if len(value) >= SHORTEST
        }


async def read_credentials(peer: Peer, call: ToolContext) -> Credentials:
    """Return what the agent's author, and the user, let the call carry.

    Raises:
        PeerError: the author's function failed.
    """
    headers = {name.lower(): value for name, value in (await _headers(peer, call)).items()}
    token = await call.secret(peer.token) if peer.token else None
    if isinstance(token, str) and (bare := token.strip()):
        headers["authorization"] = f"Bearer {bare.removeprefix('Bearer ')}"
    return Credentials(headers)


def ask_for_token(peer: Peer, call: ToolContext, refusal: str) -> Exception:
    """Return what to raise when a peer refuses the credentials: a question to the user, or an error."""
    if not peer.token:
        return PeerCredentialsError(
            f"the agent at {peer.label} refuses the credentials of this agent ({refusal}); whoever runs this "
            "agent has to give others (headers= or token= of peer)"
        )
    again = any(answer.secret_name == peer.token for answer in call.answers)
    problem = "did not accept the token" if again else "wants to know who asks"
    return AuthRequired(f"The agent at {peer.label} {problem}. Please give a token for it.", peer.token)


async def _headers(peer: Peer, call: ToolContext) -> dict[str, str]:
    if not callable(peer.headers):
        return dict(peer.headers)
    try:
        made = peer.headers(call.auth)
        return dict(await made if inspect.isawaitable(made) else made)
    except Exception as error:  # noqa: BLE001 -- its message may hold what it is there to keep
        problem = f"the headers for the agent at {peer.label} could not be made ({type(error).__name__})"
        raise PeerError(problem) from None


CARD_TTL = 300.0
"""Seconds for which a card is taken for current."""

CALL_TIMEOUT = 30.0
"""Seconds for a call that answers at once."""

SILENCE = 60.0
"""Seconds without a byte after which a stream is taken for lost; servers send comments in between."""

# In a process that has imported the SDK's server of 0.3 before its client, which import each other, this is
# None, and the client speaks 1.0 to a peer of 0.3. By now both are there.
client_factory.CompatGrpcTransport = CompatGrpcTransport  # pyright: ignore[reportPrivateImportUsage] -- as above

_BINDINGS = [TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON, TransportProtocol.GRPC]
_KEEPALIVE = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 20_000)]


class Cards:
    """The card of one peer, as long as it is current."""

    def __init__(self) -> None:
        self._card: pb.AgentCard | None = None
        self._until = 0.0

    def get(self) -> pb.AgentCard | None:
        """Return the card if it is current."""
        return self._card if asyncio.get_running_loop().time() < self._until else None

    def put(self, card: pb.AgentCard) -> None:
        """Take a card for current from now on."""
        self._card, self._until = card, asyncio.get_running_loop().time() + CARD_TTL

    def forget(self) -> None:
        """Have the card fetched again: what it says may be what does not work."""
        self._until = 0.0


class Connection:
    """The way to a peer for one call of its tool. Everything raises `PeerError`."""

    def __init__(self, peer: Peer, cards: Cards, credentials: Credentials) -> None:
        self._peer = peer
        self._cards = cards
        self._credentials = credentials
        self._client: Client | None = None
        self._stack = AsyncExitStack()
        self._is_stranger = False

    async def __aenter__(self) -> Self:
        self._http = await self._stack.enter_async_context(_http_client())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def streams(self) -> bool:
        """Whether the peer offers streaming."""
        return (await self._current_card()).capabilities.streaming

    async def send(self, request: pb.SendMessageRequest) -> AsyncGenerator[pb.StreamResponse]:
        """Send a message and yield what comes of it; of a peer that does not stream, one answer."""
        client = await self._connected()
        seconds = None if await self.streams() else self._peer.timeout.total_seconds()
        # Whoever de-duplicates by this header need not look into the message.
        context = self._context(seconds, {"idempotency-key": request.message.message_id})
        async for response in self._translated(client.send_message(request, context=context)):
            yield response

    async def subscribe(self, task_id: str) -> AsyncGenerator[pb.StreamResponse]:
        """Yield what happens to a task from now on."""
        client = await self._connected()
        request = pb.SubscribeToTaskRequest(id=task_id)
        async for response in self._translated(client.subscribe(request, context=self._context(None))):
            yield response

    async def get_task(self, task_id: str, history: int) -> pb.Task:
        """Return a task with the newest so many messages."""
        request = pb.GetTaskRequest(id=task_id, history_length=history)
        return await self._called(
            lambda client: client.get_task(request, context=self._context(CALL_TIMEOUT))
        )

    async def cancel_task(self, task_id: str) -> pb.Task:
        """Ask the peer to cancel a task."""
        request = pb.CancelTaskRequest(id=task_id)
        return await self._called(
            lambda client: client.cancel_task(request, context=self._context(CALL_TIMEOUT))
        )

    def is_own(self, url: str) -> bool:
        """Whether an address is at the server of the peer's card, which the agent's author has chosen."""
        return _origin(url) == _origin(self._peer.card_url)

    async def download(self, url: str) -> AsyncGenerator[bytes]:
        """Yield the content behind an address of the peer's own, with the credentials of the call."""
        try:
            async with self._http.stream("GET", url, headers=self._headers()) as response:
                if not response.is_success:  # a redirect leads to somebody else's address
                    raise PeerRefusedError(f"HTTP {response.status_code}")
                async for chunk in response.aiter_bytes():
                    yield chunk
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise peer_error(error) from None

    async def _called(self, call: Callable[[Client], Awaitable[pb.Task]]) -> pb.Task:
        client = await self._connected()
        try:
            return await call(client)
        except Exception as error:  # noqa: BLE001 -- what the client cannot read ends in any exception
            raise peer_error(error) from None

    async def _translated(
        self, stream: AsyncIterator[pb.StreamResponse]
    ) -> AsyncGenerator[pb.StreamResponse]:
        # The client's methods are generators; their interface does not say so.
        async with aclosing(cast("AsyncGenerator[pb.StreamResponse]", stream)) as responses:
            try:
                async for response in responses:
                    yield response
            except Exception as error:  # noqa: BLE001 -- as above
                raise peer_error(error) from None

    async def _connected(self) -> Client:
        if self._client is None:
            card = await self._current_card()
            offered = [one for one in card.supported_interfaces if one.protocol_binding in _BINDINGS]
            if not offered:
                raise PeerRefusedError("its card offers no binding of A2A 1.0 or 0.3 that we speak")
            trusted = [one for one in offered if self._is_trusted(one.url)]
            self._client = await self._connect(card, trusted, self._http)
            if self._client is None:
                # Whoever controls the card names these: no credentials go there, and to no private address.
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
        """Return a client of one of the interfaces; None if it can be of none."""
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
        """Whether the author of the agent has named this address, or its host."""
        parts = urlsplit(url if "://" in url else f"//{url}")
        try:
            is_named = self._peer.allowance.has_host((parts.hostname or "").lower(), parts.port or 0)
        except ValueError:  # no port
            return False
        return is_named or self.is_own(url)

    async def _current_card(self) -> pb.AgentCard:
        card = self._cards.get()
        if card is None:
            card = await self._fetch_card()
            self._cards.put(card)
        return card

    async def _fetch_card(self) -> pb.AgentCard:
        try:
            response = await self._http.get(
                self._peer.card_url, headers=self._headers(), timeout=CALL_TIMEOUT
            )
            return parse_agent_card(response.raise_for_status().json())
        except (httpx.HTTPError, PeerError) as error:
            problem = peer_error(error)
            problem.args = (f"its card cannot be had: {problem}",)
            if isinstance(problem, PeerAwayError):
                problem.is_unsent = True
            raise problem from None
        except (ValueError, ParseError):
            raise PeerRefusedError("there is no agent card at this address") from None

    def _channel(self, url: str) -> grpc.aio.Channel:
        address = urlsplit(url).netloc or url
        if urlsplit(self._peer.card_url).scheme == "https":
            return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(), options=_KEEPALIVE)
        return grpc.aio.insecure_channel(address, options=_KEEPALIVE)

    def _context(self, seconds: float | None, headers: dict[str, str] | None = None) -> ClientCallContext:
        sent = _traced({} if self._is_stranger else self._credentials.headers)
        return ClientCallContext(timeout=seconds, service_parameters={**sent, **(headers or {})})

    def _headers(self) -> dict[str, str]:
        """Return the headers of a request to the peer's own origin."""
        return _traced(self._credentials.headers)


def _traced(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with the trace that the request belongs to."""
    sent = dict(headers)
    propagate.inject(sent)
    return sent


def _http_client(policy: WebhookPolicy | None = None) -> httpx.AsyncClient:
    """Return a client that reads bounded answers; with a policy, one that connects to what that lets it."""
    transport = None
    if policy:
        transport = httpx.AsyncHTTPTransport(verify=_tls())
        # httpx has no argument for it.
        backend = JudgedBackend(policy, is_plain=False)
        transport._pool = httpcore.AsyncConnectionPool(ssl_context=_tls(), network_backend=backend)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- as above
    return httpx.AsyncClient(
        timeout=httpx.Timeout(SILENCE, connect=10),
        verify=_tls(),
        transport=transport,
        headers=UNCOMPRESSED,
        event_hooks={"response": [bounding(PeerRefusedError)]},
    )


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


@cache
def _tls() -> ssl.SSLContext:
    """Return the certificates that we trust; to load them takes longer than most calls."""
    return httpx.create_ssl_context()
