"""At most once: what an earlier attempt has done, and what happens while an operator holds an activity."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from agents.tool import tool
from agents.tool_context import ToolContext
from tests.support.tool_bench import ToolBench
from workflows.contract.calls import ToolReply
from workflows.contract.messages import ToolMessage
from workflows.contract.names import call_key


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_finished_call_is_never_run_again() -> None:
    """A second attempt returns the recorded outcome."""
    runs: list[int] = []

    @tool(idempotent=True)
    def effect() -> int:
        """Count."""
        runs.append(1)
        return len(runs)

    bench = ToolBench(effect)
    first = await bench.run(bench.call("effect"))

    assert await bench.run(bench.call("effect")) == first
    assert len(runs) == 1
    assert (await bench.run(bench.call("effect", call_id="other"))).content == "2"


async def test_arguments_that_no_longer_fit_change_no_outcome() -> None:
    """Another version of the tool has run the call before its worker died."""
    bench = ToolBench(double)
    call = bench.call("double", '{"count": 1}')
    done = ToolMessage(call_id="call", name="double", content="2")
    await bench.records.finish(bench.task_id, call_key(call.call), done)

    assert await bench.run(call) == done


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_call_that_was_started_and_lost(*, idempotent: bool) -> None:
    """An idempotent tool runs again with the same key; another's outcome is unknown, for good."""
    keys: list[str] = []

    @tool(idempotent=idempotent)
    def effect(context: ToolContext) -> str:
        """Leave the key."""
        keys.append(context.idempotency_key)
        return "done"

    bench = ToolBench(effect)
    key = call_key(bench.call("effect").call)
    await bench.records.claim(bench.task_id, key)

    result = await bench.run(bench.call("effect"))

    assert result.outcome == ("ok" if idempotent else "unknown")
    assert keys == ([f"{bench.task_id}/{key}"] if idempotent else [])
    assert await bench.run(bench.call("effect")) == result


@pytest.mark.parametrize("why", ["paused", "reset"])
async def test_a_tool_that_must_not_run_twice_ends_although_an_operator_holds_its_activity(why: str) -> None:
    """Stopped, it could only be told as unknown; one that is idempotent stops, and runs again later."""
    gate, begun = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        begun.set()
        await gate.wait()
        return "paid"

    details = ActivityCancellationDetails(paused=why == "paused", reset=why == "reset")
    reply = await _cancelled(ToolBench(pay), begun, details, gate.set)

    assert isinstance(reply, ToolMessage)
    assert reply.content == "paid"


@pytest.mark.parametrize(
    "details",
    [
        ActivityCancellationDetails(cancel_requested=True),
        ActivityCancellationDetails(paused=True, cancel_requested=True),
    ],
    ids=["canceled", "paused and canceled"],
)
async def test_a_tool_that_must_not_run_twice_stops_when_its_task_is_cancelled(
    details: ActivityCancellationDetails,
) -> None:
    """Nobody wants its result any more."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        begun.set()
        try:
            return await asyncio.Future()
        finally:
            stopped.set()

    with pytest.raises(asyncio.CancelledError):
        await _cancelled(ToolBench(pay), begun, details, lambda: None)

    assert stopped.is_set()


async def _cancelled(
    bench: ToolBench, begun: asyncio.Event, details: ActivityCancellationDetails, then: Callable[[], None]
) -> ToolReply:
    """Run the tool `pay`; as soon as it has begun, its activity is cancelled; call `then` at once."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=1)
    running = asyncio.create_task(environment.run(bench.port.run_tool, bench.call("pay")))
    await begun.wait()
    environment.cancel(cancellation_details=details)
    then()
    return await running
