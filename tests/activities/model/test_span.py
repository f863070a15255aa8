"""The span of a model call."""

import json
from urllib.parse import urlsplit

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from pydantic import JsonValue

from everloop.activities.telemetry import ContentSettings
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage
from tests.support.rigs.model_rig import QUESTION, ModelRig, model_rig
from tests.support.servers.scripted_openai import Refusal, Reply, tool_call


def span_of(rig: ModelRig, spans: InMemorySpanExporter) -> ReadableSpan:
    """Return the span of the rig's task."""
    mine = ("everloop.task.id", rig.task.task_id)
    [span] = [span for span in spans.get_finished_spans() if mine in (span.attributes or {}).items()]
    return span


async def test_a_call_is_a_chat_span(spans: InMemorySpanExporter) -> None:
    """A call is a chat span with names and attributes of the GenAI conventions, and without content."""
    async with model_rig([Reply(["Hello"], usage=(7, 2))]) as rig:
        await rig.run()

    span = span_of(rig, spans)
    assert (span.name, span.kind) == ("chat openai/test-model", SpanKind.CLIENT)
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "openai/test-model",
        "gen_ai.request.stream": True,
        "gen_ai.output.type": "text",
        "server.address": "127.0.0.1",
        "server.port": urlsplit(rig.provider.base_url).port,
        "gen_ai.response.model": "test-model",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.agent.id": "agent",
        "gen_ai.agent.name": "Agent",
        "gen_ai.conversation.id": "c",
        "everloop.task.id": rig.task.task_id,
    }


async def test_prompt_and_reply_are_on_the_span_where_that_is_wanted(spans: InMemorySpanExporter) -> None:
    """Captured prompt and reply are on the span as JSON of the conventions, with separate instructions."""
    first = Reply(["I look.", tool_call("search", '{"query": "tides"}'), tool_call("search", "{", index=1)])
    found = AssistantMessage(tool_calls=(ToolCall(id="c", name="search", arguments='{"query": "x"}'),))
    async with model_rig([first]) as rig:
        rig.port = rig.port_to("test-model", captures_content=True)
        await rig.store(QUESTION, found, ToolMessage(call_id="c", name="search", content="ebb"))
        await rig.run(rig.changed(length=3, new=()))

    attributes = span_of(rig, spans).attributes or {}
    assert json.loads(str(attributes["gen_ai.system_instructions"])) == [text("Be brief.")]
    assert json.loads(str(attributes["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [text("Hi")]},
        {"role": "assistant", "parts": [asked("c", {"query": "x"})]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "ebb"}]},
    ]
    (reply,) = json.loads(str(attributes["gen_ai.output.messages"]))
    assert reply["finish_reason"] == "tool_call"
    assert reply["parts"][:2] == [text("I look."), asked("r00003c01", {"query": "tides"})]
    assert reply["parts"][2]["arguments"] == "{"
    assert "sk-secret" not in str(attributes)


def text(content: str) -> dict[str, JsonValue]:
    return {"type": "text", "content": content}


def asked(id_: str, arguments: JsonValue) -> dict[str, JsonValue]:
    return {"type": "tool_call", "id": id_, "name": "search", "arguments": arguments}


@pytest.mark.parametrize(
    ("given", "captured"),
    [("true", True), ("false", False), ("", False), ("SPAN_ONLY", True), ("no_content", False)],
)
def test_whether_content_is_wanted(monkeypatch: pytest.MonkeyPatch, given: str, *, captured: bool) -> None:
    """OpenTelemetry's variable enables content, also with the values of other libraries."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", given)
    assert ContentSettings().is_captured is captured


async def test_a_failed_call_is_a_failed_span(spans: InMemorySpanExporter) -> None:
    """A failed call fails its span with the kind of error, not its text, which may quote prompt or key."""
    async with model_rig([Refusal(401, "invalid_api_key", "wrong key sk-secret")]) as rig:
        await rig.fail()
    span = span_of(rig, spans)
    assert not span.status.is_ok
    assert (span.attributes or {})["error.type"] == "401"
    assert "sk-secret" not in span.to_json()
