"""The span around a provider call (OpenTelemetry semantic conventions for generative AI)."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from openai import APIStatusError
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from everloop.activities.model.request import ChatRequest
from everloop.activities.spans import of_task, record_completion, record_prompt, span_without_content
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.tasks import TaskRef

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Provider:
    """What spans say of a provider: its address, and prompts and replies if `has_content`."""

    url: str
    has_content: bool = False

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """Where it is, without the secrets that a URL may have."""
        parts = urlsplit(self.url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
        return {"server.address": parts.hostname or "", "server.port": port}


@contextmanager
def model_span(
    task: TaskRef, request: ChatRequest, provider: Provider, agent_name: str = ""
) -> Generator[Span]:
    """Trace one provider call. An exception is recorded by its kind, not by its message."""
    model = request["model"]
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "gen_ai.request.stream": True,
        "gen_ai.output.type": "json" if "response_format" in request else "text",
        **provider.attributes,
        **of_task(task, agent_name),
    }
    with span_without_content(f"chat {model}", SpanKind.CLIENT, attributes, _error_type) as span:
        if provider.has_content:
            record_prompt(span, request["messages"])
        yield span


def record_reply(span: Span, reply: AssistantMessage, response_id: str, *, has_content: bool = False) -> None:
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
    if has_content:
        record_completion(span, reply)


def _error_type(error: BaseException) -> str:
    return str(error.status_code) if isinstance(error, APIStatusError) else type(error).__qualname__
