"""One trace from the client through gateway and workflow to the model and the tools."""

from collections import Counter
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.deployment import running_deployment
from tests.support.otlp_receiver import running_otlp_receiver
from tests.support.scripted_openai import Reply, ScriptedOpenAI, tool_call

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
SECRET = "the prompt is nobody's business"


@pytest.mark.parametrize("cached", [1000, 0], ids=["cached", "always_replayed"])
async def test_one_trace_for_a_task(tmp_path: Path, cached: int) -> None:
    """Every step is a span of the client's trace, once, however often the workflow is replayed."""
    script = [Reply([tool_call("repeat", '{"text": "x", "times": 2}')], usage=(30, 7)), Reply(["Done."])]
    async with (
        ScriptedOpenAI(script) as model,
        running_otlp_receiver() as receiver,
        running_deployment(
            tmp_path,
            model.base_url,
            EVERLOOP_MAX_CACHED_WORKFLOWS=str(cached),
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            OTEL_BSP_SCHEDULE_DELAY="50",
            OTEL_INSTRUMENTATION_A2A_SDK_ENABLED="false",
        ) as everloop,
    ):
        await everloop.add_worker()
        gateway = await everloop.add_gateway()
        async with httpx.AsyncClient(timeout=30) as http:
            headers = {"A2A-Version": "1.0", "traceparent": TRACEPARENT}
            answer = await http.post(gateway.url, json=_message(), headers=headers)
        assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        await receiver.wait_for("RunWorkflow:AgentTask")
        logs = everloop.logs()
        for process in everloop.started:
            process.stop()

    ours = [span for span in receiver.spans if span.trace_id.hex() == TRACE_ID]
    names = Counter(span.name for span in ours)
    assert names == EXPECTED
    assert set(receiver.services) == {"everloop-gateway", "everloop-worker"}
    _check_tree(ours)
    _check_model_span(next(span for span in ours if span.name == "chat scripted"))
    assert SECRET not in str(receiver.spans)
    assert SECRET not in str(logs)
    traced = [line for line in logs if line.get("trace_id") == TRACE_ID]
    assert traced


EXPECTED = {
    "a2a SendMessage": 1,
    "StartWorkflow:AgentTask": 1,
    "RunWorkflow:AgentTask": 1,
    "StartActivity:call_model": 2,
    "RunActivity:call_model": 2,
    "chat scripted": 2,
    "StartActivity:run_tool": 1,
    "RunActivity:run_tool": 1,
    "execute_tool repeat": 1,
    "StartActivity:publish": 1,
    "RunActivity:publish": 1,
}


def _check_tree(spans: list[Span]) -> None:
    """Each kind of span hangs below the one that caused it."""
    by_id = {span.span_id: span for span in spans}
    parents = {(span.name, by_id[span.parent_span_id].name) for span in spans if span.parent_span_id in by_id}
    assert {
        ("StartWorkflow:AgentTask", "a2a SendMessage"),
        ("RunWorkflow:AgentTask", "StartWorkflow:AgentTask"),
        ("StartActivity:call_model", "RunWorkflow:AgentTask"),
        ("RunActivity:call_model", "StartActivity:call_model"),
        ("chat scripted", "RunActivity:call_model"),
        ("execute_tool repeat", "RunActivity:run_tool"),
    } <= parents


def _check_model_span(span: Span) -> None:
    """GenAI semantic conventions."""
    attributes = {a.key: a.value for a in span.attributes}
    assert attributes["gen_ai.operation.name"].string_value == "chat"
    assert attributes["gen_ai.request.model"].string_value == "scripted"
    assert attributes["gen_ai.usage.input_tokens"].int_value == 30
    assert attributes["gen_ai.usage.output_tokens"].int_value == 7
    assert attributes["gen_ai.agent.id"].string_value == "acceptance"
    reasons = attributes["gen_ai.response.finish_reasons"].array_value.values
    assert [reason.string_value for reason in reasons] == ["tool_calls"]


def _message() -> dict[str, object]:
    message = {"messageId": "traced", "role": "ROLE_USER", "parts": [{"text": SECRET}]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
