"""What a worker counts and measures."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from everloop.agents.limits import Retries
from everloop.agents.questions import InputRequired
from everloop.agents.tool import tool
from tests.support.recorded_metrics import Recorded
from tests.support.rigs.tool_rig import ToolRig

CALLS, TOOL_TIMES = "everloop.tool.calls", "everloop.tool.duration"
TIMES, FIRST_CHUNKS = "gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk"
TOKENS, COST, STATUSES = "gen_ai.client.token.usage", "everloop.model.cost", "everloop.tasks.status"
HANGS = asyncio.Event()
"""Set when a tool of a test hangs."""


@tool(retries=Retries(attempts=2, delay=timedelta(0)))
async def act(how: str) -> str:
    """Do something."""
    match how:
        case "ask":
            raise InputRequired("hush")
        case "fail":
            raise ValueError("hush")
        case "hang":
            HANGS.set()
            await asyncio.Event().wait()
        case _:
            pass
    return "done"


@pytest.mark.parametrize(
    ("name", "arguments", "outcomes", "runs"),
    [
        ("act", '{"how": "do"}', ["ok"], 1),
        ("act", '{"how": "ask"}', ["question"], 1),
        ("act", '{"how": "fail"}', ["retried", "error"], 2),
        ("act", '{"how": 1}', ["invalid"], 0),
        ("made_up_by_a_model", "{}", ["invalid"], 0),
    ],
)
async def test_each_attempt_at_a_tool_call_counts(
    name: str, arguments: str, outcomes: list[str], runs: int
) -> None:
    """With what it came to; its function is timed where it runs; a name that is no tool's is no label."""
    rig, recorded = ToolRig(act), Recorded()
    await rig.attempts(rig.call(name, arguments))
    shown = name if name == "act" else "unknown"
    assert recorded.counts(CALLS) == {("agent", outcome, shown): 1 for outcome in outcomes}
    assert recorded.counts(TOOL_TIMES) == ({("agent", "act"): runs} if runs else {})


async def test_a_cancelled_tool_call_counts() -> None:
    """As such, and the time that it ran."""
    rig, recorded = ToolRig(act), Recorded()
    environment = ActivityEnvironment()
    call = rig.call("act", '{"how": "hang"}')
    running = asyncio.create_task(environment.run(rig.port.run_tool, call))
    await HANGS.wait()
    environment.cancel()
    await asyncio.wait([running])
    assert recorded.counts(CALLS) == {("agent", "canceled", "act"): 1}
    assert recorded.counts(TOOL_TIMES) == {("agent", "act"): 1}
