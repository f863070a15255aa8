"""Definition of a peer by the author of an agent."""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from everloop.agents.errors import AgentDefinitionError
from everloop.runtime.outbound.policy import Allowance, Headers
from everloop.workflows.contract.parts import url_problem

if TYPE_CHECKING:
    from a2a.types import a2a_pb2 as pb

DEFAULT_TIMEOUT = timedelta(minutes=10)
CARD_PATH = "/.well-known/agent-card.json"
LONGEST_NAME = 64


@dataclass(eq=False)
class Peer:
    """Settings of a peer (see `peer`), and its cached card."""

    card_url: str
    """Address of its card."""
    name: str
    headers: Headers = field(default_factory=dict[str, str], repr=False)
    token: str = ""
    timeout: timedelta = DEFAULT_TIMEOUT
    idempotent: bool = True
    allowance: Allowance = field(default_factory=Allowance)
    card: "pb.AgentCard | None" = field(default=None, init=False, repr=False)
    card_until: float = field(default=0.0, init=False, repr=False)

    @property
    def label(self) -> str:
        """Name of the peer in messages: its address without the query, which may hold a key."""
        parts = urlsplit(self.card_url)
        return f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix(CARD_PATH)}"


def card_address(card_url: str) -> str:
    """Return the address of the card."""
    if problem := url_problem(card_url):
        raise AgentDefinitionError(f"peer({redacted(card_url)}): the address {problem}")
    parts = urlsplit(card_url)
    if parts.path.endswith(".json"):
        return card_url
    return parts._replace(path=f"{parts.path.rstrip('/')}{CARD_PATH}", fragment="").geturl()


def redacted(card_url: str) -> str:
    """Return the address for a message; one with a password in it is not shown."""
    return "…" if "@" in card_url else repr(card_url)


def name_of(address: str) -> str:
    """Return a name for the tool, from the end of the address; a digest replaces the rest of a long one."""
    parts = urlsplit(address)
    place = f"{parts.netloc}{parts.path.removesuffix(CARD_PATH).removesuffix('.json')}"
    name = "ask_" + re.sub(r"[^a-zA-Z0-9]+", "_", place).strip("_")
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    return f"ask_{digest}_{name[-(LONGEST_NAME - 13) :]}"
