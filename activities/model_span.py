"""The span around a provider call (OpenTelemetry semantic conventions for generative AI)."""

from collections.abc import Generator
from contextlib import contextmanager

from openai import APIStatusError
from opentelemetry.trace import Span, SpanKind

from activities.spans import span_without_content
from workflows.contract.messages import AssistantMessage
from workflows.contract.tasks import TaskRef


@contextmanager
def model_span(task: TaskRef, model: str) -> Generator[Span]:
    """Trace one provider call. No content: an exception is recorded by its kind, not by its message."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "gen_ai.agent.id": task.agent_id,
        "gen_ai.conversation.id": task.context_id,
        "everloop.task.id": task.task_id,
    }
    with span_without_content(f"chat {model}", SpanKind.CLIENT, attributes, _error_type) as span:
        yield span


def record_reply(span: Span, reply: AssistantMessage, response_id: str) -> None:
    """Put what is known of a reply on the span."""
    span.set_attributes(
        {
            "gen_ai.response.id": response_id,
            "gen_ai.response.model": reply.model,
            "gen_ai.response.finish_reasons": [reply.finish_reason],
            "gen_ai.usage.input_tokens": reply.usage.input_tokens,
            "gen_ai.usage.output_tokens": reply.usage.output_tokens,
        }
    )


def _error_type(error: BaseException) -> str:
    return str(error.status_code) if isinstance(error, APIStatusError) else type(error).__qualname__
