"""Failing tools are retried, and find their stored state after any loss."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from everloop.activities.tools.records import MAX_STORED_BYTES
from everloop.agents.limits import Retries
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.tool_records import Claim, ToolRecords
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import RetryScheduled, ToolStarted, Warned
from everloop.workflows.contract.messages import ToolMessage
from tests.support.fakes.failing import failing
from tests.support.rigs.tool_rig import ToolRig, yes
from tests.support.stores import database

each_kind = pytest.mark.parametrize("idempotent", [True, False])

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


@each_kind
async def test_a_tool_that_fails_is_tried_again(*, idempotent: bool) -> None:
    """A failing tool is retried with growing delays; the failure says no more than the model's message."""
    attempts: list[int] = []
    rig = ToolRig(_unsteady(attempts, 3, idempotent=idempotent))
    failed, end = await rig.attempts(rig.call("fetch"))
    delays = [error.next_retry_delay.total_seconds() for error in failed if error.next_retry_delay]
    assert end.role == "tool"
    assert (end.outcome, end.content, attempts) == ("ok", "fetched", [1, 2, 3])
    assert [abs(delay - mean) <= mean / 5 for delay, mean in zip(delays, (10, 20), strict=True)] == [True] * 2
    kinds = {(error.type, error.non_retryable, error.__cause__) for error in failed}
    assert kinds == {(failures.TOOL_FAILED, False, None)}
    assert len(failed[0].message) == 200


async def test_the_last_failure_is_the_result() -> None:
    """After the last attempt the model reads why; each wait is published, and the warning once."""
    attempts: list[int] = []
    rig = ToolRig(_unsteady(attempts, 9))
    failed, end = await rig.attempts(rig.call("fetch").model_copy(update={"warning": "search failed"}))
    assert (len(failed), attempts) == (2, [1, 2, 3])
    assert end.role == "tool"
    assert end.outcome == "error"
    assert end.content.startswith("OSError: no route")
    events = await rig.events()
    retry, _ = (event for event in events if isinstance(event, RetryScheduled))
    assert retry.attempt == 1
    assert retry.reason.startswith("OSError: no route")
    assert retry.delay is not None
    assert 8 <= retry.delay <= 12
    assert events.count(Warned(text="search failed")) == 1


@each_kind
async def test_a_failed_attempt_leaves_the_call_to_the_next_one_at_once(*, idempotent: bool) -> None:
    """A failed attempt releases its claim: the next one does not wait for the lease, and counts as first."""
    rig = ToolRig(_unsteady([], 2, idempotent=idempotent))
    with pytest.raises(ApplicationError):
        await rig.attempt_call(rig.call("fetch"))
    assert await rig.lose(rig.call("fetch")) is Claim.FIRST


@pytest.mark.parametrize(("idempotent", "outcome"), [(True, "ok"), (False, "error")])
async def test_a_failure_that_cannot_be_released(
    monkeypatch: pytest.MonkeyPatch, *, idempotent: bool, outcome: str
) -> None:
    """If the claim cannot be released, only an idempotent tool runs again: another's call looks lost."""
    monkeypatch.setattr("everloop.activities.tools.records.TOOL_LEASE", 1)  # the next one waits for its end
    rig = ToolRig(
        _unsteady([], 2, idempotent=idempotent), records=failing(ToolRecords(database()), "releasing")
    )
    _, end = await rig.attempts(rig.call("fetch"))
    assert end.role == "tool"
    assert end.outcome == outcome


async def test_a_crash_between_failure_and_release_is_no_second_run() -> None:
    """A claim stands until its failure is recorded, so that a crash in between causes no second run."""
    attempts: list[int] = []
    rig = ToolRig(
        _unsteady(attempts, 2),
        records=failing(ToolRecords(database()), "releasing", error=asyncio.CancelledError(), times=1),
    )
    with pytest.raises(asyncio.CancelledError):
        await rig.attempt_call(rig.call("fetch"))
    end = await rig.attempt_call(rig.call("fetch"))
    assert end.role == "tool"
    assert (end.outcome, attempts) == ("unknown", [1])


# State that a tool stores, so that a later attempt continues after a loss.


async def test_an_attempt_finds_what_the_lost_one_kept() -> None:
    """After the death of a worker, the next attempt finds its job, and starts no other."""
    begun, is_kept = list[str](), asyncio.Event()

    @tool(idempotent=True)
    async def run(context: ToolContext) -> str:
        """Run a job."""
        job = context.kept
        if job is None:
            job = f"job {len(begun)}"
            begun.append(job)
            await context.keep(job)
            is_kept.set()
            await asyncio.Event().wait()
        return f"done: {job}"

    rig = ToolRig(run)
    lost = asyncio.create_task(rig.attempt_call(rig.call("run")))
    await is_kept.wait()
    lost.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lost
    await rig.take_for_lost(rig.call("run"))  # nor is its claim released

    result = await rig.attempt_call(rig.call("run"))

    assert isinstance(result, ToolMessage)
    assert (result.content, begun) == ("done: job 0", ["job 0"])
    assert ToolStarted(call_id="call", name="run", attempt=2) in await rig.events()


async def test_other_calls_keep_for_themselves() -> None:
    """Calls with another id or other arguments have their own state."""

    @tool
    async def count(by: int, context: ToolContext) -> JsonValue:
        """Count."""
        await context.keep(by)
        return context.kept

    rig = ToolRig(count)
    calls = [
        rig.call("count", f'{{"by": {by}}}', call_id=name) for by, name in ((1, "a"), (1, "b"), (2, "a"))
    ]
    assert [(await rig.run(call)).content for call in calls] == ["null"] * 3


async def test_a_call_finds_what_it_kept_before_a_question() -> None:
    """A call finds its state after the answer to its question, which starts another phase."""

    @tool
    async def fill(context: ToolContext) -> JsonValue:
        """Fill a form."""
        if context.answer is None:
            await context.keep({"form": 7})
            raise InputRequired("Name?", "confirmation")
        return context.kept

    rig = ToolRig(fill)
    question = await rig.ask(rig.call("fill"))
    assert (await rig.run(rig.call("fill", "{}", yes(question)))).content == '{"form":7}'


def _keeping(value: JsonValue) -> Tool:
    @tool
    async def keep(context: ToolContext) -> str:
        """Keep."""
        await context.keep(value)
        return "kept"

    return keep


NOT_KEPT = [
    ("x" * (MAX_STORED_BYTES - 1), "65537 bytes of JSON, and a call may keep 65536; write the rest into an"),
    (float("nan"), "keep takes a JSON value, and this is none: Out of range float values"),
    ([object()], "keep takes a JSON value, and this is none: Object of type object"),
]


@pytest.mark.parametrize(("value", "problem"), NOT_KEPT, ids=["large", "nan", "object"])
async def test_what_cannot_be_kept_is_told_to_the_tool(value: JsonValue, problem: str) -> None:
    """A value that cannot be stored is an error with the allowed ones; the earlier state stays."""
    rig = ToolRig(_keeping(value))
    result = await rig.run(rig.call("keep"))
    assert result.outcome == "error"
    assert problem in result.content


async def test_an_outage_while_a_tool_keeps_is_waited_out() -> None:
    """A tool that stores state waits for a short outage, which is not its failure."""
    rig = ToolRig(_keeping(1), records=failing(ToolRecords(database()), "keeping", times=1))
    assert (await rig.run(rig.call("keep"))).content == "kept"
