"""A tool that fails is tried again, and finds what it kept; whatever is lost in between."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from everloop.activities.tools.records import MAX_KEPT_BYTES
from everloop.agents.limits import Retries
from everloop.agents.questions import InputRequired
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
    """Later and later; the failure says no more than the model would see of it at a glance."""
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
    """After all attempts the model reads why; subscribers hear of each wait, and of the warning once."""
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
    """It does not have to wait for the end of a lease, and is the first again."""
    rig = ToolRig(_unsteady([], 2, idempotent=idempotent))
    with pytest.raises(ApplicationError):
        await rig.attempt_call(rig.call("fetch"))
    assert await rig.lose(rig.call("fetch")) is Claim.FIRST


@pytest.mark.parametrize(("idempotent", "outcome"), [(True, "ok"), (False, "error")])
async def test_a_failure_that_cannot_be_released(
    monkeypatch: pytest.MonkeyPatch, *, idempotent: bool, outcome: str
) -> None:
    """Only an idempotent tool goes on: the next attempt of another would take this one for lost."""
    monkeypatch.setattr("everloop.activities.tools.records.TOOL_LEASE", 1)  # the next one waits for its end
    rig = ToolRig(
        _unsteady([], 2, idempotent=idempotent), records=failing(ToolRecords(database()), "releasing")
    )
    _, end = await rig.attempts(rig.call("fetch"))
    assert end.role == "tool"
    assert end.outcome == outcome


async def test_a_crash_between_failure_and_release_is_no_second_run() -> None:
    """The claim stands until the failure is known for good."""
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


# What a tool keeps of a call, so that a later attempt goes on where the last one was lost.


async def test_an_attempt_finds_what_the_lost_one_kept() -> None:
    """A worker dies after it has begun a job: the next one takes up the same job, and begins no other."""
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
    await rig.take_for_lost(rig.call("run"))  # nor is its call given back

    result = await rig.attempt_call(rig.call("run"))

    assert isinstance(result, ToolMessage)
    assert (result.content, begun) == ("done: job 0", ["job 0"])
    assert ToolStarted(call_id="call", name="run", attempt=2) in await rig.events()


async def test_other_calls_keep_for_themselves() -> None:
    """Of another id, or with other arguments."""

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
    """The answer begins another phase of the same call."""

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
    ("x" * (MAX_KEPT_BYTES - 1), "65537 bytes of JSON, and a call may keep 65536; write the rest into an"),
    (float("nan"), "keep takes a JSON value, and this is none: Out of range float values"),
    ([object()], "keep takes a JSON value, and this is none: Object of type object"),
]


@pytest.mark.parametrize(("value", "problem"), NOT_KEPT, ids=["large", "nan", "object"])
async def test_what_cannot_be_kept_is_told_to_the_tool(value: JsonValue, problem: str) -> None:
    """The error says what would fit; what was kept before stays."""
    rig = ToolRig(_keeping(value))
    result = await rig.run(rig.call("keep"))
    assert result.outcome == "error"
    assert problem in result.content


async def test_an_outage_while_a_tool_keeps_is_waited_out() -> None:
    """The tool has begun, and must not fail for what is no fault of its own."""
    rig = ToolRig(_keeping(1), records=failing(ToolRecords(database()), "keeping", times=1))
    assert (await rig.run(rig.call("keep"))).content == "kept"
