"""The span around a tool call (OpenTelemetry semantic conventions for generative AI)."""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind
from temporalio.exceptions import ApplicationError

from everloop.activities.span_content import record_arguments, record_tool_result
from everloop.activities.spans import of_task, span_without_content
from everloop.agents.agent import Agent
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.messages import ToolMessage


@contextmanager
def tool_span(agent: Agent, call: RunToolInput, *, has_content: bool = False) -> Generator[Span]:
    """Trace one attempt of a call; with its arguments only if it `has_content`.

    An exception is recorded by its kind.
    """
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
    """Put what the call came to on the span."""
    outcome = reply.outcome if isinstance(reply, ToolMessage) else "question"
    span.set_attribute("everloop.tool.outcome", outcome)
    if has_content:
        record_tool_result(span, reply)


def _error_type(error: BaseException) -> str:
    return (isinstance(error, ApplicationError) and error.type) or type(error).__qualname__
