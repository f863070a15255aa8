"""Results of tool calls: their text for the model, their events, and their traces."""

import hashlib
import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import structlog
from opentelemetry.trace import Span, SpanKind
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from everloop.activities.publish import run_steps
from everloop.activities.store_retries import MAX_OUTAGE, retry_for, suppress_store_errors
from everloop.activities.telemetry import of_task, record_arguments, record_tool_result
from everloop.agents.agent import Agent
from everloop.agents.tool import Tool, digest_of
from everloop.runtime.telemetry.instruments import span_without_content
from everloop.runtime.telemetry.logs import exception_fields
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.log.log_store import TaskViews
from everloop.stores.scripts import Lease, Step
from everloop.stores.tool_records import ToolResults
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.calls import RunToolInput, StoreResultInput, ToolReply
from everloop.workflows.contract.events import Resumed, TaskEvent, ToolCompleted, ToolStarted
from everloop.workflows.contract.messages import ToolCall, ToolMessage, ToolOutcome
from everloop.workflows.contract.names import context_key, quoted, result_artifact
from everloop.workflows.contract.parts import beginning
from everloop.workflows.contract.questions import Answer
from everloop.workflows.contract.tasks import TaskRef

_log = structlog.get_logger()


async def bounded(  # noqa: PLR0913 -- the result, its limit, and the store of the rest
    result: ToolMessage,
    most: int,
    artifacts: Artifacts,
    task: TaskRef,
    key: str,
    *,
    attempt: str = "",
    max_outage: float = MAX_OUTAGE,
) -> ToolMessage:
    """Return a result with at most `most` bytes for the model; the full text of a longer one is stored.

    It is stored for the task, and replaces that of an earlier attempt. `attempt` is as for `TaskArtifacts`. A
    failure to store it within 20 s is not an error: the tool has run.
    """
    encoded = result.content.encode(errors="replace")
    if len(encoded) <= most:
        return result
    part = NewPart("file", encoded, "text/plain; charset=utf-8", f"{result.name}-{result.call_id}.txt")
    change = Create(task.task_id, (part,), complete=True, override=True)
    operation_id = f"{attempt}{hashlib.sha256(encoded).hexdigest()[:16]}"
    context, artifact_id = context_key(task.owner, task.context_id), result_artifact(task.task_id, key)
    shown, stored_as = encoded[:most].decode(errors="ignore"), key
    rest = f'read on with read_result("{key}", start={len(shown)})'
    try:
        await retry_for(
            lambda: artifacts.apply(context, artifact_id, change, operation_id=operation_id), max_outage
        )
    except Exception as error:  # noqa: BLE001 -- an error here would hide the outcome of the call
        _log.warning("result not kept", size=len(encoded), **exception_fields(error))
        stored_as, rest = "", "the rest could not be kept; if you need it, ask for less at once"
    note = f"[{len(shown):,} of {len(encoded.decode()):,} characters; {rest}]"
    return result.model_copy(update={"content": f"{shown}\n{note}", "whole": len(encoded), "kept": stored_as})


# Cached results: a recent result of a tool for the same arguments.

MOST_CACHED = 262_144
"""Limit in characters of a cached result; for a longer one the tool runs again."""

_SHORTEST_LIFE = timedelta(milliseconds=1)


class CachedResult:
    """The cached result of one call, if its tool enables caching; the tool runs if the store is unavailable.

    Answers of people are not part of the arguments, so a call with answers is run. The result of a tool with
    a `ToolContext` may depend on the caller, and is reused only for the same one, unless it is for everybody.
    """

    def __init__(self, results: ToolResults | None, tool: Tool, call: RunToolInput, arguments: str) -> None:
        self._results = None if call.answers else results
        self._life = tool.cache
        self._began = monotonic()
        self._digest = _digest_of(tool, call, arguments) if self._results and self._life else ""

    async def find(self) -> str | None:
        """Return the recent result, or None if the tool has to run."""
        if not (self._results and self._life):
            return None
        with suppress_store_errors("cached result not read"):
            return await self._results.get(self._digest)
        return None

    async def note(self, text: str) -> None:
        """Cache the result. Its age counts from the start of the call, during which the process may sleep."""
        if not (self._results and self._life) or len(text) > MOST_CACHED:
            return
        left = self._life - timedelta(seconds=monotonic() - self._began)
        if left < _SHORTEST_LIFE:
            return
        with suppress_store_errors("result not cached"):
            await self._results.put(self._digest, text, left)


def _digest_of(tool: Tool, call: RunToolInput, arguments: str) -> str:
    """Return the digest of the caller, the tool and the arguments."""
    task, caller = call.task, list[JsonValue]()
    if tool.context_parameter and call.identity:
        caller = [call.identity.model_dump(mode="json")]
    callers: dict[str, list[JsonValue]] = {
        "context": [task.owner, task.context_id, *caller],
        "owner": [task.owner, *caller],
        "everybody": [],
    }
    agent = [task.agent_id, task.agent_version]
    about = [agent, digest_of(tool), callers[tool.cache_for], json.loads(arguments.strip() or "{}")]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    # The key begins with the owner or context, so that it is deleted with them.
    prefixes = {
        "context": f"{context_key(task.owner, task.context_id)}:",
        "owner": f"{quoted(task.owner)}::",
        "everybody": "",
    }
    return f"{prefixes[tool.cache_for]}{digest}"


# Messages for the model in place of a result.

_WHO = {
    "user": "by the user",
    "approver": "by an approver",
    "operator": "by the operator",
    "timeout": "because nobody answered in time",
}


def message(call: ToolCall, content: str, outcome: ToolOutcome = "ok") -> ToolMessage:
    """Return the result of a call; invalid characters become question marks."""
    return call.result(content.encode(errors="replace").decode(), outcome)


def unknown_tool(call: ToolCall, names: Iterable[str]) -> ToolMessage:
    """Return the message for a tool that the model invented, with the available ones."""
    available = ", ".join(names) or "none"
    return message(call, f"there is no tool {call.name!r}; available tools: {available}", "invalid")


def tool_is_gone(call: ToolCall, plugin: str) -> ToolMessage:
    """Return the message for a tool that was listed when the task began, and is missing now."""
    gone = f"the tool {call.name!r} is no longer there: the plugin {plugin!r} does not list it any more"
    return message(call, f"{gone}; go on without it", "invalid")


def withheld(problem: str) -> str:
    """Return the message for a result that is withheld because a plugin failed."""
    return f"the tool ran, but {problem}; what it came to is withheld, and it was not run again"


def rejected(call: ToolCall, answer: Answer) -> ToolMessage:
    """Return the message for a call that people rejected."""
    return message(call, f"rejected {_decided(answer)}", "rejected")


def unknown_outcome(call: ToolCall) -> ToolMessage:
    """Return the message for a call that may have taken effect."""
    content = f"{_lost(call)} It may or may not have taken effect, and it was not run again. "
    return message(call, f"{content}Check before you repeat it.", "unknown")


def not_repeated(call: ToolCall, answer: Answer) -> ToolMessage:
    """Return the message for a call that may have taken effect, and whose repetition people rejected."""
    content = f"{_lost(call)} It may or may not have taken effect. Running it again was rejected "
    return message(call, content + _decided(answer), "unknown")


def _lost(call: ToolCall) -> str:
    return f"{call.name} was started, and the process that ran it stopped before it reported how it ended."


def _decided(answer: Answer) -> str:
    if answer.by == "timeout" or not answer.note:
        return _WHO[answer.by]
    return f"{_WHO[answer.by]}: {answer.note}"


# The events of a result, and the cache that the next model call reads.


def started(call: ToolCall, attempt: int) -> list[TaskEvent]:
    """Return the events of a call that starts in this attempt, or continues in a later one."""
    begins = ToolStarted(call_id=call.id, name=call.name, attempt=attempt)
    return [Resumed(after="attempt", attempt=attempt, call_id=call.id), begins] if attempt > 1 else [begins]


async def end_call(
    views: TaskViews,
    transcripts: Transcripts,
    call: RunToolInput | StoreResultInput,
    result: ToolMessage,
    lease: Lease,
) -> None:
    """Cache the result of a call and publish it. A failure is harmless: history has the result.

    Raises:
        OvertakenError: A later attempt does both.
    """
    with suppress_store_errors("end of a tool call not told", call_id=result.call_id):
        await run_steps(views, call.task, *end_steps(views, transcripts, call, result, lease))


def end_steps(  # noqa: PLR0913, PLR0917 -- the ended call, and its subscribers
    views: TaskViews,
    transcripts: Transcripts,
    call: RunToolInput | StoreResultInput,
    result: ToolMessage,
    lease: Lease,
    claims: str = "",
) -> list[Step[Any]]:
    """Return the steps that cache the result of a call and publish it.

    `claims`: they apply only while the attempt holds the call with one of these claims; else the last step
    returns None.
    """
    place, steps = (call.task.task_id, call.task.run_id), list[Step[Any]]()
    if not (call.has_fallback and result.outcome == "error"):
        steps.append(transcripts.adding(*place, call.position, result, lease, claims))
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
    return [*steps, views.publishing(*place, [completed], lease, claims=claims)]


# The span of a tool call (OpenTelemetry semantic conventions for generative AI), and its log lines.


@contextmanager
def tool_span(agent: Agent, call: RunToolInput, *, has_content: bool = False) -> Generator[Span]:
    """Trace one attempt at a call. Its arguments are included only if `has_content`, and in the log at debug.

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
    """Record the result of the call on the span, and in the log at debug."""
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
