"""The number of runs of a call: at most one, or another after a loss, and never two at the same time."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from everloop.activities.tools.approval_policies import phase_key
from everloop.agents.limits import Retries
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.runtime.telemetry.logs import chain_of
from everloop.stores.keys import outcomes_key, records_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import Published
from everloop.stores.scripts import Lease, OvertakenError, Step
from everloop.stores.tool_records import Claim, Claimed, ToolRecords, reply_call
from everloop.workflows.contract.calls import ToolReply
from everloop.workflows.contract.events import RetryScheduled, TaskEvent, Warned
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.names import call_key
from tests.support.rigs.tool_rig import ToolRig
from tests.support.stores import database

ORDER_OF_NOW = str(time.time_ns() // 1000)
"""The order of an attempt that comes after those of a rig."""

each_kind = pytest.mark.parametrize("idempotent", [True, False])


@each_kind
async def test_a_call_that_was_started_and_lost(*, idempotent: bool) -> None:
    """After a loss, an idempotent tool runs again with the same key; another tool's outcome stays unknown."""
    keys: list[str] = []

    @tool(idempotent=idempotent)
    def effect(context: ToolContext) -> str:
        """Leave the key."""
        keys.append(context.idempotency_key)
        return "done"

    rig = ToolRig(effect)
    key = call_key(rig.call("effect").call)
    await rig.lose(rig.call("effect"))
    result = await rig.run(rig.call("effect"))
    assert result.outcome == ("ok" if idempotent else "unknown")
    if not idempotent:  # it may have been cancelled
        stopped = "effect was started, and the process that ran it stopped before it reported how it ended. "
        assert result.content.startswith(f"{stopped}It may or may not have taken effect")
    assert keys == ([f"{rig.task_id}/{key}"] if idempotent else [])
    assert await rig.run(rig.call("effect")) == result


@each_kind
async def test_a_call_that_may_have_begun_before_redis_was_emptied(redis: Redis, *, idempotent: bool) -> None:
    """Without a record of the call and its reply, the outcome of a second attempt is unknown."""
    payment = Payment(idempotent=idempotent)
    await payment.note_reply()
    running = await payment.begin()
    await redis.flushdb()
    result = await payment.attempt_call(payment.call("pay"))
    payment.gate.set()
    with pytest.raises(OvertakenError):
        await running
    assert isinstance(result, ToolMessage)
    assert (result.outcome, payment.runs) == (("ok", [1, 2]) if idempotent else ("unknown", [1]))


async def test_a_call_that_another_attempt_was_seen_at_has_begun(redis: Redis) -> None:
    """A call that was seen at another attempt has started, though Redis has lost that claim."""
    payment = Payment()
    running = await payment.begin()
    payment.cancel(not_found=True)
    second = asyncio.create_task(payment.attempt_call(payment.call("pay")))
    await payment.watched.held.wait()
    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.flushdb()
        pipeline.hset(
            records_key(payment.task_id), reply_call("run", payment.call("pay").reply_position, 0), ""
        )
        await pipeline.execute()
    result = await second
    payment.gate.set()
    with pytest.raises(OvertakenError):
        await running
    assert isinstance(result, ToolMessage)
    assert (result.outcome, payment.runs) == ("unknown", [1])


async def test_a_call_whose_attempts_never_began() -> None:
    """A call runs if its attempts failed before their claim in an outage: its reply is recorded."""
    payment = Payment()
    await payment.note_reply()
    payment.attempt = 1
    result = await payment.attempt_call(payment.call("pay"))
    assert isinstance(result, ToolMessage)
    assert (result.outcome, payment.runs) == ("ok", [2])


async def test_a_call_of_a_run_that_was_reset_begins(redis: Redis) -> None:
    """The first attempt after an operator's reset runs, though Redis was emptied."""
    payment = Payment()
    payment.gate.set()
    await payment.attempt_call(payment.call("pay"))
    await redis.flushdb()
    result = await payment.run(payment.call("pay"))
    assert (result.outcome, payment.runs) == ("ok", [1, 1])


@pytest.mark.parametrize("before", [False, True])
async def test_what_was_begun_may_be_repeated_only_if_both_versions_say_so(*, before: bool) -> None:
    """A lost call is repeated only if its tool is idempotent in both versions: when it started and now."""
    first, later = Payment(idempotent=before), Payment(idempotent=not before)
    later.task_id, later.attempt = first.task_id, 1
    running = await first.begin()
    await first.take_for_lost(first.call("pay"))
    result = await later.attempt_call(later.call("pay"))
    first.gate.set()
    with pytest.raises(OvertakenError):
        await running
    assert isinstance(result, ToolMessage)
    assert (result.outcome, later.runs) == ("unknown", [])


class UnheardRecords(ToolRecords):
    """Records that accept a claim and lose the answer."""

    is_heard = False

    def claiming(
        self, lease: Lease, seconds: float, *, kept: str = "", reply: int | None = None
    ) -> Step[Claimed]:
        step = super().claiming(lease, seconds, kept=kept, reply=reply)

        def read(answer: Any) -> Claimed:  # noqa: ANN401 -- whatever the script returned
            if self.is_heard:
                return step.read(answer)
            self.is_heard = True
            raise RedisConnectionError("Connection closed by server.")

        return replace(step, read=read)


async def test_a_claim_whose_answer_is_lost_is_made_again() -> None:
    """A claim without an answer is repeated by the same attempt.

    Otherwise the next one would take the call for lost.
    """
    runs: list[int] = []

    @tool
    def effect(context: ToolContext) -> str:
        """Have an effect."""
        runs.append(context.attempt)
        return "done"

    records = UnheardRecords(database())
    rig = ToolRig(effect, records=records)
    result = await rig.run(rig.call("effect"))
    assert (result.outcome, runs) == ("ok", [1])
    assert records.is_heard


async def test_a_claim_of_what_may_be_repeated_is_given_back_where_its_answer_is_lost() -> None:
    """A claim of an idempotent tool is released if its answer is lost, and the next attempt is the first."""

    @tool(idempotent=True)
    def effect() -> None:
        """Have an effect."""

    rig = ToolRig(effect, records=UnheardRecords(database()))
    with pytest.raises(RedisConnectionError):
        await rig.attempt_call(rig.call("effect"))
    assert await rig.lose(rig.call("effect")) is Claim.FIRST


@each_kind
async def test_an_attempt_that_comes_after_a_later_one_does_not_begin(*, idempotent: bool) -> None:
    """A delayed attempt does not start after a later one."""
    payment = Payment(idempotent=idempotent)
    call = payment.call("pay")
    later = Lease(payment.task_id, phase_key(call.call, 0), "later", order=ORDER_OF_NOW)
    assert await payment.records.claim(later, seconds=0) is Claim.FIRST
    with pytest.raises(OvertakenError):
        await payment.attempt_call(call)
    assert payment.runs == []


class WatchedRecords(ToolRecords):
    """Records that store the result of each claim."""

    def __init__(self) -> None:
        super().__init__(database())
        self.claims: list[Claim] = []
        self.held = asyncio.Event()

    def claiming(
        self, lease: Lease, seconds: float, *, kept: str = "", reply: int | None = None
    ) -> Step[Claimed]:
        step = super().claiming(lease, seconds, kept=kept, reply=reply)

        def read(answer: object) -> Claimed:
            claimed = step.read(answer)
            self.claims.append(claimed.claim)
            if claimed.claim is Claim.HELD:
                self.held.set()
            return claimed

        return replace(step, read=read)


class Payment(ToolRig):
    """The tool `pay`, whose first attempt waits at a gate, with its runs and their success."""

    def __init__(self, *, idempotent: bool = False) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.runs, self.wanted = list[int](), list[bool]()

        @tool(idempotent=idempotent)
        async def pay(context: ToolContext) -> str:
            """Pay."""
            self.runs.append(context.attempt)
            if context.attempt > 1:
                return "paid again"
            self.begun.set()
            try:
                await self.gate.wait()
            finally:
                self.wanted.append(context.is_wanted())
            return "paid"

        self.watched = WatchedRecords()
        super().__init__(pay, records=self.watched)
        self.environment = ActivityEnvironment()

    async def note_reply(self) -> None:
        """Record the model's reply with the call."""
        asked = Lease(self.task_id, reply_call("run", self.call("pay").reply_position, 0), "model")
        await self.records.claim(asked, seconds=0)

    async def begin(self) -> "asyncio.Task[ToolReply]":
        """Start the first attempt in an environment that can be cancelled."""
        running = asyncio.create_task(self.environment.run(self.port.run_tool, self.call("pay")))
        await self.begun.wait()
        self.attempt = 1
        return running

    def cancel(self, **why: bool) -> None:
        self.environment.cancel(cancellation_details=ActivityCancellationDetails(**why))


@each_kind
async def test_a_call_whose_outcome_is_forgotten_has_run(redis: Redis, *, idempotent: bool) -> None:
    """A call without its recorded outcome has run: a late reset repeats only idempotent tools."""
    runs: list[int] = []

    @tool(idempotent=idempotent)
    def pay() -> str:
        """Pay."""
        runs.append(1)
        return "paid"

    rig = ToolRig(pay)
    await rig.attempt_call(rig.call("pay"))
    await redis.delete(outcomes_key(rig.task_id))

    result = await rig.attempt_call(rig.call("pay"))

    assert isinstance(result, ToolMessage)
    assert (result.outcome, len(runs)) == (("ok", 2) if idempotent else ("unknown", 1))


@pytest.mark.parametrize("why", ["paused", "reset"])
async def test_a_tool_that_must_not_run_twice_ends_although_an_operator_holds_its_activity(why: str) -> None:
    """A tool that must not run twice ends despite an operator's pause or reset.

    Stopped, its outcome would be unknown. An idempotent one stops, and runs again later.
    """
    payment = Payment()
    running = await payment.begin()
    payment.cancel(**{why: True})
    payment.gate.set()
    reply = await running
    assert isinstance(reply, ToolMessage)
    assert reply.content == "paid"


@pytest.mark.parametrize("paused", [False, True], ids=["canceled", "paused and canceled"])
async def test_a_tool_that_must_not_run_twice_stops_when_its_task_is_cancelled(*, paused: bool) -> None:
    """A tool that must not run twice stops when its task is cancelled, because its result is not needed."""
    payment = Payment()
    running = await payment.begin()
    payment.cancel(paused=paused, cancel_requested=True)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(payment.wanted) == 1


@each_kind
@pytest.mark.parametrize("why", ["not_found", "timed_out"])
async def test_an_attempt_that_temporal_has_forgotten_goes_on(why: str, *, idempotent: bool) -> None:
    """The next attempt waits for one that Temporal timed out, and returns its result; the tool runs once."""
    payment = Payment(idempotent=idempotent)
    first = await payment.begin()
    payment.cancel(**{why: True})
    second = asyncio.create_task(payment.attempt_call(payment.call("pay")))
    await payment.watched.held.wait()
    payment.gate.set()
    reply = await first
    assert reply == await second
    assert isinstance(reply, ToolMessage)
    assert (reply.content, payment.runs) == ("paid", [1])


async def test_a_forgotten_attempt_stops_when_its_task_is_cancelled() -> None:
    """The attempt that waits for a timed-out one ends it when its task is cancelled."""
    payment, waiting = Payment(), ActivityEnvironment()
    first = await payment.begin()
    second = asyncio.create_task(waiting.run(payment.port.run_tool, payment.call("pay")))
    await payment.watched.held.wait()
    waiting.cancel(cancellation_details=ActivityCancellationDetails(cancel_requested=True))
    with pytest.raises(asyncio.CancelledError):
        await second
    with pytest.raises(OvertakenError):
        await first
    assert payment.wanted == [False]
    assert await payment.lose(payment.call("pay")) is Claim.LOST


async def test_an_attempt_goes_on_though_the_one_that_waits_for_it_ends() -> None:
    """The end of a waiting attempt, such as with its worker, does not stop the running one.

    Only a cancelled task does.
    """
    payment, waiting = Payment(), ActivityEnvironment()
    first = await payment.begin()
    announced = payment.call("pay").model_copy(update={"warning": "search failed"})
    second = asyncio.create_task(waiting.run(payment.port.run_tool, announced))
    while payment.watched.claims.count(Claim.HELD) < 2:  # noqa: ASYNC110 -- a fact of the store, no event
        await asyncio.sleep(0.01)
    waiting.cancel(cancellation_details=ActivityCancellationDetails(worker_shutdown=True))
    with pytest.raises(asyncio.CancelledError):
        await second
    payment.gate.set()
    reply = await first
    assert isinstance(reply, ToolMessage)
    assert (reply.content, payment.wanted) == ("paid", [True])
    assert (await payment.events()).count(Warned(text="search failed")) == 1  # once for all reads


async def test_an_overtaken_attempt_keeps_and_records_nothing() -> None:
    """A suspended attempt whose call was taken over neither stores state nor records an outcome."""
    begun, goes_on = asyncio.Event(), asyncio.Event()
    problems = list[str]()

    @tool(idempotent=True)
    async def work(context: ToolContext) -> str:
        """Work."""
        if context.attempt > 1:
            await context.keep("by 2")
            return "by 2"
        begun.set()
        await goes_on.wait()
        try:
            await context.keep("by 1")
        except OvertakenError as error:
            problems.append(error.message)
        return "by 1"

    rig = ToolRig(work)
    call = rig.call("work")
    frozen = asyncio.create_task(rig.attempt_call(call))
    await begun.wait()
    await rig.take_for_lost(call)
    result = await rig.attempt_call(call)
    told = await rig.events()
    goes_on.set()
    with pytest.raises(OvertakenError):
        await frozen

    assert isinstance(result, ToolMessage)
    assert result.content == "by 2"
    assert problems
    assert await rig.records.kept(rig.task_id, call_key(call.call)) == "by 2"
    assert await rig.events() == told
    assert await rig.attempt_call(call) == result


async def test_an_overtaken_attempt_carries_nothing_of_what_its_tool_raised() -> None:
    """An overtaken attempt's failure has no cause, because the text of a tool's error may hold a secret."""

    class Overtaken(TaskViews):
        def publishing(
            self,
            task_id: str,
            run_id: str,
            events: Sequence[TaskEvent],
            lease: Lease | None = None,
            *,
            claims: str = "",
        ) -> Step[Published | None]:
            if any(isinstance(event, RetryScheduled) for event in events):
                raise OvertakenError
            return super().publishing(task_id, run_id, events, lease, claims=claims)

    @tool(idempotent=True, retries=Retries(attempts=2))
    def work() -> None:
        """Work."""
        raise ValueError("the token is wrong")

    rig = ToolRig(work, views=Overtaken(database()))
    with pytest.raises(OvertakenError) as overtaken:
        await rig.attempt_call(rig.call("work"))
    assert chain_of(overtaken.value) == [overtaken.value]


@pytest.mark.parametrize("does", ["progress", "keep", "write", "ask", "fail", "return"])
async def test_an_attempt_whose_task_was_deleted_writes_nothing(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    """A suspended attempt whose task was deleted writes nothing.

    Redis would accept it, and restore the task.
    """
    is_gone = False

    async def is_unwanted() -> bool:
        return is_gone

    @tool
    async def work(context: ToolContext) -> str:
        """Work on."""
        nonlocal is_gone
        is_gone = True
        await redis.flushdb()
        match does:
            case "progress":
                await context.progress("halfway")
            case "keep":
                await context.keep(1)
            case "write":
                await context.artifacts.write_data("a", 1)
            case "ask":
                raise InputRequired("Which?")
            case "fail":
                raise ValueError
            case _:
                pass
        return "done"

    monkeypatch.setattr("everloop.activities.lease._is_unwanted", is_unwanted)
    monkeypatch.setattr("everloop.activities.tools.records.TOOL_LEASE", 0)
    rig = ToolRig(work)
    with pytest.raises(OvertakenError):
        await rig.attempt_call(rig.call("work"))
    assert await redis.keys() == []
