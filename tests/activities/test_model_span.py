"""What a trace shows of a model call."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from temporalio.exceptions import ApplicationError

from tests.support.model_bench import ModelBench, model_bench
from tests.support.scripted_openai import Refusal, Reply, ScriptedOpenAI


def span_of(bench: ModelBench, spans: InMemorySpanExporter) -> ReadableSpan:
    """Return the span of the bench's task."""
    [span] = [
        span
        for span in spans.get_finished_spans()
        if span.attributes and span.attributes.get("everloop.task.id") == bench.task.task_id
    ]
    return span


async def test_a_call_is_a_chat_span(spans: InMemorySpanExporter) -> None:
    """Names and attributes follow the GenAI conventions, without content."""
    async with ScriptedOpenAI([Reply(["Hello"], usage=(7, 2))]) as provider, model_bench(provider) as bench:
        await bench.run()

    span = span_of(bench, spans)
    assert (span.name, span.kind) == ("chat test-model", SpanKind.CLIENT)
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "test-model",
        "gen_ai.response.model": "test-model",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.agent.id": "agent",
        "gen_ai.conversation.id": "c",
        "everloop.task.id": bench.task.task_id,
    }


async def test_a_failed_call_is_a_failed_span(spans: InMemorySpanExporter) -> None:
    """The kind of the error is recorded; its text, which may repeat the prompt or the key, is not."""
    script = [Refusal(401, "invalid_api_key", "wrong key sk-secret")]
    async with ScriptedOpenAI(script) as provider, model_bench(provider) as bench:
        with pytest.raises(ApplicationError):
            await bench.run()

    span = span_of(bench, spans)
    assert not span.status.is_ok
    assert (span.attributes or {})["error.type"] == "401"
    assert "sk-secret" not in span.to_json()
