"""What tool calls publish, and the cache that the next model call reads."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import structlog
from opentelemetry.trace import Span, SpanKind
from redis.exceptions import RedisError
from temporalio.exceptions import ApplicationError

from everloop.activities.publish import take_trip
from everloop.activities.telemetry import of_task, record_arguments, record_tool_result
from everloop.agents.agent import Agent
from everloop.runtime.telemetry.instruments import span_without_content
from everloop.stores.steps import Lease, Step
from everloop.stores.transcripts import Transcripts
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.calls import RunToolInput, StoreResultInput, ToolReply
from everloop.workflows.contract.events import Resumed, TaskEvent, ToolCompleted, ToolStarted
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.parts import beginning

_log = structlog.get_logger()


def started(call: ToolCall, attempt: int) -> list[TaskEvent]:
    """Return the events of a call that begins to run, in this attempt; a later one goes on after another."""
    begins = ToolStarted(call_id=call.id, name=call.name, attempt=attempt)
    return [Resumed(after="attempt", attempt=attempt, call_id=call.id), begins] if attempt > 1 else [begins]


async def end_call(
    views: TaskViews,
    transcripts: Transcripts,
    call: RunToolInput | StoreResultInput,
    result: ToolMessage,
    lease: Lease,
) -> None:
    """Cache the result of a call and publish it. The result itself is safe in history, so this may fail.

    Raises:
        OvertakenError: a later attempt does both.
    """
    try:
        await take_trip(views, call.task, *end_steps(views, transcripts, call, result, lease))
    except (RedisError, OSError) as error:
        _log.warning("end of a tool call not told", call_id=result.call_id, error_type=type(error).__name__)


def end_steps(
    views: TaskViews,
    transcripts: Transcripts,
    call: RunToolInput | StoreResultInput,
    result: ToolMessage,
    lease: Lease,
) -> list[Step[Any]]:
    """Return the steps that cache the result of a call and publish it; the last one is never None."""
    place, steps = (call.task.task_id, call.task.run_id), list[Step[Any]]()
    if not (call.has_fallback and result.outcome == "error"):
        steps.append(transcripts.adding(*place, call.position, result, lease))
    start = beginning(result.content)
    completed = ToolCompleted(
        call_id=result.call_id,
        name=result.name,
        outcome=result.outcome,
        result=start,
        size=result.whole or len(result.content.encode(errors="replace")),
        cut=bool(result.whole) or start != result.content,
        raised_at=result.raised_at,
        cached=result.cached,
    )
    return [*steps, views.publishing(*place, [completed], lease)]


# The span around a tool call (OpenTelemetry semantic conventions for generative AI), and its log lines.


@contextmanager
def tool_span(agent: Agent, call: RunToolInput, *, has_content: bool = False) -> Generator[Span]:
    """Trace one attempt of a call; with its arguments only if it `has_content`, and in the log at debug.

    An exception is recorded by its kind.
    """
    about = {"agent": agent.id, "tool": call.call.name, "call_id": call.call.id}
    _log.debug("tool called", **about, arguments=call.call.arguments)
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.call.name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.call.id,
        **of_task(call.task, agent.name),
    }
    with span_without_content(
        f"execute_tool {call.call.name}", SpanKind.INTERNAL, attributes, _error_type
    ) as span:
        if has_content:
            record_arguments(span, call.call)
        yield span


def record_outcome(span: Span, reply: ToolReply, *, has_content: bool = False) -> None:
    """Put what the call came to on the span, and into the log at debug."""
    outcome = reply.outcome if isinstance(reply, ToolMessage) else "question"
    if isinstance(reply, ToolMessage):
        about = {"tool": reply.name, "call_id": reply.call_id, "raised_at": reply.raised_at}
        _log.debug("tool ended", **about, outcome=outcome, result=beginning(reply.content))
    span.set_attribute("everloop.tool.outcome", outcome)
    if isinstance(reply, ToolMessage) and reply.cached:
        span.set_attribute("everloop.tool.cached", value=True)
    if has_content:
        record_tool_result(span, reply)


def _error_type(error: BaseException) -> str:
    return (isinstance(error, ApplicationError) and error.type) or type(error).__qualname__
