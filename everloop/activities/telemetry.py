"""Metrics and traces of a worker. `everloop.runtime.telemetry.instruments` explains them."""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Annotated, Any, Literal, cast, get_args

import structlog
from opentelemetry import trace
from opentelemetry.trace import Span
from pydantic import BeforeValidator, Field, JsonValue
from structlog.contextvars import bind_contextvars
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everloop.models.interface import ModelError
from everloop.runtime.environment import Settings
from everloop.runtime.telemetry.instruments import begin, begin_statuses, counter, histogram
from everloop.runtime.telemetry.logs import bind_task
from everloop.stores.providers import Why
from everloop.stores.scripts import OvertakenError
from everloop.workflows.contract.calls import ToolReply, name_task
from everloop.workflows.contract.housekeeping_payloads import Kind
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage, Usage
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.tasks import TaskRef

_log = structlog.get_logger()

DeliveryOutcome = Literal["delivered", "refused", "no_answer", "not_taken", "gone", "lost", "left_out"]
"""The outcome of an attempt to deliver a push notification.

"refused": the address is not allowed. "not_taken": the webhook answered with another status than 2xx. "gone":
it answered 410, and its config was removed. "lost": the store lost the config. "left_out": it was given up.
"""

UNKNOWN_TOOL = "unknown"
"""The metrics' name of tools that the agent does not have: models may invent any number of names."""

MODEL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Bounds of buckets (OpenTelemetry semantic conventions, "Generative AI metrics")."""

LONG_MODEL_SECONDS = (*MODEL_SECONDS, 163.84, 327.68, 655.36, 1310.72)
"""The same bounds and larger ones: a reply may take 25 minutes."""

TOKENS = tuple(4**power for power in range(14))
"""Bounds of buckets, from the same conventions: 1 to 67,108,864."""

TOOL_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

_operations = histogram(
    "gen_ai.client.operation.duration",
    "s",
    "Time of a model call, to the last chunk of its reply or its failure.",
    bounds=LONG_MODEL_SECONDS,
)
_first_chunks = histogram(
    "gen_ai.client.operation.time_to_first_chunk",
    "s",
    "Time from a model call to the first chunk of its reply.",
    bounds=MODEL_SECONDS,
)
_tokens = histogram(
    "gen_ai.client.token.usage", "{token}", "Tokens of a model call that was answered whole.", bounds=TOKENS
)
_cost = counter(
    "everloop.model.cost", "{USD}", "What model calls cost in US dollars, by the price list of the worker."
)
_held_back = counter(
    "everloop.model.gate", "{call}", "Model calls that were held back before they were sent."
)
_tool_calls = counter("everloop.tool.calls", "{call}", "What attempts at tool calls came to.")
_slow_tools = counter("everloop.tool.slow", "{call}", "Calls of quick tools that took a second or more.")
_tool_durations = histogram(
    "everloop.tool.duration", "s", "Time that the function of a tool ran.", bounds=TOOL_SECONDS
)
_deliveries = counter(
    "everloop.push.deliveries", "{notification}", "Tries to deliver a push notification, by outcome."
)
_removed = counter("everloop.housekeeping.removed", "{object}", "What housekeeping removed, by kind.")


def begin_counters(agent_ids: Collection[str]) -> None:
    """Start counters at 0, so that they exist before their first event."""
    begin_statuses(agent_ids)
    begin(_deliveries, outcome=get_args(DeliveryOutcome))
    begin(_removed, kind=[kind.value for kind in Kind])


def record_delivery(outcome: DeliveryOutcome) -> None:
    """Count an attempt to deliver a push notification."""
    _deliveries.add(1, {"outcome": outcome})


def record_removed(kind: str, count: int) -> None:
    """Count objects that housekeeping removed; `kind` is one of `Kind`."""
    _removed.add(count, {"kind": str(kind)})


def record_usage(agent_id: str, model: str, usage: Usage) -> None:
    """Record the tokens and the cost of a model call."""
    attributes = _model_attributes(agent_id, model)
    _tokens.record(usage.input_tokens, {**attributes, "gen_ai.token.type": "input"})
    _tokens.record(usage.output_tokens, {**attributes, "gen_ai.token.type": "output"})
    if usage.cost is not None:
        _cost.add(usage.cost, {"agent": agent_id, "model": model})


def record_held_back(provider: str, why: Why) -> None:
    """Count a model call that the gate of its provider held back."""
    _held_back.add(1, {"provider": provider, "why": why})


@contextmanager
def timed_model_call(agent_id: str, model: str) -> Generator[Callable[[], None]]:
    """Time a model call that lasts as long as the block. Call the yielded function at the first chunk."""
    attributes, start = _model_attributes(agent_id, model), time.perf_counter()
    failed: dict[str, str] = {}
    try:
        yield lambda: _first_chunks.record(time.perf_counter() - start, attributes)
    except BaseException as error:
        failed = {"error.type": error_type(error)}
        raise
    finally:
        _operations.record(time.perf_counter() - start, {**attributes, **failed})


def record_tool_reply(agent_id: str, tool: str, reply: ToolReply) -> None:
    """Count an attempt at a tool call by its outcome."""
    _record_tool_call(agent_id, tool, reply.outcome if isinstance(reply, ToolMessage) else "question")


@contextmanager
def counted_if_failed(agent_id: str, tool: str) -> Generator[None]:
    """Count an attempt that ends without a reply: it was cancelled, or Temporal retries it."""
    try:
        yield
    except asyncio.CancelledError:
        _record_tool_call(agent_id, tool, "canceled")
        raise
    except Exception:
        _record_tool_call(agent_id, tool, "retried")
        raise


def record_slow_tool(agent_id: str, tool: str) -> None:
    """Count a call of a quick tool that was slow."""
    _slow_tools.add(1, {"agent": agent_id, "tool": tool})


@contextmanager
def timed_tool(agent_id: str, tool: str) -> Generator[None]:
    """Time the function of a tool, however it ends."""
    start = time.perf_counter()
    try:
        yield
    finally:
        _tool_durations.record(time.perf_counter() - start, {"agent": agent_id, "tool": tool})


def _record_tool_call(agent_id: str, tool: str, outcome: str) -> None:
    _tool_calls.add(1, {"agent": agent_id, "tool": tool, "outcome": outcome})


def _model_attributes(agent_id: str, model: str) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": model.partition("/")[0],
        "gen_ai.request.model": model,
        "gen_ai.agent.id": agent_id,
    }


def error_type(error: BaseException) -> str:
    """Return the metrics' name of a failed model call: the HTTP status or the kind of the error."""
    codes = error.codes if isinstance(error, ModelError) else ()
    return codes[0] if codes else type(error).__qualname__


# The context of an activity's log lines.


class ActivityTasks(Interceptor):
    """Completes the `TaskRef` of an activity, and names the task on all log lines, including the SDK's.

    It logs that an attempt was overtaken.
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 -- the SDK's
        return _ActivityOfTask(next)


class _ActivityOfTask(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, ANN401 -- the SDK's
        call = input.args[0] if input.args else None
        task = getattr(call, "task", None)
        if isinstance(call, Wire) and isinstance(task, TaskRef):
            info = activity.info()
            run = info.workflow_id or "", info.workflow_run_id or ""
            input.args = [name_task(call, *run), *input.args[1:]]
            bind_task(task.named(*run))  # never unbound: each activity runs in an asyncio task of its own
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            bind_contextvars(trace_id=trace.format_trace_id(context.trace_id))
        try:
            return await super().execute_activity(input)
        except OvertakenError:
            _log.warning("another attempt has taken this call over; this one stops")
            raise


# Attributes of spans of activities: the task and, if enabled, the content.


def of_task(task: TaskRef, agent_name: str = "") -> dict[str, str]:
    """Return the attributes that name the task, and the agent, of a span."""
    attributes = task.span_attributes
    if agent_name:
        attributes["gen_ai.agent.name"] = agent_name
    if task.agent_version:
        attributes["gen_ai.agent.version"] = task.agent_version
    return attributes


# Prompts and replies on spans, if enabled (OpenTelemetry GenAI conventions, opt-in).
#
# They contain no secrets that people supplied: those reach tools alone, and are masked in results of tools.

_MODES = {"span_only": True, "span_and_event": True, "event_only": False, "no_content": False}
"""Values of this variable in other libraries. Everloop has spans, but no events, with content."""

_FINISH_REASONS = {"tool_calls": "tool_call"}

_Message = Mapping[str, object]


def _mode(given: object) -> object:
    return _MODES.get(given.lower(), given) if isinstance(given, str) else given


class ContentSettings(Settings):
    """The content of spans."""

    is_captured: Annotated[bool, BeforeValidator(_mode)] = Field(
        default=False, validation_alias="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    )
    """`true`: prompts, replies, arguments and results of tools are on spans. See
    docs/operation/traces-and-logs.md#prompts-and-replies."""


def record_prompt(span: Span, messages: Sequence[Mapping[str, object]]) -> None:
    """Add the input of the model to its span. Files are only mentioned."""
    if not span.is_recording():
        return
    system = list(takewhile(lambda message: message["role"] == "system", messages))
    instructions = [part for message in system for part in _text_parts(message.get("content"))]
    if instructions:
        span.set_attribute("gen_ai.system_instructions", _json(instructions))
    span.set_attribute("gen_ai.input.messages", _json([_message(one) for one in messages[len(system) :]]))


def record_completion(span: Span, reply: AssistantMessage) -> None:
    """Add the model's reply to its span."""
    parts: list[JsonValue] = []
    if reply.reasoning:
        parts.append({"type": "reasoning", "content": reply.reasoning})
    if reply.text:
        parts.append(_text(reply.text))
    parts += [_call(call.id, call.name, call.arguments) for call in reply.tool_calls]
    reason = _FINISH_REASONS.get(reply.finish_reason, reply.finish_reason)
    message = {"role": "assistant", "parts": parts, "finish_reason": reason}
    span.set_attribute("gen_ai.output.messages", _json([message]))


def record_arguments(span: Span, call: ToolCall) -> None:
    """Add the model's arguments to the span of a tool."""
    span.set_attribute("gen_ai.tool.call.arguments", _json(_parsed(call.arguments)))


def record_tool_result(span: Span, reply: ToolReply) -> None:
    """Add the result that the model reads to the span of a tool. A question to people is not a result."""
    if isinstance(reply, ToolMessage):
        span.set_attribute("gen_ai.tool.call.result", _json(reply.content))


def _message(message: _Message) -> dict[str, JsonValue]:
    role = str(message["role"])
    if role == "tool":
        id_, content = str(message.get("tool_call_id")), cast("JsonValue", message.get("content"))
        return {"role": role, "parts": [{"type": "tool_call_response", "id": id_, "response": content}]}
    return {"role": role, "parts": [*_text_parts(message.get("content")), *_calls(message)]}


def _text_parts(content: object) -> list[JsonValue]:
    if isinstance(content, str):
        return [_text(content)] if content else []
    parts = cast("Sequence[_Message]", content or ())
    return [
        _text(str(part["text"])) if part["type"] == "text" else {"type": str(part["type"])} for part in parts
    ]


def _calls(message: _Message) -> list[JsonValue]:
    calls = cast("Sequence[_Message]", message.get("tool_calls") or ())
    functions = [(str(call["id"]), cast("_Message", call["function"])) for call in calls]
    return [_call(id_, str(function["name"]), str(function["arguments"])) for id_, function in functions]


def _call(id_: str, name: str, arguments: str) -> dict[str, JsonValue]:
    return {"type": "tool_call", "id": id_, "name": name, "arguments": _parsed(arguments)}


def _text(content: str) -> dict[str, JsonValue]:
    return {"type": "text", "content": content}


def _parsed(arguments: str) -> JsonValue:
    """Parse arguments as JSON, or return them as they are."""
    try:
        return cast("JsonValue", json.loads(arguments or "{}"))
    except (ValueError, RecursionError):
        return arguments


def _json(value: JsonValue | Sequence[JsonValue] | Sequence[Mapping[str, JsonValue]]) -> str:
    return json.dumps(value, ensure_ascii=False)
