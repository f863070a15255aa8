"""Other agents of the same deployment: for a part of the work, or for all of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from everloop.agents.agent import Agent
from everloop.agents.errors import AgentDefinitionError, rendered
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool
from everloop.workflows.contract.names import AGENT_ID_RULE, is_agent_id


@dataclass(kw_only=True, eq=False)
class Delegation(Plugin):
    """Offers another agent."""

    agents: Sequence[Agent] = ()
    """Agents that are served together with the agent of this plugin."""


def sub_agent(agent: Agent | str, description: str | None = None) -> Plugin:
    """Offer another agent as a tool of its name; it takes one `request` and works as a task of its own.

    Give the agent, or its id where it stands in another file or process. `description` tells the model what
    to ask it for (default: the agent's own).

    >>> writer = Agent(id="writer", name="Writer", description="Writes poems.")
    >>> sub_agent(writer).tools[0].description
    "Ask the agent 'writer' to do a part of the work. Writes poems. It knows nothing but the request."

    Raises:
        AgentDefinitionError: no agent could have that id.
    """
    agent_id = _id("sub_agent", agent)
    purpose = description or (
        f"Ask the agent {agent_id!r} to do a part of the work.{_about(agent)} "
        "It knows nothing but the request."
    )
    offered = Tool(_take_request, agent_id, purpose, agent=agent_id)
    return Delegation(name="sub_agent", tools=(offered,), agents=_given(agent))


def handoff(agent: Agent | str, description: str | None = None) -> Plugin:
    """Offer to hand the task over to another agent, which continues with the whole transcript.

    Give the agent, or its id. `description` tells the model when to do so (default: the agent's own).

    Raises:
        AgentDefinitionError: no agent could have that id.
    """
    agent_id = _id("handoff", agent)
    purpose = description or (
        f"Hand the whole task over to the agent {agent_id!r}, which goes on from here.{_about(agent)}"
    )
    offered = Tool(_take_reason, f"hand_over_to_{agent_id}", purpose, handoff=agent_id)
    return Delegation(name="handoff", tools=(offered,), agents=_given(agent))


def _id(plugin: str, agent: Agent | str) -> str:
    if isinstance(agent, Agent):
        return agent.id
    if not isinstance(agent, str) or not is_agent_id(agent):  # pyright: ignore[reportUnnecessaryIsInstance] -- authors may give anything
        raise AgentDefinitionError(
            f"{plugin}({rendered(agent)}): give an agent, or the id of one: {AGENT_ID_RULE}"
        )
    return agent


def _about(agent: Agent | str) -> str:
    return f" {agent.description}" if isinstance(agent, Agent) and agent.description else ""


def _given(agent: Agent | str) -> tuple[Agent, ...]:
    return (agent,) if isinstance(agent, Agent) else ()


async def _take_request(request: str) -> str:
    """Show the signature of a sub-agent's tool; the call itself becomes a task of that agent."""
    raise RuntimeError("this task began when the tool was no sub-agent yet; it is asked in new tasks only")


async def _take_reason(reason: str = "") -> str:
    """Show the signature of a handoff; the workflow itself hands the task over."""
    raise RuntimeError("this task began when the tool was no handoff yet; it works in new tasks only")
