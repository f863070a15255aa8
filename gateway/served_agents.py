"""Which agent a call is for: the one of its address, or the one that `tenant` names.

A2A 1.0 §4.4.6: an interface of a card may have a tenant, which its clients send back. Ours is the id of the
agent, for gRPC has no paths; JSON-RPC and REST take it too.
"""

from a2a.server.context import ServerCallContext
from a2a.utils.errors import InvalidParamsError

from everloop.agents.agent import Agent
from everloop.agents.errors import UnknownAgentError
from everloop.agents.registry import AgentRegistry
from everloop.gateway.callers import Viewer, caller_of

AGENT = "everloop.agent"
"""Where a call's state holds the id of the agent whose address was called; not there: the default one's."""


def agent_of(context: ServerCallContext, agents: AgentRegistry) -> Agent:
    """Return the agent that a call is for.

    Raises:
        InvalidParamsError: `tenant` names no agent of this server, or another one than the address does.
    """
    addressed: str = context.state.get(AGENT, "")
    named = context.tenant or addressed or agents.default.id
    try:
        agent = agents.find(named)
    except UnknownAgentError:
        raise InvalidParamsError(
            f"tenant is {named!r}, which is no agent of this server; leave it out, or send the one of a card"
        ) from None
    if addressed and agent.id != addressed:
        raise InvalidParamsError(
            f"tenant is {named!r}, but this is the address of agent {addressed!r}; leave tenant out"
        )
    return agent


def viewer_of(context: ServerCallContext, agents: AgentRegistry) -> Viewer:
    """Return whose tasks, with which agent, a call may see."""
    return Viewer(caller_of(context).owner, agent_of(context, agents).id)
