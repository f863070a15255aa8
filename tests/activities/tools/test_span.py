"""What a trace shows of a tool call."""

import json
from datetime import timedelta

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from everloop.agents.limits import Retries
from everloop.agents.questions import InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract import failures
from tests.support.rigs.tool_rig import ToolRig


@tool(retries=Retries(attempts=2, delay=timedelta(0)))
def act(how: str) -> str:
    """Do something."""
    if how == "ask":
        raise InputRequired("hush")
    if how == "fail":
        raise ValueError("hush")
    return "hush"


@pytest.mark.parametrize(
    ("how", "outcomes", "errors"),
    [
        ("do", ["ok"], [None]),
        ("ask", ["question"], [None]),
        ("fail", [None, "error"], [failures.TOOL_FAILED, None]),
        (1, ["invalid"], [None]),
    ],
)
async def test_each_attempt_is_a_span(
    spans: InMemorySpanExporter, how: str, outcomes: list[str | None], errors: list[str | None]
) -> None:
    """With what it came to, and without arguments and results."""
    rig = ToolRig(act)

    await rig.attempts(rig.call("act", f'{{"how": {how!r}}}'.replace("'", '"')))

    spans_of_act = [span for span in spans.get_finished_spans() if span.name == "execute_tool act"]
    found = [(span, dict(span.attributes or {})) for span in spans_of_act]
    mine = [attributes for _, attributes in found if attributes["everloop.task.id"] == rig.task_id]
    assert not any("hush" in span.to_json() for span, _ in found)
    assert [attributes.pop("error.type", None) for attributes in mine] == errors
    assert [attributes.pop("everloop.tool.outcome", None) for attributes in mine] == outcomes
    assert mine[0] == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "act",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call",
        "gen_ai.agent.id": "agent",
        "gen_ai.agent.name": "Agent",
        "gen_ai.conversation.id": "c",
        "everloop.task.id": rig.task_id,
    }


@tool(idempotent=True)
async def open_vault(context: ToolContext) -> str:
    """Ask for a secret, and repeat it."""
    return f"opened with {await context.secret('token')}"


async def test_arguments_and_result_are_on_the_span_where_that_is_wanted(
    spans: InMemorySpanExporter,
) -> None:
    """A secret that somebody supplied is blacked out there as everywhere."""
    rig = ToolRig(act, open_vault, captures_content=True)
    await rig.secrets.put(rig.task_id, "message", "hunter2-hunter2")
    await rig.secrets.accept(rig.task_id, "message", "token")
    await rig.run(rig.call("act", '{"how": "do"}'))
    await rig.run(rig.call("open_vault", call_id="other"))
    found = [dict(span.attributes or {}) for span in spans.get_finished_spans()]
    acted, opened = (one for one in found if one.get("everloop.task.id") == rig.task_id)
    assert json.loads(str(acted["gen_ai.tool.call.arguments"])) == {"how": "do"}
    assert json.loads(str(acted["gen_ai.tool.call.result"])) == "hush"
    assert json.loads(str(opened["gen_ai.tool.call.result"])) == "opened with [secret]"
