"""Remote agents: any A2A agent as a tool."""

import re
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.peer.peer_definition import (
    DEFAULT_TIMEOUT,
    LONGEST_NAME,
    Peer,
    card_address,
    name_of,
    redacted,
)
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool
from everloop.agents.tool_context import ToolContext
from everloop.runtime.outbound.policy import Headers, problem_of_headers, read_allowance


def peer(  # noqa: PLR0913 -- settings of a peer, each by its name
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
    """Offer a remote A2A agent (1.0 or 0.3) as a tool; each call is a task of that agent.

    `card_url` is the address of its agent card, or the part before `/.well-known/agent-card.json`.
    `name` is that of the tool (default: derived from the address), `description` tells the model what
    to ask it for.

    `headers` are sent with each request: a mapping, or a function of the `Identity` of who started the
    task. With `token`, the name of a secret, the user is asked for a bearer token when the peer answers
    401 or 403. Both are sent to the origin of the card, and to `hosts` (`host` or `host:port`), and
    nowhere else. Other interfaces of the card are used only at public addresses, by https, and not over
    gRPC.

    `timeout` limits one attempt (default 10 min; waiting for people does not count). `idempotent`:
    after a crash that lost the peer's answer, the same message is sent again, with the same messageId
    (default). Set False for a peer that would begin a second task then; the outcome of the call is then
    unknown.

    Raises:
        AgentDefinitionError: the address, the name, a host or a header is invalid.
        ToolDefinitionError: no time.
    """
    address, tool_name = card_address(card_url), name
    if tool_name is None:
        tool_name = name_of(address)
    elif not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}", tool_name):
        raise AgentDefinitionError(
            f"peer: the name {name!r} is none for a tool; give 1 to {LONGEST_NAME} letters, digits, - and _"
        )
    if token is not None and not token.strip():
        raise AgentDefinitionError(f"peer({card_url!r}): the token has no name; the secret is kept under one")
    if headers is not None and not callable(headers) and (problem := problem_of_headers(headers)):
        raise AgentDefinitionError(f"peer({card_url!r}): {problem}")
    if isinstance(hosts, str):
        raise AgentDefinitionError(f"peer({redacted(card_url)}): hosts is a list, such as [{hosts!r}]")
    try:
        allowance = read_allowance(",".join(hosts))
    except ValueError as error:
        raise AgentDefinitionError(f"peer({redacted(card_url)}): hosts: {error}") from None
    remote = Peer(address, tool_name, headers or {}, token or "", timeout, idempotent, allowance)

    async def ask(call: ToolContext, request: str, context: str = "", files: tuple[str, ...] = ()) -> str:
        from everloop.agents.peer.peer_call import ask_peer  # noqa: PLC0415 -- all import agents, only workers need a client

        return await ask_peer(remote, call, request, context, files)

    purpose = description or f"Ask the agent at {remote.label} to do a part of the work."
    purpose += (
        "\n\nIt knows nothing but the `request`, and the artifacts that `files` names by their ids. To go on "
        "with a conversation, give the `context` that its earlier answer named."
    )
    tool = Tool(
        ask, tool_name, purpose, timeout=timeout, idempotent=idempotent, abandoned=partial(_abandon, remote)
    )
    return Plugin(name="peer", tools=(tool,))


async def _abandon(remote: Peer, call: ToolContext) -> None:
    from everloop.agents.peer.peer_call import abandon_peer  # noqa: PLC0415 -- as above

    await abandon_peer(remote, call)
