"""Tools that are tried again when they fail."""

import asyncio
from datetime import timedelta

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.agents.limits import Retries
from everloop.agents.questions import InputRequired
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.leases import Lease
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import RetryScheduled, Warned
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.rigs.tool_rig import ToolRig

RETRIES = Retries(attempts=3, delay=timedelta(seconds=10), factor=3, longest=timedelta(seconds=20))


def _unsteady(attempts: list[int], good: int, *, idempotent: bool = False) -> Tool:
    @tool(retries=RETRIES, idempotent=idempotent)
    async def fetch(context: ToolContext) -> str:
        """Fail until a certain attempt."""
        attempts.append(context.attempt)
        if context.attempt < good:
            raise OSError(f"no {'route ' * 100}")
        return "fetched"

    return fetch


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_tool_that_fails_is_tried_again(*, idempotent: bool) -> None:
    """Later and later; the failure says no more than the model would see of it at a glance."""
    attempts: list[int] = []
    rig = ToolRig(_unsteady(attempts, 3, idempotent=idempotent))

    failed, end = await rig.attempts(rig.call("fetch"))

    first, second = (error.next_retry_delay for error in failed)
    assert end.role == "tool"
    assert (end.outcome, end.content) == ("ok", "fetched")
    assert attempts == [1, 2, 3]
    assert first
    assert timedelta(seconds=8) <= first <= timedelta(seconds=12)
    assert second
    assert timedelta(seconds=16) <= second <= timedelta(seconds=24)
    assert {(error.type, error.non_retryable, error.__cause__) for error in failed} == {
        (failures.TOOL_FAILED, False, None)
    }
    assert len(failed[0].message) == 200


async def test_the_last_failure_is_the_result() -> None:
    """After all attempts the model reads why."""
    attempts: list[int] = []
    rig = ToolRig(_unsteady(attempts, 9))
    failed, end = await rig.attempts(rig.call("fetch"))
    assert len(failed) == 2
    assert attempts == [1, 2, 3]
    assert end.role == "tool"
    assert end.outcome == "error"
    assert end.content.startswith("OSError: no route")


async def test_subscribers_hear_of_retries_and_of_the_warning_once() -> None:
    """A retry event says when the next attempt comes."""
    rig = ToolRig(_unsteady([], 2))
    call = rig.call("fetch").model_copy(update={"warning": "search failed"})
    await rig.attempts(call)
    events = await rig.events()
    retry = next(event for event in events if isinstance(event, RetryScheduled))
    assert retry.attempt == 1
    assert retry.reason.startswith("OSError: no route")
    assert retry.delay is not None
    assert 8 <= retry.delay <= 12
    assert events.count(Warned(text="search failed")) == 1


@pytest.mark.parametrize(("idempotent", "outcome"), [(True, "ok"), (False, "error")])
async def test_a_failure_that_cannot_be_released(*, idempotent: bool, outcome: str) -> None:
    """Only an idempotent tool goes on: the next attempt of another would take this one for lost."""

    class FailingRecords(MemoryToolRecords):
        async def release(self, lease: Lease, seconds: float = 0) -> None:
            raise RedisConnectionError

    attempts: list[int] = []
    rig = ToolRig(_unsteady(attempts, 2, idempotent=idempotent), records=FailingRecords())
    _, end = await rig.attempts(rig.call("fetch"))
    assert end.role == "tool"
    assert end.outcome == outcome


async def test_a_crash_between_failure_and_release_is_no_second_run() -> None:
    """The claim stands until the failure is known for good."""

    class DyingRecords(MemoryToolRecords):
        async def release(self, lease: Lease, seconds: float = 0) -> None:
            raise asyncio.CancelledError

    attempts: list[int] = []
    rig = ToolRig(_unsteady(attempts, 2), records=DyingRecords())
    with pytest.raises(asyncio.CancelledError):
        await rig.attempt_call(rig.call("fetch"))
    end = await rig.attempt_call(rig.call("fetch"))
    assert end.role == "tool"
    assert end.outcome == "unknown"
    assert attempts == [1]


async def test_a_tool_that_takes_too_long_is_tried_again() -> None:
    """A timeout is a failure like any other."""

    @tool(retries=Retries(attempts=2))
    async def endless() -> str:
        """Never return."""
        await asyncio.Event().wait()
        return ""

    rig = ToolRig(endless)
    failed, end = await rig.attempts(rig.call("endless", wait=0.01))
    assert [error.message for error in failed] == ["endless did not finish within 0.01 s"]
    assert end.role == "tool"
    assert end.outcome == "error"


async def test_a_question_and_wrong_arguments_are_no_failures() -> None:
    """Neither is tried again."""

    @tool(retries=RETRIES)
    def ask(what: str) -> str:
        """Ask."""
        raise InputRequired(what)

    rig = ToolRig(ask)
    assert (await rig.ask(rig.call("ask", '{"what": "?"}'))).text == "?"
    assert (await rig.run(rig.call("ask", "{}", call_id="2"))).outcome == "invalid"
