"""Remote agents: any A2A agent, whoever runs it, as a tool."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.peer.definition import (
    DEFAULT_TIMEOUT,
    Headers,
    Peer,
    card_address,
    check_headers,
    checked_name,
    name_of,
    read_hosts,
)
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool
from everloop.agents.tool_context import ToolContext

if TYPE_CHECKING:
    from everloop.agents.peer.call import PeerCalls


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
    address = card_address(card_url)
    tool_name = checked_name(name) if name is not None else name_of(address)
    if token is not None and not token.strip():
        raise AgentDefinitionError(f"peer({card_url!r}): the token has no name; the secret is kept under one")
    if headers is not None and not callable(headers):
        check_headers(card_url, headers)
    allowance = read_hosts(card_url, hosts)
    asked = Peer(address, tool_name, headers or {}, token or "", timeout, idempotent, allowance)
    purpose = description or f"Ask the agent at {asked.label} to do a part of the work."
    purpose += (
        "\n\nIt knows nothing but the `request`, and the artifacts that `files` names by their ids. To go on "
        "with a conversation, give the `context` that its earlier answer named."
    )
    tool = Tool(PeerTool(asked).ask, tool_name, purpose, timeout=timeout, idempotent=idempotent)
    return Plugin(name="peer", tools=(tool,))
