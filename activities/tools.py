"""Runs the tools of agents, each call at most once unless its tool is idempotent."""

import asyncio
import contextlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

import structlog
from opentelemetry import trace
from redis.exceptions import RedisError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeat import heartbeating
from activities.task_log import logging_task
from activities.tool_arguments import InvalidArgumentsError, parse_arguments
from activities.tool_result import excerpt, render_result
from agents.errors import UnknownAgentError
from agents.registry import AgentRegistry
from agents.tool import Tool
from agents.tool_context import ToolContext
from stores.task_views import TaskViews
from stores.tool_records import Claim, ToolRecords
from stores.transcripts import Transcripts
from workflows.contract import failures
from workflows.contract.calls import RunToolInput
from workflows.contract.events import TaskEvent, ToolCompleted, ToolProgressed, ToolStarted
from workflows.contract.messages import ToolMessage
from workflows.contract.names import call_key
from workflows.contract.ports import ToolPort

_log = structlog.get_logger()
_tracer = trace.get_tracer("everloop.activities")


class ToolTimeoutError(Exception):
    """The tool took longer than its own setting allows."""


class AgentTools(ToolPort):
    """Runs the tools that the agents of this process define.

    Sync tools get threads of their own, at most `threads` at once (default 200): one that never returns keeps
    nothing from running but, in the end, other sync tools.
    """

    def __init__(
        self,
        agents: AgentRegistry,
        views: TaskViews,
        transcripts: Transcripts,
        records: ToolRecords,
        *,
        threads: int = 200,
    ) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tool")
        self._agents = agents
        self._views = views
        self._transcripts = transcripts
        self._records = records

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolMessage:
        with logging_task(call.task):
            return await self._run(call)

    async def _run(self, call: RunToolInput) -> ToolMessage:
        async with heartbeating():
            tools = self._tools_of(call)
            await self._announce(call)
            tool = tools.get(call.call.name)
            result = await self._run_once(tool, call) if tool else _error(call, _unknown_tool(call, tools))
            await self._store(call, result)
            return result

    def _tools_of(self, call: RunToolInput) -> Mapping[str, Tool]:
        try:
            return self._agents.find(call.task.agent_id).tools
        except UnknownAgentError as error:
            raise ApplicationError(str(error), type=failures.AGENT_UNKNOWN) from error

    async def _run_once(self, tool: Tool, call: RunToolInput) -> ToolMessage:
        """Return the recorded outcome, or run the call and record what it came to."""
        with _tracer.start_as_current_span(f"execute_tool {tool.name}") as span:
            span.set_attributes(_span_attributes(call))
            result = await self._recorded(tool, call)
            span.set_attribute("everloop.tool.outcome", result.outcome)
            return result

    async def _recorded(self, tool: Tool, call: RunToolInput) -> ToolMessage:
        task_id, key = call.task.task_id, call_key(call.call)
        claim = await self._records.claim(task_id, key)
        if isinstance(claim, ToolMessage):
            return claim
        if claim is Claim.STARTED_BEFORE and not tool.idempotent:
            outcome = _unknown_outcome(call)
        else:
            outcome = await self._execute(tool, call)
        try:
            return await self._records.finish(task_id, key, outcome)
        except (RedisError, OSError) as error:
            # We know how it ended, and history will: a second attempt would only know that it began.
            _log.warning("tool outcome not recorded", error_type=type(error).__name__)
            return outcome

    async def _execute(self, tool: Tool, call: RunToolInput) -> ToolMessage:
        """Run the tool; whatever it raises is told to the model."""
        try:
            arguments = parse_arguments(tool, call.call.arguments)
            if tool.context_parameter:
                arguments[tool.context_parameter] = self._context(call)
            value = await self._invoke(tool, arguments, call.timeout)
            return _message(call, render_result(value))
        except (InvalidArgumentsError, ToolTimeoutError) as error:
            return _error(call, str(error))
        except asyncio.CancelledError:
            if activity.is_cancelled() or activity.is_worker_shutdown():
                raise
            return _error(call, f"{tool.name} was cancelled by something that it called")
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a tool raises, the model reads it
            _log.warning("tool failed", tool=tool.name, call_id=call.call.id, error_type=type(error).__name__)
            return _error(call, f"{type(error).__name__}: {error}")

    async def _invoke(self, tool: Tool, arguments: dict[str, object], seconds: float) -> object:
        """Call the function; a sync one in a thread, which goes on after a timeout: none can be stopped."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if tool.is_async:
                    return await tool.function(**arguments)
                call = partial(copy_context().run, tool.function, **arguments)
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except TimeoutError:
            if limit.expired():
                raise ToolTimeoutError(f"{tool.name} did not finish within {seconds:g} s") from None
            raise

    def _context(self, call: RunToolInput) -> ToolContext:
        task = call.task

        async def progress(message: str) -> None:
            await self._tell(call, ToolProgressed(call_id=call.call.id, name=call.call.name, message=message))

        return ToolContext(
            task_id=task.task_id,
            context_id=task.context_id,
            owner=task.owner,
            call_id=call.call.id,
            attempt=activity.info().attempt,
            idempotency_key=f"{task.task_id}/{call_key(call.call)}",
            progress=progress,
        )

    async def _announce(self, call: RunToolInput) -> None:
        started = ToolStarted(call_id=call.call.id, name=call.call.name, attempt=activity.info().attempt)
        events = (call.status, started) if call.status else (started,)
        await self._views.publish(call.task.task_id, call.task.run_id, events)

    async def _store(self, call: RunToolInput, result: ToolMessage) -> None:
        """Cache the result and tell subscribers. The result itself is safe in history, so both may fail."""
        try:
            await self._transcripts.put(call.task.task_id, call.task.run_id, call.position, (result,))
        except (RedisError, OSError) as error:
            _log.warning("tool result not cached", call_id=call.call.id, error_type=type(error).__name__)
        await self._tell(
            call,
            ToolCompleted(
                call_id=result.call_id,
                name=result.name,
                outcome=result.outcome,
                excerpt=excerpt(result.content),
            ),
        )

    async def _tell(self, call: RunToolInput, event: TaskEvent) -> None:
        """Publish an event that nobody depends on."""
        with contextlib.suppress(RedisError, OSError):
            await self._views.publish(call.task.task_id, call.task.run_id, (event,))


def _message(call: RunToolInput, content: str) -> ToolMessage:
    return ToolMessage(call_id=call.call.id, name=call.call.name, content=content)


def _error(call: RunToolInput, content: str) -> ToolMessage:
    content = render_result(content)
    return ToolMessage(call_id=call.call.id, name=call.call.name, content=content, outcome="error")


def _unknown_outcome(call: RunToolInput) -> ToolMessage:
    content = (
        f"{call.call.name} was started, but the process that ran it was lost before it reported. "
        "It may or may not have taken effect, and it was not run again. Check before you repeat it."
    )
    return ToolMessage(call_id=call.call.id, name=call.call.name, content=content, outcome="unknown")


def _unknown_tool(call: RunToolInput, tools: Mapping[str, Tool]) -> str:
    known = ", ".join(tools) or "none"
    return f"there is no tool {call.call.name!r}; available tools: {known}"


def _span_attributes(call: RunToolInput) -> dict[str, str]:
    """GenAI semantic conventions for tool spans; no arguments, no results."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.call.name,
        "gen_ai.tool.call.id": call.call.id,
        "gen_ai.agent.id": call.task.agent_id,
        "gen_ai.conversation.id": call.task.context_id,
        "everloop.task.id": call.task.task_id,
    }
