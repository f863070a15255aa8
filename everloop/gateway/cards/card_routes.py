"""Public documents: agent cards, the catalogue, the keys of signatures."""

import hashlib
import json
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any, cast

import orjson
from a2a.compat.v0_3.conversions import to_compat_agent_card
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from everloop.agents.agent import Agent
from everloop.gateway.cards.cards import Cards
from everloop.gateway.cards.signing import JWKS_PATH
from everloop.gateway.http.requests import names_tag

CACHE_CONTROL = "public, max-age=300"
"""Cards change with the gateway's configuration; five minutes later all clients have the new one."""

CARD_PATH = ".well-known/agent-card.json"
OLD_CARD_PATH = ".well-known/agent.json"
"""The path before A2A 0.3, which some 0.3 clients still use."""

HTTP_CARD_PATH = f"http/{CARD_PATH}"
"""The card without gRPC. A path and no query: the client that needs it most drops queries."""

BLOCKING_CARD_PATH = f"blocking/{CARD_PATH}"
"""The card without gRPC and streaming."""


def card_routes(cards: Cards) -> list[BaseRoute]:
    """Return the routes of all cards, of the catalogue and, if cards are signed, of their keys.

    The default agent's card is at the root, and that of each agent below `/agents/{id}/`.
    """
    routes: list[BaseRoute] = [_route("/agents", [_entry(cards, agent) for agent in cards.agents])]
    for agent in cards.agents:
        documents = _documents(cards, agent)
        prefixes = [f"/agents/{agent.id}/"]
        if agent.id == cards.agents.default.id:
            prefixes.append("/")
        routes += [_route(prefix + path, card) for prefix in prefixes for path, card in documents.items()]
    if cards.key:
        routes.append(_route(f"/{JWKS_PATH}", cards.key.jwks))
    return routes


def _documents(cards: Cards, agent: Agent) -> dict[str, object]:
    """Return the cards of an agent by their paths."""
    merged = cards.signed(_merged(cards.merged(agent)))
    return {
        CARD_PATH: merged,
        OLD_CARD_PATH: merged,
        f"v1/{CARD_PATH}": MessageToDict(cards.pure(agent)),
        HTTP_CARD_PATH: cards.signed(_merged(cards.over_http(agent))),
        BLOCKING_CARD_PATH: cards.signed(_merged(cards.over_http(agent, streaming=False))),
    }


def _merged(card: pb.AgentCard) -> dict[str, Any]:
    """Return a card with the fields of A2A 0.3; its list of interfaces has the preferred one too (§5.6.2)."""
    legacy = to_compat_agent_card(card).model_dump(exclude_none=True)
    if not legacy.get("supportsAuthenticatedExtendedCard"):
        legacy.pop("supportsAuthenticatedExtendedCard", None)
    fields = cast("dict[str, Any]", _completed(MessageToDict(card), legacy))
    preferred = {"url": fields["url"], "transport": fields["preferredTransport"]}
    return {**fields, "additionalInterfaces": [preferred, *fields["additionalInterfaces"]]}


def _completed(card: JsonValue, legacy: JsonValue) -> JsonValue:
    """Add the fields that only the other version has, recursively."""
    if isinstance(card, dict) and isinstance(legacy, dict):
        return card | {name: _completed(card.get(name, value), value) for name, value in legacy.items()}
    if isinstance(card, list) and isinstance(legacy, list):
        both = [_completed(own, other) for own, other in zip(card, legacy, strict=False)]
        return [*both, *card[len(both) :]]
    return card


def _entry(cards: Cards, agent: Agent) -> dict[str, str]:
    address = cards.address(agent)
    return {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "url": address,
        "card": f"{address}{CARD_PATH}",
    }


def _route(path: str, content: object) -> Route:
    return Route(path, _Document(content).respond, methods=["GET"])


class _Document:
    """JSON that does not change while the process runs."""

    def __init__(self, content: object) -> None:
        self._body = orjson.dumps(content)
        self._tag = _tag(content)
        self._modified = datetime.now(UTC).replace(microsecond=0)
        self._headers = {
            "Cache-Control": CACHE_CONTROL,
            "ETag": f"W/{self._tag}",
            "Last-Modified": format_datetime(self._modified, usegmt=True),
        }

    async def respond(self, request: Request) -> Response:
        """Answer GET and HEAD; 304 if the client has the current version."""
        if self._is_cached(request):
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers, media_type="application/json")

    def _is_cached(self, request: Request) -> bool:
        """Return True if the client's version is current; a time counts without a tag (RFC 9110 §13.2.2)."""
        tags = request.headers.getlist("if-none-match")
        if tags:
            return names_tag(", ".join(tags), self._tag, weakly=True)
        try:
            since = parsedate_to_datetime(request.headers.get("if-modified-since", ""))
        except (ValueError, OverflowError):  # no time, or none that a machine can count to
            return False
        return self._modified <= since.replace(tzinfo=since.tzinfo or UTC)


def _tag(content: object) -> str:
    """Return an ETag equal on all gateways: signatures of equal content by one key may differ."""
    canonical = json.dumps(_without_signatures(content), sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(canonical.encode()).hexdigest()[:32]}"'


def _without_signatures(content: object) -> object:
    """Return a card with signatures replaced by their headers, which name the key."""
    if not isinstance(content, dict) or "signatures" not in content:
        return cast("object", content)
    card = cast("dict[str, Any]", content)
    return {**card, "signatures": [signature["protected"] for signature in card["signatures"]]}
