"""Plugins: what an agent is composed of."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import JsonValue

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.hooks import HOOKS, HookContext, NeedsApproval, TaskOutcome, Veto
from everloop.agents.questions import InputKind, InputRequired
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.models.interface import ModelRequest
from everloop.runtime.foreign_schemas import in_schema_thread
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from everloop.workflows.contract.names import AGENT_ID_RULE, is_agent_id
from everloop.workflows.contract.tasks import NarratorSpec

PromptWriter = Callable[[HookContext], Awaitable[str]]
"""Writes a system prompt anew for every model call; an empty text leaves it out."""


@dataclass(frozen=True)
class SystemPrompt:
    """A system prompt: a text, or who writes it for each model call. `place` is that beside the history.

    Those before the history become paragraphs of one system message; one after it is a message of its own.
    """

    text: str | PromptWriter
    place: Literal["before", "after"] = "before"


@dataclass(kw_only=True, eq=False)
class Plugin:
    """Adds system prompts, tools and hooks to an agent; subclass it for what the shipped ones do not do.

    `name` is unique among the plugins of an agent that list tools (default: that of the class). Of several
    plugins the one with the lowest `priority` is asked first; equal ones in the order in which the agent
    names them. `artifact_tool` is the name of the tool among them that makes an artifact, if one does.

    Hooks run in activities: after a crash one may be asked again about the same thing, and should decide the
    same. Each gets what the plugin before it has made of it. None leaves it as it is, a `Veto` ends the
    asking. A hook that raises, or takes more than 20 s, stops what it was asked about: the call of a tool
    ends as an error that the model reads, a message or a model call ends the task.

    Raises:
        AgentDefinitionError: a hook, or another method that is awaited, is not async.
    """

    name: str = ""
    priority: int = 0
    prompts: Sequence[SystemPrompt] = ()
    tools: Sequence[Tool] = ()
    artifact_tool: str | None = None
    narrator: NarratorSpec | None = None

    def __post_init__(self) -> None:
        self.name = self.name or type(self).__name__.lower()
        for method in (*HOOKS, "list_tools", "get_tool", "close"):
            if not inspect.iscoroutinefunction(getattr(self, method)):
                raise AgentDefinitionError(
                    f"plugin {self.name!r}: {method} is no async method; write `async def {method}`"
                )

    @property
    def needs_price(self) -> bool:
        """Whether it has to be known what the models of its agent cost."""
        return False

    def may_ask(self, tool: str) -> bool:
        """Whether `before_tool` may want people to approve a call of this tool; operators read it."""
        return False

    async def list_tools(self, context: HookContext) -> Sequence[Tool]:
        """Return the tools of one task besides `tools`. It is asked once; the task keeps what it gets.

        Raises:
            Exception: the tools cannot be listed now; the task asks again, a few times.
        """
        return ()

    async def get_tool(self, name: str, context: HookContext) -> Tool | None:
        """Return a tool that was listed for the task, as it is now; None if there is none any more."""
        listed = await self.list_tools(context)
        return next((tool for tool in listed if tool.name == name), None)

    async def before_request(self, context: HookContext, message: UserMessage) -> UserMessage | Veto | None:
        """Look at a message of the client before a model reads it; a veto of the first rejects the task."""

    async def before_model_call(
        self, context: HookContext, request: ModelRequest
    ) -> ModelRequest | Veto | None:
        """Look at a model call; what is changed holds for this call alone. A veto ends the task."""

    async def after_model_call(
        self, context: HookContext, reply: AssistantMessage
    ) -> AssistantMessage | Veto | None:
        """Look at a whole reply; the model reads the reason of a veto, and replies again."""

    async def before_tool(
        self, context: HookContext, call: ToolCall
    ) -> ToolCall | Veto | NeedsApproval | None:
        """Look at a call before it runs; other arguments may be given to it, not another tool."""

    async def after_tool(
        self, context: HookContext, call: ToolCall, result: ToolMessage
    ) -> ToolMessage | Veto | None:
        """Look at what a call came to. The model reads the reason of a veto in place of the result."""

    async def after_completion(self, context: HookContext, outcome: TaskOutcome) -> None:
        """Look at how the task ended; its end is published."""

    async def on_error(self, context: HookContext, error: str) -> None:
        """Look at a failure of a model call, a tool, or the task."""

    async def close(self) -> None:
        """Let go of connections and processes; the worker stops."""

    def overrides(self, method: str) -> bool:
        """Whether the class of this plugin has a hook, or another method, of its own."""
        return getattr(type(self), method) is not getattr(Plugin, method)


def prompt(text: str, place: Literal["before", "after"] = "before") -> Plugin:
    """Put a text at the head of every model call, or behind its history."""
    return Plugin(name="prompt", prompts=(SystemPrompt(text, place),))


def async_prompt(writer: PromptWriter, place: Literal["before", "after"] = "before") -> Plugin:
    """Put a text that is written anew for every model call at its head, or behind its history."""
    return Plugin(name="async_prompt", prompts=(SystemPrompt(writer, place),))


def narrator(interval: float = 5.0, model: str | None = None) -> Plugin:
    """Tell the client every `interval` seconds, in at most 50 characters, what the task is doing.

    `model` writes that (default: the agent's own).

    Raises:
        AgentDefinitionError: the interval is under a second.
    """
    if interval < 1:
        raise AgentDefinitionError(f"narrator: the interval is {interval:g} s; give it a second or more")
    return Plugin(name="narrator", narrator=NarratorSpec(interval=interval, model=model))


def tools(*offered: Tool | Callable[..., Any]) -> Plugin:
    """Offer tools to the model; a plain function becomes a tool as by `@tool`.

    Raises:
        ToolDefinitionError: something that cannot be a tool.
    """
    made: list[Tool] = [each if isinstance(each, Tool) else tool(each) for each in offered]
    return Plugin(name="tools", tools=made)


def request_input() -> Plugin:
    """Offer the tool `request_input`, with which the model asks its user; the task waits for the answer."""
    return Plugin(name="request_input", tools=(_REQUEST_INPUT,))


def sub_agent(agent_id: str, description: str | None = None) -> Plugin:
    """Offer another agent as a tool of its name; it takes one `request` and works as a task of its own.

    `description` tells the model what to ask it for.

    Raises:
        AgentDefinitionError: no agent could have that id.
    """
    _check_agent_id("sub_agent", agent_id)
    purpose = description or (
        f"Ask the agent {agent_id!r} to do a part of the work. It knows nothing but the request."
    )
    return Plugin(name="sub_agent", tools=(Tool(_take_request, agent_id, purpose, agent=agent_id),))


def handoff(agent_id: str, description: str | None = None) -> Plugin:
    """Offer to hand the task over to another agent, which goes on with all that was said and done.

    `description` tells the model when to do so.

    Raises:
        AgentDefinitionError: no agent could have that id.
    """
    _check_agent_id("handoff", agent_id)
    purpose = description or f"Hand the whole task over to the agent {agent_id!r}, which goes on from here."
    return Plugin(
        name="handoff", tools=(Tool(_take_reason, f"hand_over_to_{agent_id}", purpose, handoff=agent_id),)
    )


def _check_agent_id(plugin: str, agent_id: str) -> None:
    if not is_agent_id(agent_id):
        raise AgentDefinitionError(f"{plugin}({agent_id!r}): give the id of an agent: {AGENT_ID_RULE}")


async def _take_request(request: str) -> str:
    """Show the signature of a sub-agent's tool; the call itself becomes a task of that agent."""
    raise RuntimeError("this task began when the tool was no sub-agent yet; it is asked in new tasks only")


async def _take_reason(reason: str = "") -> str:
    """Show the signature of a handoff; the workflow itself hands the task over."""
    raise RuntimeError("this task began when the tool was no handoff yet; it works in new tasks only")


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
    raise await in_schema_thread(lambda: InputRequired(question, kind, options=options, schema=schema))


_REQUEST_INPUT = tool(name="request_input", idempotent=True)(_request_input)
