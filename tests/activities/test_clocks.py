"""Clocks of Redis and Temporal that are set back: calls neither wait for the old time nor run twice."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from redis.asyncio import Redis
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities import lease
from everloop.activities.cached_transcripts import CachedTranscripts
from everloop.agents.limits import Retries
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.keys import transcript_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.scripts import OvertakenError
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.calls import RunToolInput, StoreTranscriptInput, ToolReply
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.tasks import TaskRef
from tests.stores.examples import new_id, said, status
from tests.support.clocks import FastClock
from tests.support.rigs.push_rig import push_rig
from tests.support.rigs.tool_rig import ToolRig

HOUR = timedelta(hours=1)


class Process(ToolRig):
    """A worker with the tool `pay`, whose first attempt waits at a gate."""

    def __init__(self, redis: Redis, task_id: str) -> None:
        self.runs, self.begun, self.gate = list[int](), asyncio.Event(), asyncio.Event()

        @tool
        async def pay(context: ToolContext) -> str:
            """Pay."""
            self.runs.append(context.attempt)
            self.begun.set()
            await self.gate.wait()
            return "paid"

        super().__init__(pay, records=ToolRecords(redis), views=TaskViews(redis))
        self.task_id = task_id
        self.transcripts = Transcripts(redis)

    def pay(self, run_id: str = "run") -> RunToolInput:
        call = self.call("pay")
        return call.model_copy(update={"task": call.task.model_copy(update={"run_id": run_id})})


@asynccontextmanager
async def _paying(process: Process) -> AsyncGenerator[asyncio.Task[ToolReply]]:
    """Run the first attempt during the block."""
    running = asyncio.create_task(process.attempt_call(process.pay()))
    await process.begun.wait()
    yield running
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.timeout(60)  # not the hour
async def test_the_call_of_a_dead_worker_is_taken_up_though_the_clock_of_redis_was_put_back(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead worker's call is taken over after at most one lease, though Redis' clock was set back."""
    monkeypatch.setattr("everloop.activities.tools.records.TOOL_LEASE", 0.5)
    dying, clock, task_id = FastClock(redis, HOUR), FastClock(redis), new_id()
    async with _paying(Process(dying, task_id)):
        dying.is_away = True
    later = Process(clock, task_id)
    later.attempt = 1

    result = await later.attempt_call(later.pay())

    assert isinstance(result, ToolMessage)
    assert (result.outcome, later.runs) == ("unknown", [])


async def test_a_worker_that_lives_keeps_its_call_though_the_clock_of_redis_is_put_back(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call of a live worker stays its own.

    A waiting attempt that looks before the renewal finds a lease.
    """
    monkeypatch.setattr(lease, "POLL", 0.01)
    monkeypatch.setattr(lease, "RENEWAL", 0.2)
    clock, task_id = FastClock(redis, HOUR), new_id()
    process, later = Process(clock, task_id), Process(clock, task_id)
    later.attempt = 1
    async with _paying(process) as running:
        clock.ahead = timedelta()
        waiting = asyncio.create_task(later.attempt_call(later.pay()))
        before = clock.scripts
        while clock.scripts < before + 50:  # noqa: ASYNC110 -- looks and renewals raise no event
            await asyncio.sleep(0.01)
        process.gate.set()
        result = await running

    assert isinstance(result, ToolMessage)
    assert (result.content, process.runs, later.runs) == ("paid", [1], [])
    assert await waiting == result


@pytest.mark.parametrize("later", ["attempt", "run"])
async def test_a_call_is_taken_up_though_the_clock_of_temporal_was_put_back(redis: Redis, later: str) -> None:
    """The next attempt, or one after a Reset, takes the call over though Temporal's clock was set back."""
    process = Process(redis, new_id())
    process.ahead = _now_on() + HOUR
    await process.lose(process.pay())
    process.ahead = _now_on()
    process.attempt = 1 if later == "attempt" else 0

    result = await process.attempt_call(process.pay("run" if later == "attempt" else "reset"))

    assert isinstance(result, ToolMessage)
    assert result.outcome == "unknown"


@pytest.mark.parametrize("ahead", [timedelta(), HOUR], ids=["as Redis", "ahead of Redis"])
async def test_an_earlier_attempt_comes_too_late_however_far_the_clock_of_temporal_is(
    redis: Redis, ahead: timedelta
) -> None:
    """A delayed earlier attempt does not run, however far the clock of Temporal is ahead."""
    process = Process(redis, new_id())
    process.ahead = _now_on() + ahead
    process.attempt = 1
    await process.lose(process.pay())
    await process.attempt_call(process.pay())
    process.attempt = 0

    with pytest.raises(OvertakenError):
        await process.attempt_call(process.pay())


async def test_notifications_go_on_though_the_clock_of_temporal_was_put_back(redis: Redis) -> None:
    """Notifications continue: each is an activity of its own under one lease."""
    async with push_rig() as (rig, hook):
        await rig.begin(status(1))
        at = datetime.now(UTC) + HOUR
        await rig.publish(status(2))
        rig.info = {"activity_id": "1", "current_attempt_scheduled_time": at}
        await rig.deliver()
        await rig.publish(status(3))
        rig.info = {"activity_id": "2", "current_attempt_scheduled_time": at - HOUR}
        await rig.deliver()

    assert len(hook.taken) == 2


async def test_what_a_short_call_writes_counts_though_the_clock_of_temporal_was_put_back(
    redis: Redis,
) -> None:
    """A transcript is sent again though the later attempt is the earlier one by Temporal's clock."""
    task = TaskRef(task_id=new_id(), run_id="run", context_id=new_id(), owner="o", agent_id="agent")
    port = CachedTranscripts(Transcripts(redis), ToolRecords(redis))

    for attempt, ahead in ((2, HOUR), (3, timedelta())):
        environment = ActivityEnvironment()
        at = datetime.now(UTC) + ahead
        environment.info = replace(environment.info, attempt=attempt, current_attempt_scheduled_time=at)
        call = StoreTranscriptInput(task=task, start=0, messages=(said(f"m{attempt}"),))
        await environment.run(port.store_transcript, call)

    kept = cast("dict[str, str]", await redis.hgetall(transcript_key(task.task_id, "run")))
    assert "m3" in kept["0"]


async def test_artifacts_are_written_again_though_the_clock_of_temporal_was_put_back(redis: Redis) -> None:
    """The next attempt of an idempotent tool writes its artifacts again after the first was lost."""

    @tool(idempotent=True, retries=Retries(attempts=2, delay=timedelta()))
    async def write(context: ToolContext) -> str:
        """Write, and fail at first."""
        await context.artifacts.write_data("a", context.attempt)
        if context.attempt == 1:
            raise RuntimeError
        return "written"

    del redis
    rig = ToolRig(write)
    rig.ahead = _now_on() + HOUR
    with pytest.raises(ApplicationError):
        await rig.attempt_call(rig.call("write"))
    rig.ahead = _now_on()
    result = await rig.attempt_call(rig.call("write"))

    assert isinstance(result, ToolMessage)
    assert (result.content, result.artifacts) == ("written", ("a",))


def _now_on() -> timedelta:
    """Return the difference between the present and the start of a rig's clock."""
    return datetime.now(UTC) - datetime(2026, 11, 21, tzinfo=UTC)
