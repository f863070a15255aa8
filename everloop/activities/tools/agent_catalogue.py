"""Looks up agents for the workflow, lists the tools of their plugins, and runs hooks outside of calls."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.hook_runner import (
    Hooks,
    PluginFailedError,
    agent_of,
    find_agent,
    hook_context,
    in_time,
)
from everloop.activities.lease import begin_attempt, heartbeating
from everloop.activities.publish import publish_events, try_publish
from everloop.activities.store_retries import suppress_store_errors
from everloop.activities.tools.approval_policies import find_veto, phase_key
from everloop.activities.tools.tool_results import message, started, tool_is_gone, unknown_tool
from everloop.agents.agent import Agent
from everloop.agents.artifact_tools import reading_tools
from everloop.agents.hooks import HookContext, TaskOutcome, Veto
from everloop.agents.plugins import Plugin
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import Tool, digest_of, listed, listed_spec_of
from everloop.agents.tool_signature import NAME_RULE, is_tool_name
from everloop.stores.log.log_store import TaskViews
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import (
    BUILT_IN_TOOLS,
    CREATE_TASK,
    AfterCompletionInput,
    BeforeRequestInput,
    BeforeRequestResult,
    LoadAgentInput,
    LoadedAgent,
    PreparedTask,
    PrepareTaskInput,
    RunToolInput,
    ToolReply,
)
from everloop.workflows.contract.events import AgentInvoked, TaskEvent, Warned
from everloop.workflows.contract.messages import ToolMessage, ToolsMessage, UserMessage
from everloop.workflows.contract.ports import AgentPort
from everloop.workflows.contract.questions import Question
from everloop.workflows.contract.tasks import TaskState, ToolSpec

# The tools that plugins list for one task: requested once, and then stored.

LISTING_TIMEOUT = 60.0
"""Time limit of one plugin's list in seconds: it may have to start a server."""

LISTING_ATTEMPTS = 5
"""Attempts at the list of a plugin. Attempts that waited for the agent count, too."""


@dataclass(frozen=True)
class TaskTools:
    """The tools of the plugins, in the plugins' order, and the problems with some of them."""

    message: ToolsMessage
    specs: dict[str, ToolSpec]
    warnings: tuple[str, ...]


async def list_task_tools(
    agent: Agent, context: HookContext, *, seconds: float = LISTING_TIMEOUT
) -> TaskTools:
    """Request the lists of all plugins side by side. Of several tools with one name the first one counts.

    `seconds` limit one plugin (default 60).

    Raises:
        ApplicationError: `ToolsUnavailable` (retryable until the fifth attempt): a plugin cannot list its
            tools now. `PluginFailed`: a plugin did not return tools.
    """
    plugins = [plugin for plugin in agent.ordered_plugins if plugin.overrides("list_tools")]
    # None is stopped early: a plugin that is stopped while it connects may leave something behind.
    offers = await asyncio.gather(
        *(_ask(plugin, context, seconds) for plugin in plugins), return_exceptions=True
    )
    found: list[tuple[Plugin, Tool]] = []
    for offer in offers:
        if isinstance(offer, BaseException):
            raise offer
        found += offer
    return _sorted_out(agent, found)


async def _ask(plugin: Plugin, context: HookContext, seconds: float) -> list[tuple[Plugin, Tool]]:
    try:
        offered = await in_time(plugin, "list_tools", partial(plugin.list_tools, context), seconds)
    except PluginFailedError as error:
        is_last = activity.in_activity() and activity.info().attempt >= LISTING_ATTEMPTS
        raise ApplicationError(
            error.message, type=failures.TOOLS_UNAVAILABLE, non_retryable=is_last
        ) from None
    if not isinstance(offered, list | tuple) or not all(isinstance(tool, Tool) for tool in offered):  # pyright: ignore[reportUnnecessaryIsInstance] -- a plugin may return anything
        raise PluginFailedError(plugin.name, "list_tools", "it returned no list of tools")
    return [(plugin, tool) for tool in offered]


def _sorted_out(agent: Agent, found: Sequence[tuple[Plugin, Tool]]) -> TaskTools:
    accepted: dict[str, tuple[Plugin, Tool]] = {}
    warnings: list[str] = []
    for plugin, tool in found:
        if problem := _problem_of(agent, tool, accepted):
            warnings.append(f"the tool {tool.name!r} of the plugin {plugin.name!r} is left out: {problem}")
        else:
            accepted[tool.name] = plugin, tool
    tools = tuple(listed(tool) for _, tool in accepted.values())
    return TaskTools(
        message=ToolsMessage(tools=tools),
        specs={
            name: listed_spec_of(tool, plugin.name, asks=agent.may_ask(tool))
            for name, (plugin, tool) in accepted.items()
        },
        warnings=tuple(warnings),
    )


def _problem_of(agent: Agent, tool: Tool, accepted: dict[str, tuple[Plugin, Tool]]) -> str:
    """Return the reason why a tool cannot be offered, empty if it can."""
    if not is_tool_name(tool.name):
        return NAME_RULE
    if tool.name in BUILT_IN_TOOLS:
        return "every agent has one of that name"
    if tool.name in agent.tools or tool.name == CREATE_TASK:
        return "the agent has a tool of that name"
    if tool.name in accepted:
        return f"the plugin {accepted[tool.name][0].name!r} has listed one of that name before"
    return ""


@dataclass(eq=False)
class AgentCatalogue(AgentPort):
    """The agents of this process."""

    agents: AgentRegistry
    views: TaskViews
    transcripts: Transcripts
    leases: ToolRecords

    @activity.defn
    async def load_agent(self, call: LoadAgentInput) -> LoadedAgent:
        async with heartbeating():
            agent = find_agent(self.agents, call.agent_id)
            name = f"agent {call.task.run_id} {phase_key(call.call, len(call.answers))}"
            lease = await begin_attempt(self.leases, call.task.task_id, name)
            reply = await find_veto(agent_of(self.agents, call.task), call)
            await publish_events(self.views, call.task, _announced(call, reply), lease)
            question = reply if isinstance(reply, Question) else None
            refused = reply if isinstance(reply, ToolMessage) else None
            return LoadedAgent(**agent.spec.model_dump(), question=question, refused=refused)

    @activity.defn
    async def prepare_task(self, call: PrepareTaskInput) -> PreparedTask:
        agent = agent_of(self.agents, call.task)
        spec = agent.spec if call.loads_agent else None
        if not call.lists_tools:
            return PreparedTask(agent=spec)
        async with heartbeating():
            found = await list_task_tools(agent, hook_context(call.task, call.identity))
        await self._pin(call, found)
        return PreparedTask(listed=found.message, tools=found.specs, agent=spec)

    @activity.defn
    async def before_request(self, call: BeforeRequestInput) -> BeforeRequestResult:
        async with heartbeating():
            hooks = Hooks(agent_of(self.agents, call.task), hook_context(call.task, call.identity))
            passed: list[UserMessage] = []
            for message in call.messages:
                answer = await hooks.before_request(message)
                if isinstance(answer, Veto):
                    return BeforeRequestResult(messages=call.messages, refused=answer.reason)
                passed.append(answer)
            return BeforeRequestResult(messages=tuple(passed))

    @activity.defn
    async def after_completion(self, call: AfterCompletionInput) -> None:
        async with heartbeating():
            context = hook_context(call.task, call.identity, iteration=call.iterations, usage=call.usage)
            hooks = Hooks(agent_of(self.agents, call.task), context)
            if call.state is TaskState.FAILED:
                await hooks.on_error(call.reason)
            await hooks.after_completion(
                TaskOutcome(call.state, call.iterations, call.usage, call.answer, call.reason)
            )

    async def _pin(self, call: PrepareTaskInput, found: TaskTools) -> None:
        """Cache the list for the model calls. On failure the list is sent again from history."""
        task = call.task
        with suppress_store_errors("listed tools not cached"):
            lease = await begin_attempt(self.leases, task.task_id, f"tools {task.run_id}")
            await try_publish(self.views, task, [Warned(text=text) for text in found.warnings], lease)
            await self.transcripts.put(task.task_id, task.run_id, call.position, (found.message,), lease)


def _announced(call: LoadAgentInput, reply: ToolReply | None) -> tuple[TaskEvent, ...]:
    """Return the statuses of the call, its start if it starts, and the agent that works from here on."""
    events: list[TaskEvent] = [*call.statuses]
    if call.warning:
        events.append(Warned(text=call.warning))
    if reply is None or (isinstance(reply, ToolMessage) and not call.answers):
        events.extend(started(call.call, activity.info().attempt))
    if reply is None and call.child:
        events.append(AgentInvoked(call_id=call.call.id, agent_id=call.agent_id, task_id=call.child))
    return tuple(events)


# Finds the tool of a call in its agent's definition, or with the plugin that listed it for the task.


async def find_tool(agent: Agent, call: RunToolInput) -> tuple[Tool, str] | ToolMessage:
    """Return the current tool, and a warning if it has changed, or the model's message if it is missing."""
    if built_in := reading_tools(agent.max_result).get(call.call.name):
        return built_in, ""
    if call.plugin:
        return await _ask_plugin(agent, call)
    tool = agent.tools.get(call.call.name)
    return (tool, "") if tool else unknown_tool(call.call, await _available_tools(agent, call))


async def _available_tools(agent: Agent, call: RunToolInput) -> list[str]:
    """Return the names of all current tools, without those of a plugin that cannot list them."""
    context, names = hook_context(call.task, call.identity), list(agent.tools)
    for plugin in agent.ordered_plugins:
        if plugin.overrides("list_tools"):
            with suppress(PluginFailedError, TypeError, AttributeError):  # a plugin may return anything
                tools = await in_time(plugin, "list_tools", partial(plugin.list_tools, context))
                names += [tool.name for tool in tools if tool.name not in names]
    return names


async def _ask_plugin(agent: Agent, call: RunToolInput) -> tuple[Tool, str] | ToolMessage:
    listing = (each for each in agent.plugins if each.name == call.plugin and each.overrides("list_tools"))
    plugin = next(listing, None)
    try:
        tool = await _get_tool(plugin, call) if plugin else None
    except PluginFailedError as error:
        return message(call.call, f"{call.call.name} was not run: {error.message}", "error")
    if tool is None:
        return tool_is_gone(call.call, call.plugin)
    if digest_of(tool) == call.digest:
        return tool, ""
    changed = f"the tool {tool.name} of the plugin {call.plugin!r} has changed while the task runs"
    return tool, f"{changed}; it is called as it is now"


async def _get_tool(plugin: Plugin, call: RunToolInput) -> Tool | None:
    """Return the tool with that name.

    Raises:
        PluginFailedError: The plugin raised, took too long, or returned something else.
    """
    context, name = hook_context(call.task, call.identity), call.call.name
    tool = await in_time(plugin, "get_tool", partial(plugin.get_tool, name, context))
    if tool is None or (isinstance(tool, Tool) and tool.name == name):  # pyright: ignore[reportUnnecessaryIsInstance] -- a plugin may return anything
        return tool
    raise PluginFailedError(plugin.name, "get_tool", f"it returned something else than the tool {name!r}")
