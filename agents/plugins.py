"""Plugins: what an agent is composed of."""

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue

from agents.errors import AgentDefinitionError
from agents.questions import InputKind, InputRequired
from agents.tool import Tool, tool
from agents.tool_context import ToolContext


@dataclass(frozen=True)
class Plugin:
    """Adds system prompts and tools to an agent.

    `artifact_tool` is the name of the tool among them that makes an artifact, if one does.
    """

    prompts: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    artifact_tool: str | None = None


def prompt(text: str) -> Plugin:
    """Put a text at the head of every model call; several become paragraphs of one system message."""
    return Plugin(prompts=(text,))


def tools(*offered: Tool) -> Plugin:
    """Offer tools to the model."""
    return Plugin(tools=offered)


def request_input() -> Plugin:
    """Offer the tool `request_input`, with which the model asks its user; the task waits for the answer."""
    return Plugin(tools=(_REQUEST_INPUT,))


def sub_agent(agent_id: str, description: str | None = None) -> Plugin:
    """Offer another agent as a tool of its name; it takes one `request` and works as a task of its own.

    `description` tells the model what to ask it for.

    Raises:
        AgentDefinitionError: no agent could have that id.
    """
    if not is_agent_id(agent_id):
        raise AgentDefinitionError(f"sub_agent({agent_id!r}): give the id of an agent: letters, digits, - _")
    told = description or (
        f"Ask the agent {agent_id!r} to do a part of the work. It knows nothing but the request."
    )
    return Plugin(tools=(Tool(_take_request, agent_id, told, agent=agent_id),))


def is_agent_id(text: str) -> bool:
    """Whether it can be the id of an agent: letters, digits, `-` and `_`."""
    return text.replace("-", "").replace("_", "").isalnum()


def prompts_of(plugins: Iterable[Plugin]) -> str:
    """Return the system prompt of all plugins, in order; empty if there is none."""
    return "\n\n".join(text for plugin in plugins for text in plugin.prompts)


async def _take_request(request: str) -> str:
    """Show the signature of a sub-agent's tool; the call itself becomes a task of that agent."""
    raise RuntimeError("this task began when the tool was no sub-agent yet; it is asked in new tasks only")


async def _request_input(
    context: ToolContext,
    question: str,
    kind: InputKind = "clarification",
    options: tuple[str, ...] = (),
    schema: dict[str, JsonValue] | None = None,
) -> JsonValue:
    """Ask your user, and wait for the answer. Ask only what you cannot find out or decide yourself.

    kind: "clarification" for free text, "confirmation" for yes or no, "selection" for one of `options`,
    "data" for JSON that fits the JSON schema `schema`.
    """
    if context.answers:
        return context.answer
    raise InputRequired(question, kind, options=options, schema=schema)


_REQUEST_INPUT = tool(name="request_input", idempotent=True)(_request_input)
