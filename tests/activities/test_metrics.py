"""What a worker counts and measures."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from everloop.agents.limits import Retries
from everloop.agents.questions import InputRequired
from everloop.agents.tool import tool
from tests.support.recorded_metrics import Recorded
from tests.support.rigs.model_rig import model_rig, working
from tests.support.rigs.tool_rig import ToolRig
from tests.support.servers.scripted_openai import Refusal, Reply

CALLS, TOOL_TIMES = "everloop.tool.calls", "everloop.tool.duration"
TIMES, FIRST_CHUNKS = "gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk"
TOKENS, COST, STATUSES = "gen_ai.client.token.usage", "everloop.model.cost", "everloop.tasks.status"
HANGS = asyncio.Event()
"""Set when a tool of a test hangs."""

MODEL = ("agent", "chat", "openai", "priced-model")


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


async def test_a_model_call_is_measured() -> None:
    """Its time, that of its first chunk, its tokens and their cost."""
    recorded = Recorded()
    async with model_rig([Reply(["Hel", "lo."], usage=(30, 7))]) as rig:
        await rig.run(rig.changed(model="priced-model"))
    assert recorded.counts(TIMES) == recorded.counts(FIRST_CHUNKS) == {MODEL: 1}
    assert 0 < recorded.sums(FIRST_CHUNKS)[MODEL] <= recorded.sums(TIMES)[MODEL]
    assert recorded.counts(TOKENS) == {(*MODEL, "input"): 1, (*MODEL, "output"): 1}
    assert recorded.sums(TOKENS) == {(*MODEL, "input"): 30, (*MODEL, "output"): 7}
    assert recorded.counts(COST) == {("agent", "priced-model"): pytest.approx(0.03 + 0.7)}


@pytest.mark.parametrize(
    ("answer", "kind", "first_chunks"),
    [(Refusal(429), "429", 0), (Reply(["Half"], ending="cut"), "APIConnectionError", 1)],
)
async def test_a_model_call_that_fails_is_measured(
    answer: Refusal | Reply, kind: str, first_chunks: int
) -> None:
    """Its time counts under the kind of error; tokens that nobody told of do not count."""
    recorded = Recorded()
    async with model_rig([answer]) as rig:
        await rig.fail(rig.changed(model="priced-model"))
    assert recorded.counts(TIMES) == {(kind, *MODEL): 1}
    assert sum(recorded.counts(FIRST_CHUNKS).values()) == first_chunks
    assert recorded.counts(TOKENS) == recorded.counts(COST) == {}


async def test_a_status_counts_once() -> None:
    """A call that is made again publishes the same status, which is no news."""
    recorded = Recorded()
    async with model_rig([Refusal(500), Reply(["Hello."])]) as rig:
        call = rig.changed(statuses=(working(),))
        await rig.fail(call)
        await rig.run(call, attempt=2, failures=1)
    assert recorded.counts(STATUSES) == {("agent", "working"): 1}
