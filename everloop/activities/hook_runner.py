"""Runs the hooks of an agent's plugins in order: each gets the result of the one before."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog
from pydantic import ValidationError
from temporalio.exceptions import ApplicationError

from everloop.agents.agent import Agent
from everloop.agents.errors import UnknownAgentError
from everloop.agents.hooks import ANYBODY, HookContext, NeedsApproval, TaskOutcome, Veto
from everloop.agents.plugins import Plugin
from everloop.agents.registry import AgentRegistry
from everloop.models.interface import ModelRequest
from everloop.runtime.user_code import error_kind, error_text, translate_base_exceptions
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.tasks import Identity, TaskRef, strictest

HOOK_TIMEOUT = 20.0
"""Timeout of one hook of one plugin, in seconds. A hook that exceeds it has failed."""

Answer = TypeVar("Answer")
WireAnswer = TypeVar("WireAnswer", bound=Wire)

_log = structlog.get_logger()


def find_agent(agents: AgentRegistry, agent_id: str, version: str = "") -> Agent:
    """Return an agent, in the given version if this worker has it.

    Raises:
        ApplicationError: `AgentUnknown` (retryable): another worker may have it.
    """
    try:
        return agents.find(agent_id, version)
    except UnknownAgentError as error:
        _log.warning("a task waits for a worker with its agent", agent=agent_id)
        raise ApplicationError(str(error), type=failures.AGENT_UNKNOWN) from error


def agent_of(agents: AgentRegistry, task: TaskRef) -> Agent:
    """Return the agent of a task, in the version with which the task began if this worker has it.

    Raises:
        ApplicationError: `AgentUnknown` (retryable): another worker may have it.
    """
    agent = find_agent(agents, task.agent_id, task.agent_version)
    if task.agent_version and agent.spec.version != task.agent_version:
        _log.warning(
            "another version of the agent continues", wanted=task.agent_version, has=agent.spec.version
        )
    return agent


class PluginFailedError(ApplicationError):
    """A hook or another method of a plugin raised, or returned an invalid value. The message names it.

    Unless it is caught it ends the task, since a retry would fail in the same way.
    """

    def __init__(self, plugin: str, method: str, error: Exception | str) -> None:
        problem = error if isinstance(error, str) else error_text(error)
        text = f"plugin {plugin!r} failed in {method}: {problem}"
        super().__init__(text, type=failures.PLUGIN_FAILED, non_retryable=True)
        self.plugin = plugin
        self.method = method
        self.error_type = error_kind(self if isinstance(error, str) else error)


class Hooks:
    """The hooks of one agent's plugins at one point of a task. Plugins without the hook are skipped.

    `timeout` limits one hook of one plugin, in seconds (default 20).
    """

    def __init__(self, agent: Agent, context: HookContext, *, timeout: float = HOOK_TIMEOUT) -> None:
        self._agent = agent
        self._context = context
        self._timeout = timeout

    def has(self, hook: str) -> bool:
        """True if any plugin has this hook. If not, callers need not prepare its input."""
        return hook in self._agent.hooks

    async def before_request(self, message: UserMessage) -> UserMessage | Veto:
        """Return the message for the model, or a veto.

        Raises:
            PluginFailedError: A hook raised, returned another type, or changed the id of the message.
        """

        def change_refused(before: UserMessage, after: UserMessage) -> str:
            return "" if after.message_id == before.message_id else "it changed the id of the message"

        return await self._pass_on("before_request", message, change_refused)

    async def before_model_call(self, request: ModelRequest) -> ModelRequest | Veto:
        """Return the request to send, or a veto.

        Raises:
            PluginFailedError: A hook raised, returned another type, or added or changed a tool.
        """

        def change_refused(before: ModelRequest, after: ModelRequest) -> str:
            if not isinstance(after.settings, ModelSettings):  # pyright: ignore[reportUnnecessaryIsInstance] -- a plugin may give anything
                return f"its settings are of type {type(after.settings).__name__}, not ModelSettings"
            for name in ("messages", "tools"):
                if not isinstance(getattr(after, name), list | tuple):
                    return f"its {name} are not a list"
            if not isinstance(after.model, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- as above
                return "its model is not a text"
            others = [tool for tool in after.tools if tool not in before.tools]
            names = ", ".join(sorted(str(getattr(tool, "name", tool)) for tool in others))
            return f"it added or changed the tools {names}; a hook may only take some away" if names else ""

        return await self._pass_on("before_model_call", request, change_refused)

    async def after_model_call(self, reply: AssistantMessage) -> AssistantMessage | Veto:
        """Return the reply to use, or the reason why the model has to give another one.

        Raises:
            PluginFailedError: A hook raised, or returned another type.
        """
        return await self._pass_on("after_model_call", reply, lambda _before, _after: "")

    async def before_tool(self, call: ToolCall) -> tuple[ToolCall, NeedsApproval | None] | Veto:
        """Return the call to run with the approvals that it needs, or a veto.

        All plugins are called, also after one has asked for an approval: another one may veto.

        Raises:
            PluginFailedError: A hook raised, returned another type, or changed the id or tool of the call.
        """
        approvals: list[NeedsApproval] = []
        for plugin in self._having("before_tool"):
            answer = await self._ask(plugin, "before_tool", (call,), (ToolCall, Veto, NeedsApproval))
            if isinstance(answer, Veto):
                return answer
            if isinstance(answer, NeedsApproval):
                approvals.append(answer)
            elif answer:
                if (answer.id, answer.name) != (call.id, call.name):
                    problem = "it changed the id or the tool of the call; a hook may only change arguments"
                    raise PluginFailedError(plugin.name, "before_tool", problem)
                call = answer
        return call, together(approvals)

    async def after_tool(self, call: ToolCall, result: ToolMessage) -> ToolMessage | Veto:
        """Return the result for the model, or a veto whose reason replaces it.

        Raises:
            PluginFailedError: A hook raised, returned another type, or changed the call of the result.
        """

        def change_refused(before: ToolMessage, after: ToolMessage) -> str:
            is_same = (after.call_id, after.name) == (before.call_id, before.name)
            problem = "it changed the id or the tool of the result; a hook may only change what it says"
            return "" if is_same else problem

        return await self._pass_on("after_tool", result, change_refused, call)

    async def after_completion(self, outcome: TaskOutcome) -> None:
        """Notify all plugins of the end of the task. Exceptions are logged."""
        await self._notify("after_completion", outcome)

    async def on_error(self, text: str) -> None:
        """Notify all plugins of a failure. Exceptions are logged."""
        await self._notify("on_error", text)

    def _having(self, hook: str) -> Iterator[Plugin]:
        if hook in self._agent.hooks:
            yield from (plugin for plugin in self._agent.ordered_plugins if plugin.overrides(hook))

    async def _pass_on(
        self, hook: str, value: Answer, change_refused: Callable[[Answer, Answer], str], *about: object
    ) -> Answer | Veto:
        """Pass a value through all plugins and return the result. The first veto ends it.

        `change_refused` returns why a change is not allowed, or an empty string.
        """
        kinds = (type(value), Veto)  # by the type of the input: a plugin may return a subclass
        for plugin in self._having(hook):
            answer = await self._ask(plugin, hook, (*about, value), kinds)
            if isinstance(answer, Veto):
                return answer
            if answer is not None:
                if problem := change_refused(value, answer):
                    raise PluginFailedError(plugin.name, hook, problem)
                value = answer
        return value

    async def _notify(self, hook: str, about: object) -> None:
        for plugin in self._having(hook):
            try:
                await self._call(plugin, hook, about)
            except PluginFailedError as error:
                _log.warning("plugin failed", plugin=plugin.name, hook=hook, error_type=error.error_type)

    async def _ask(
        self, plugin: Plugin, hook: str, about: tuple[object, ...], kinds: tuple[type[Answer], ...]
    ) -> Answer | None:
        answer = await self._call(plugin, hook, *about)
        if isinstance(answer, Veto) and not (isinstance(answer.reason, str) and answer.reason.strip()):  # pyright: ignore[reportUnnecessaryIsInstance] -- a plugin may give anything
            answer = replace(answer, reason=f"the plugin {plugin.name!r} does not allow it")
        if answer is None or isinstance(answer, kinds):
            try:
                return check_fields(answer) if isinstance(answer, Wire) else answer
            except ValueError as error:
                raise PluginFailedError(plugin.name, hook, str(error)) from None
        expected = ", ".join(kind.__name__ for kind in kinds)
        problem = f"it returned a {type(answer).__name__}, not {expected} or None"
        raise PluginFailedError(plugin.name, hook, problem)

    async def _call(self, plugin: Plugin, hook: str, *about: object) -> object:
        method: Callable[..., Awaitable[object]] = getattr(plugin, hook)
        return await in_time(plugin, hook, partial(method, self._context, *about), self._timeout)


def check_fields(answer: WireAnswer) -> WireAnswer:
    """Return a value of an author's code after validation: `model_copy` accepts any fields.

    Raises:
        ValueError: A field has a wrong type or an unknown name.
    """
    kind, fields = type(answer), dict(answer)
    if unknown := [name for name in fields if name not in kind.model_fields and not hasattr(kind, name)]:
        raise ValueError(f"a {kind.__name__} has no {', '.join(unknown)}")
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        flaws = error.errors(include_url=False, include_context=False, include_input=False)
        said = "; ".join(f"{'.'.join(map(str, flaw['loc']))}: {flaw['msg']}" for flaw in flaws)
    raise ValueError(f"it made a wrong {kind.__name__}: {said}")


def hook_context(
    task: TaskRef, identity: Identity | None = None, *, iteration: int = 0, usage: Usage | None = None
) -> HookContext:
    """Return the state of a task as plugins get it."""
    return HookContext(
        task_id=task.task_id,
        context_id=task.context_id,
        owner=task.owner,
        agent_id=task.agent_id,
        iteration=iteration,
        auth=identity or ANYBODY,
        usage=usage or Usage(),
    )


def together(approvals: Sequence[NeedsApproval | None]) -> NeedsApproval | None:
    """Merge approvals into one. The scope is that of the first approval with a scope."""
    present = [each for each in approvals if each]
    if not present:
        return None
    reasons = dict.fromkeys(each.reason for each in present if each.reason)
    return NeedsApproval("\n".join(reasons), strictest(each.approvers for each in present))


async def in_time(
    plugin: Plugin, method: str, hook: Callable[[], Awaitable[Answer]], seconds: float = HOOK_TIMEOUT
) -> Answer:
    """Call a method of a plugin within its time and return the result.

    Raises:
        PluginFailedError: The method raised, or took too long.
    """
    limit = asyncio.timeout(seconds)
    try:
        with translate_base_exceptions():
            async with limit:
                return await hook()
    except Exception as error:  # noqa: BLE001 -- whatever a plugin raises
        is_late = isinstance(error, TimeoutError) and limit.expired()
        problem = f"it did not finish within {seconds:g} s" if is_late else error
    raise PluginFailedError(plugin.name, method, problem)
