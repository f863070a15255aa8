"""The server of an agent as its users name it: its card, and addresses beside A2A."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import TransportProtocol
from google.protobuf.json_format import ParseError
from pydantic import JsonValue

from everloop.client.connection import Connection, is_everloop
from everloop.client.content import plain_struct
from everloop.client.errors import (
    CERTIFICATE_REQUIRED,
    MAY_DEMAND_CERTIFICATE,
    ExtensionMissingError,
    InvalidError,
    NotFoundError,
    ServerError,
    UnreachableError,
    answer_error,
    check_success,
    translate_errors,
)
from everloop.client.http import Credentials, origin_of
from everloop.client.transport import make_transport
from everloop.workflows.contract.http_extension import HTTP_EXTENSION

CARD_PATH = ".well-known/agent-card.json"

_BINDINGS = (TransportProtocol.JSONRPC.value, TransportProtocol.HTTP_JSON.value)

Query = Mapping[str, str | int]
"""Parameters of an address; empty ones are left out."""


class Server(Connection):
    """Connection to an agent at an address. The card is read once, when it is needed."""

    def __init__(self, card_urls: Sequence[str], http: httpx.AsyncClient, credentials: Credentials) -> None:
        super().__init__(_directory(card_urls[0]))
        self.card_url = card_urls[0]
        self.http = http
        self._card_urls = card_urls
        self._agent_id = ""
        self._credentials = credentials
        self._reading = asyncio.Lock()
        self._card: pb.AgentCard | None = None
        self._public_base = ""

    async def card(self) -> pb.AgentCard:
        """Return the card of the agent."""
        async with self._reading:
            if self._card is None:
                self._card = await self._read_card()
        return self._card

    async def agent_id(self) -> str:
        """Return the id of the agent; empty for the gateway's default one, and for that of another server."""
        await self.card()
        return self._agent_id

    async def close(self) -> None:
        """Close all connections."""
        await self.http.aclose()

    # Addresses beside A2A.

    async def extension(self, path: str) -> str:
        """Return an address of the HTTP extension.

        Raises:
            ExtensionMissingError: the server does not have it.
        """
        for each in (await self.card()).capabilities.extensions:
            if each.uri == HTTP_EXTENSION:
                await self.transport()  # the gateway's own address comes from its card
                base = str(plain_struct(each.params).get("base") or "")
                return self.reachable(f"{origin_of(self._public_base)}{base.rstrip('/')}{path}")
        raise self._missing(HTTP_EXTENSION)

    async def own(self, path: str) -> str:
        """Return an address that Everloops have outside of the extension.

        Raises:
            ExtensionMissingError: the server is not an Everloop.
        """
        if not await self.is_everloop():
            raise self._missing(path)
        return f"{self._place}{path}"

    def _missing(self, what: str) -> ExtensionMissingError:
        return ExtensionMissingError(
            f"the server at {self._place} does not offer {what}, which this call takes: it is no Everloop, "
            "as its card tells, or an older one. What A2A itself has works: send, stream, watch, answer, "
            "cancel, task, tasks, artifacts"
        )

    def reachable(self, url: str) -> str:
        """Return a URL of the gateway in the form that is reachable from here."""
        if self._public_base and url.startswith(self._public_base):
            return f"{self._place}/{url.removeprefix(self._public_base).lstrip('/')}"
        return url

    def is_own(self, url: str) -> bool:
        """Whether an address is at the server that was asked, or at one that may have its credentials."""
        return self._credentials.trusts(self.reachable(url))

    async def ask(
        self, method: str, url: str, body: JsonValue = None, *, query: Query | None = None, key: str = ""
    ) -> Any:  # noqa: ANN401 -- JSON
        """Return the JSON response of an address. Requests with the same `key` count once."""
        given = {name: value for name, value in (query or {}).items() if value != ""}
        with translate_errors(self._place):
            headers = {"Idempotency-Key": key} if key else {}
            try:
                request = self.http.build_request(method, url, params=given, json=body, headers=headers)
            except (TypeError, ValueError) as error:
                raise InvalidError(f"what was given cannot be sent as JSON: {error}") from None
            response = await self.http.send(request)
            await check_success(response)
            try:
                return response.json() if response.content else {}
            except ValueError:
                raise ServerError(f"what {url} answers is no JSON") from None

    async def download(self, url: str) -> AsyncGenerator[bytes]:
        """Yield the content behind a URL. A redirection gets no credentials."""
        with translate_errors(url):
            async with self.http.stream("GET", url) as response:
                target = response.headers["location"] if response.has_redirect_location else ""
                if not target:
                    await check_success(response)
                    async for piece in response.aiter_bytes():
                        yield piece
                    return
            async with self.http.stream("GET", target, auth=None) as response:
                await check_success(response)
                async for piece in response.aiter_bytes():
                    yield piece

    # The card, and its addresses.

    async def _read_card(self) -> pb.AgentCard:
        for card_url in self._card_urls[:-1]:
            with suppress(NotFoundError):
                return await self._fetch_card(card_url)
        return await self._fetch_card(self._card_urls[-1])

    def _locate(self, card: pb.AgentCard) -> None:
        """Find the address of a card's gateway, and the gateway's name for itself.

        An address that ends in `/agents/…` is that of an agent, or of a gateway. The card decides.
        """
        here = self._place = _directory(self.card_url)
        url = next((each.url for each in card.supported_interfaces if self._is_spoken(each)), "")
        if not (is_everloop(card) and url):
            return
        public, of_agent = _split(url.rstrip("/"), _extension_base(card))
        origin, path = origin_of(here), urlsplit(public).path
        found = _OF_AGENT.fullmatch(here.removeprefix(f"{origin}{path}"))
        if found or of_agent:  # else it is at another path than in its card: behind a proxy, or a tunnel
            self._place = f"{origin}{path}" if found else here.removesuffix(of_agent)
        self._public_base = f"{public}/"
        self._agent_id = unquote((of_agent or (found[0] if found else "")).removeprefix("/agents/"))

    async def _fetch_card(self, card_url: str) -> pb.AgentCard:
        self.card_url = card_url
        with translate_errors(self.card_url):
            try:
                response = await self.http.get(self.card_url)
            except (httpx.ReadError, httpx.RemoteProtocolError):
                if not self.card_url.startswith("https:"):
                    raise
                text = f"the server at {self.card_url} ended the connection before it answered"
                raise UnreachableError(text, advice=MAY_DEMAND_CERTIFICATE) from None
            if not response.is_success:
                error = answer_error(response)
                if error.reason != CERTIFICATE_REQUIRED:
                    error.problem = f"there is no agent at {self.card_url}: {error.problem}"
                raise error
            try:
                card = parse_agent_card(response.json())
            except (ValueError, ParseError):
                raise InvalidError(f"what {self.card_url} answers is no agent card") from None
        for scheme in card.security_schemes.values():
            key = scheme.api_key_security_scheme
            if key.location == "header" and key.name:
                self._credentials.header = key.name
        self._locate(card)
        return card

    async def _connect(self) -> ClientTransport:
        card = await self.card()
        offered = [one for one in card.supported_interfaces if self._is_spoken(one)]
        if not offered:
            raise InvalidError(
                f"the agent at {self.card_url} offers neither JSON-RPC nor REST of A2A 1.0, and this "
                "client speaks nothing else"
            )
        is_ours = is_everloop(card)
        # A gateway is called at its reachable address, whatever its own name.
        trusted = [
            one for one in offered if is_ours or not self._credentials or self._credentials.trusts(one.url)
        ]
        if not trusted:
            host = urlsplit(offered[0].url).hostname
            raise InvalidError(
                f"the card at {self.card_url} names the address {offered[0].url}, of another server, and the "
                f"credentials are not for that; if they are, say so: hosts=[{host!r}]"
            )
        chosen = min(trusted, key=lambda one: _BINDINGS.index(one.protocol_binding))
        slash = "/" if chosen.url.endswith("/") else ""
        url = f"{_directory(self.card_url)}{slash}" if is_ours else chosen.url
        return make_transport(chosen, card, url, self.http)

    def _is_spoken(self, interface: pb.AgentInterface) -> bool:
        return interface.protocol_binding in _BINDINGS and interface.protocol_version.startswith("1")


_OF_AGENT = re.compile(r"(/agents/[^/]+)?")


def _directory(card_url: str) -> str:
    return card_url.partition("/.well-known/")[0].rstrip("/")


def _extension_base(card: pb.AgentCard) -> str:
    extensions = (each for each in card.capabilities.extensions if each.uri == HTTP_EXTENSION)
    return next((str(plain_struct(each.params).get("base") or "") for each in extensions), "")


def _split(url: str, extension_base: str) -> tuple[str, str]:
    """Return the gateway's own URL, and the rest of the address of one of its agents."""
    base, slash, agent = url.rpartition("/agents/")
    is_of_gateway = f"{extension_base}/".startswith(f"{urlsplit(url).path}/")
    return (url, "") if is_of_gateway or not slash else (base, f"{slash}{agent}")


def addresses(url: str, agent: str | None) -> Sequence[str]:
    """Return the addresses to search for the card of an agent, in this order.

    `url` is that of a gateway, an agent or a card; `agent` is the id of one of the gateway's agents.

    Raises:
        InvalidError: it is malformed, or is one of a card although an id is given.
    """
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
        raise InvalidError(
            f"{url!r} is no address of a gateway or a card; give one such as http://127.0.0.1:8080"
        )
    base = url.rstrip("/")
    if url.endswith(".json"):
        if agent:
            raise InvalidError(
                f"{url!r} is the address of a card; leave agent={agent!r} out, or give the gateway's"
            )
        return [url]
    if not agent:
        return [f"{base}/{CARD_PATH}"]
    path = f"/agents/{quote(agent, safe='')}/{CARD_PATH}"
    gateway, slash, other = base.rpartition("/agents/")
    return [f"{base}{path}", *([f"{gateway}{path}"] if slash and "/" not in other else [])]
