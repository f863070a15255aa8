"""The span around a tool call (OpenTelemetry semantic conventions for generative AI)."""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind
from temporalio.exceptions import ApplicationError

from activities.spans import span_without_content
from workflows.contract.calls import RunToolInput, ToolReply
from workflows.contract.messages import ToolMessage


@contextmanager
def tool_span(call: RunToolInput) -> Generator[Span]:
    """Trace one attempt of a call. No arguments, no results: an exception is recorded by its kind."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.call.name,
        "gen_ai.tool.call.id": call.call.id,
        "gen_ai.agent.id": call.task.agent_id,
        "gen_ai.conversation.id": call.task.context_id,
        "everloop.task.id": call.task.task_id,
    }
    with span_without_content(
        f"execute_tool {call.call.name}", SpanKind.INTERNAL, attributes, _error_type
    ) as span:
        yield span


def record_outcome(span: Span, reply: ToolReply) -> None:
    """Put what the call came to on the span."""
    outcome = reply.outcome if isinstance(reply, ToolMessage) else "question"
    span.set_attribute("everloop.tool.outcome", outcome)


def _error_type(error: BaseException) -> str:
    return (isinstance(error, ApplicationError) and error.type) or type(error).__qualname__
