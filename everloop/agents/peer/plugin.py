"""Colleagues elsewhere: any A2A agent, whoever runs it, as a tool."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool
from everloop.agents.tool_context import ToolContext
from everloop.runtime.outbound import Allowance, read_allowance
from everloop.workflows.contract.parts import url_flaw
from everloop.workflows.contract.tasks import Identity

if TYPE_CHECKING:
    from everloop.agents.peer.call import PeerCalls

Headers = Mapping[str, str] | Callable[[Identity], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers of each request, or a function, sync or async, that makes them for who started the task."""

DEFAULT_TIMEOUT = timedelta(minutes=10)
CARD_PATH = "/.well-known/agent-card.json"
LONGEST_NAME = 64

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True)
class Peer:
    """What the author of an agent says of a peer; see `peer`. `card_url` is where its card itself is."""

    card_url: str
    name: str
    headers: Headers = field(default_factory=dict[str, str], repr=False)
    token: str = ""
    timeout: timedelta = DEFAULT_TIMEOUT
    idempotent: bool = True
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def label(self) -> str:
        """What messages call the peer: its address without the query, which may hold a key."""
        parts = urlsplit(self.card_url)
        return f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix(CARD_PATH)}"


class PeerTool:
    """The function of the tool that asks one peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def ask(
        self, call: ToolContext, request: str, context: str = "", files: tuple[str, ...] = ()
    ) -> str:
        """Run a task of the peer and return its answer."""
        return await self._calls.ask(call, request, context, files)

    @cached_property
    def _calls(self) -> "PeerCalls":
        from everloop.agents.peer.call import PeerCalls  # noqa: PLC0415 -- all import agents, only workers need a client

        return PeerCalls(self._peer)


def peer(  # noqa: PLR0913 -- what may be said of a peer, each by its name
    card_url: str,
    *,
    name: str | None = None,
    description: str | None = None,
    headers: Headers | None = None,
    token: str | None = None,
    timeout: timedelta = DEFAULT_TIMEOUT,
    idempotent: bool = True,
    hosts: Sequence[str] = (),
) -> Plugin:
    """Offer an A2A agent (1.0 or 0.3) that somebody else runs as a tool; it works as a task over there.

    `card_url` is where its agent card is, or what stands before `/.well-known/agent-card.json`. `name` is
    what the model calls the tool (default: made of the address), `description` tells the model what to ask it
    for.

    `headers` go with each request: a mapping, or a function of the `Identity` of who started the task. With
    `token`, the name of a secret, the user is asked for a bearer token when the peer answers 401 or 403.
    Both are sent to the origin of the card, and to `hosts` (`host` or `host:port`), and nowhere else. Other
    interfaces that the card lists are asked only at public addresses, by https, and not over gRPC.

    `timeout` bounds one attempt (default 10 min; waiting for people does not count). `idempotent`: after a
    crash that lost what the peer answered, the same message is sent again, with the same messageId (default).
    Give False for a peer that would begin a second task then; the outcome of the call is then unknown.

    Raises:
        AgentDefinitionError: no address, name, host or header could be like that.
        ToolDefinitionError: no time.
    """
    address = _card_address(card_url)
    tool_name = _checked_name(name) if name is not None else _name_of(address)
    if token is not None and not token.strip():
        raise AgentDefinitionError(f"peer({card_url!r}): the token has no name; the secret is kept under one")
    if headers is not None and not callable(headers):
        _check_headers(card_url, headers)
    allowance = _read_hosts(card_url, hosts)
    asked = Peer(address, tool_name, headers or {}, token or "", timeout, idempotent, allowance)
    told = description or f"Ask the agent at {asked.label} to do a part of the work."
    told += (
        "\n\nIt knows nothing but the `request`, and the artifacts that `files` names by their ids. To go on "
        "with a conversation, give the `context` that its earlier answer named."
    )
    tool = Tool(PeerTool(asked).ask, tool_name, told, timeout=timeout, idempotent=idempotent)
    return Plugin(name="peer", tools=(tool,))


def _card_address(card_url: str) -> str:
    """Return where the card itself is."""
    if flaw := url_flaw(card_url):
        raise AgentDefinitionError(f"peer({_shown(card_url)}): the address {flaw}")
    parts = urlsplit(card_url)
    if parts.path.endswith(".json"):
        return card_url
    return parts._replace(path=f"{parts.path.rstrip('/')}{CARD_PATH}", fragment="").geturl()


def _shown(card_url: str) -> str:
    """Return the address for a message; one with a password in it is not shown."""
    return "…" if "@" in card_url else repr(card_url)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise AgentDefinitionError(
            f"peer: the name {name!r} is none for a tool; give 1 to {LONGEST_NAME} letters, digits, - and _"
        )
    return name


def _read_hosts(card_url: str, hosts: Sequence[str]) -> Allowance:
    try:
        return read_allowance(",".join(hosts))
    except ValueError as error:
        raise AgentDefinitionError(f"peer({_shown(card_url)}): hosts: {error}") from None


def _check_headers(card_url: str, headers: Mapping[str, str]) -> None:
    """Refuse what could not be sent; the values are not shown."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise AgentDefinitionError(f"peer({card_url!r}): {name!r} is no name of a header")
        if not (value.isascii() and value.isprintable()):
            raise AgentDefinitionError(
                f"peer({card_url!r}): the header {name!r} has signs that none may have; give printable ASCII"
            )


def _name_of(address: str) -> str:
    """Make a name for the tool; of a long address the end stands for itself, and a digest for the rest."""
    parts = urlsplit(address)
    place = f"{parts.netloc}{parts.path.removesuffix(CARD_PATH).removesuffix('.json')}"
    name = "ask_" + re.sub(r"[^a-zA-Z0-9]+", "_", place).strip("_")
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    return f"ask_{digest}_{name[-(LONGEST_NAME - 13) :]}"
