"""What an agent's definition says of a peer."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from everloop.agents.errors import AgentDefinitionError
from everloop.runtime.outbound import Allowance, read_allowance
from everloop.workflows.contract.parts import url_flaw
from everloop.workflows.contract.tasks import Identity

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


def card_address(card_url: str) -> str:
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


def checked_name(name: str) -> str:
    """Return the name of a tool, or refuse what is none."""
    if not _NAME.fullmatch(name):
        raise AgentDefinitionError(
            f"peer: the name {name!r} is none for a tool; give 1 to {LONGEST_NAME} letters, digits, - and _"
        )
    return name


def read_hosts(card_url: str, hosts: Sequence[str]) -> Allowance:
    """Return where credentials may go besides the origin of the card."""
    try:
        return read_allowance(",".join(hosts))
    except ValueError as error:
        raise AgentDefinitionError(f"peer({_shown(card_url)}): hosts: {error}") from None


def check_headers(card_url: str, headers: Mapping[str, str]) -> None:
    """Refuse what could not be sent; the values are not shown."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise AgentDefinitionError(f"peer({card_url!r}): {name!r} is no name of a header")
        if not (value.isascii() and value.isprintable()):
            raise AgentDefinitionError(
                f"peer({card_url!r}): the header {name!r} has signs that none may have; give printable ASCII"
            )


def name_of(address: str) -> str:
    """Make a name for the tool; of a long address the end stands for itself, and a digest for the rest."""
    parts = urlsplit(address)
    place = f"{parts.netloc}{parts.path.removesuffix(CARD_PATH).removesuffix('.json')}"
    name = "ask_" + re.sub(r"[^a-zA-Z0-9]+", "_", place).strip("_")
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    return f"ask_{digest}_{name[-(LONGEST_NAME - 13) :]}"
