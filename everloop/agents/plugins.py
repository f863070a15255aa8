"""Plugins: the parts of an agent."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, JsonValue

from everloop.agents.errors import AgentDefinitionError, ToolDefinitionError, checked, rendered
from everloop.agents.hooks import HOOKS, HookContext, NeedsApproval, TaskOutcome, Veto
from everloop.agents.question_exceptions import InputKind, InputRequired
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.agents.tool_signature import is_async
from everloop.models.interface import ModelRequest
from everloop.runtime.schema_validation import in_schema_thread
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from everloop.workflows.contract.tasks import NarratorSpec

PromptWriter = Callable[[HookContext], Awaitable[str]]
"""Writes a system prompt for each model call; an empty text leaves it out."""


@dataclass(frozen=True)
class SystemPrompt:
    """A system prompt: a text, or its writer for each model call. `place` is relative to the history.

    Those before the history become paragraphs of one system message; one after it is a message of its
    own.
    """

    text: str | PromptWriter
    place: Literal["before", "after"] = "before"


@dataclass(kw_only=True, eq=False)
class Plugin:
    """Adds system prompts, tools and hooks to an agent; subclass it for custom behaviour.

    `name` is unique among the plugins of an agent that list tools (default: that of the class). Of
    several plugins the one with the lowest `priority` is called first; equal ones in the order of the
    agent's list. `artifact_tool` is the name of the tool among them that makes an artifact, if one
    does.

    Hooks run in activities: after a crash one may be called again for the same event, and should decide
    the same. Each gets the result of the plugin before it. None changes nothing, a `Veto` ends the
    chain. A hook that raises, or takes more than 20 s, stops its event: the call of a tool ends as an
    error that the model reads, a message or a model call ends the task.

    Raises:
        AgentDefinitionError: a hook, or another awaited method, is not async; or a method is called
            `before_…` or `after_…`, and is not a hook.
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
        for method in dir(type(self)):
            if method not in HOOKS and method.startswith(("before_", "after_")):
                near = get_close_matches(method, HOOKS, n=1, cutoff=0.8)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(HOOKS)}"
                raise AgentDefinitionError(f"plugin {self.name!r}: no hook is called {method!r}; {hint}")

    @property
    def needs_price(self) -> bool:
        """Whether the prices of the agent's models are required."""
        return False

    def may_ask(self, tool: str) -> bool:
        """Return True if `before_tool` may require an approval for this tool; operators read it."""
        return False

    async def list_tools(self, context: HookContext) -> Sequence[Tool]:
        """Return the tools of one task besides `tools`. It is called once; the task stores the list.

        Raises:
            Exception: the tools cannot be listed now; the task calls again, a few times.
        """
        return ()

    async def get_tool(self, name: str, context: HookContext) -> Tool | None:
        """Return the current definition of a listed tool; None if it was removed."""
        listed = await self.list_tools(context)
        return next((tool for tool in listed if tool.name == name), None)

    async def before_request(self, context: HookContext, message: UserMessage) -> UserMessage | Veto | None:
        """Inspect a message of the client before a model reads it; a veto of the first rejects the task."""

    async def before_model_call(
        self, context: HookContext, request: ModelRequest
    ) -> ModelRequest | Veto | None:
        """Inspect a model call; changes apply to this call alone. A veto ends the task."""

    async def after_model_call(
        self, context: HookContext, reply: AssistantMessage
    ) -> AssistantMessage | Veto | None:
        """Inspect a complete reply; the model reads the reason of a veto, and replies again."""

    async def before_tool(
        self, context: HookContext, call: ToolCall
    ) -> ToolCall | Veto | NeedsApproval | None:
        """Inspect a call before it runs; its arguments may be changed, not its tool."""

    async def after_tool(
        self, context: HookContext, call: ToolCall, result: ToolMessage
    ) -> ToolMessage | Veto | None:
        """Inspect the result of a call. The model reads the reason of a veto in place of the result."""

    async def after_completion(self, context: HookContext, outcome: TaskOutcome) -> None:
        """Inspect the end of the task, which is already published."""

    async def on_error(self, context: HookContext, error: str) -> None:
        """Inspect a failure of a model call, a tool, or the task."""

    async def close(self) -> None:
        """Close connections and processes. Called when the worker stops."""

    def overrides(self, method: str) -> bool:
        """Return True if the class of this plugin overrides a hook or another method."""
        return getattr(type(self), method) is not getattr(Plugin, method)


Place = Literal["before", "after"]


@checked
def prompt(
    text: Annotated[str, Field(description="a text; async_prompt(…) takes a function")],
    place: Place = "before",
) -> Plugin:
    """Put a text before the history of every model call, or after it."""
    return Plugin(name="prompt", prompts=(SystemPrompt(text, place),))


def _check_writer(writer: PromptWriter) -> PromptWriter:
    if not is_async(writer):
        raise ValueError("its function is not async; write `async def`, with one parameter: the HookContext")
    return writer


@checked
def async_prompt(
    writer: Annotated[
        PromptWriter,
        AfterValidator(_check_writer),
        Field(description="an async function that returns a text; prompt(…) takes a text"),
    ],
    place: Place = "before",
) -> Plugin:
    """Put a text that is written for each model call before its history, or after it."""
    return Plugin(name="async_prompt", prompts=(SystemPrompt(writer, place),))


@checked
def narrator(
    interval: Annotated[float, Field(ge=1, description="a number of seconds, from 1")] = 5.0,
    model: str | None = None,
) -> Plugin:
    """Report to the client every `interval` seconds, in at most 50 characters, what the task is doing.

    `model` writes that (default: the agent's own).

    Raises:
        AgentDefinitionError: the interval is under a second.
    """
    return Plugin(name="narrator", narrator=NarratorSpec(interval=interval, model=model))


def tools(*offered: Tool | Callable[..., Any]) -> Plugin:
    """Offer tools to the model; a plain function becomes a tool as by `@tool`.

    Raises:
        ToolDefinitionError: something that cannot be a tool.
    """
    return Plugin(name="tools", tools=[_tool_of(each) for each in offered])


def _tool_of(offered: Tool | Callable[..., Any]) -> Tool:
    if isinstance(offered, list | tuple):
        raise ToolDefinitionError(
            "tools: give each tool for itself: tools(first, second), or tools(*several)"
        )
    if isinstance(offered, Plugin):
        raise ToolDefinitionError(
            f"tools: {offered.name!r} is a plugin; put it beside tools(…): "
            f"plugins=[tools(…), {offered.name}(…)]"
        )
    if isinstance(agent := getattr(offered, "id", None), str):
        raise ToolDefinitionError(
            f"tools: {agent!r} is an agent; put it beside tools(…): plugins=[tools(…), sub_agent(…)]"
        )
    if not callable(offered):
        raise ToolDefinitionError(
            f"tools: it is given {rendered(offered)}, which is no function; give the function itself, "
            "without calling it: tools(search), and not tools(search(…))"
        )
    made = cast("Tool", offered) if isinstance(offered, Tool) else tool(offered)
    if made.is_unbound:
        raise ToolDefinitionError(
            f"tool {made.name!r}: it is a method of a class; give that of an object: "
            f"tools(some_object.{made.name})"
        )
    return made


def request_input() -> Plugin:
    """Offer the tool `request_input`, with which the model asks its user; the task waits for the answer."""
    return Plugin(name="request_input", tools=(_REQUEST_INPUT,))


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


# Values of other types in place of a plugin.


def check_plugins(given: object) -> object:
    """Reject anything but a list of plugins, with a suggestion.

    Raises:
        ValueError: it is not one.
    """
    if isinstance(given, Plugin):
        problem = f"plugins is a plugin; give a list: plugins=[{given.name}(…)]"
    elif not isinstance(given, list | tuple):
        problem = f"plugins is {rendered(given)}; give a list of plugins, such as [prompt('…')]"
    else:
        each = enumerate(cast("Sequence[object]", given))
        others = (f"plugins[{at}] is {_meant(other)}" for at, other in each if not isinstance(other, Plugin))
        problem = next(others, "")
    if problem:
        raise ValueError(problem)
    return cast("object", given)


def _meant(value: object) -> str:
    """Return the kind of a value that is not a plugin, and the correction."""
    if isinstance(value, Tool):
        return f"the tool {value.name!r}; write tools({value.name})"
    if isinstance(value, str):
        return f"{rendered(value)}; write prompt(…)"
    if isinstance(agent := getattr(value, "id", None), str):
        return f"the agent {agent!r}; write sub_agent(…), or handoff(…), with it"
    if isinstance(value, type):
        is_plugin = issubclass(value, Plugin)
        return f"the class {value.__name__}; {f'write {value.__name__}()' if is_plugin else _LIST}"
    name = getattr(value, "__name__", "")
    makes_plugin = getattr(value, "__module__", "").startswith("everloop.")
    write = f"call it: {name}(…)" if makes_plugin else f"write tools({name})"
    return f"the function {name}; {write}" if name else f"{rendered(value)}; {_LIST}"


_LIST = "give a plugin, such as prompt('…') or tools(…)"
