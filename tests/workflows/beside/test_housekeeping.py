"""Cleanup of kind after kind, in limited steps, started by a schedule that operators may pause."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from temporalio import activity
from temporalio.client import (
    Client,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WorkflowFailureError,
)
from temporalio.exceptions import CancelledError

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.temporal.blob_payloads import data_converter
from everloop.runtime.temporal.encryption_codec import KEY_ID
from everloop.runtime.temporal.housekeeping_schedule import EVERY, ensure_housekeeping
from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.contract.housekeeping_payloads import (
    HOUSEKEEPING_REFUSED,
    HOUSEKEEPING_WORKFLOW_TYPE,
    CleanInput,
    CleanResult,
    HousekeepingInput,
    HousekeepingResult,
    Kind,
    KindResult,
    housekeeping_schedule_id,
)
from everloop.workflows.housekeeping import ROUNDS
from tests.support.encryption import keyring
from tests.support.fakes.housekeeping import ScriptedHousekeeping, Steps, run_by_schedule
from tests.support.fakes.ports import FakePorts, ScriptedModel, fails
from tests.workflows.conftest import unique_queue

Run = Callable[..., Awaitable[tuple[HousekeepingResult, ScriptedHousekeeping]]]


@asynccontextmanager
async def working(
    client: Client, port: ScriptedHousekeeping, queue: str, cached: int = 1000
) -> AsyncGenerator[None]:
    ports = dataclasses.replace(FakePorts(ScriptedModel()).wired(), housekeeping=port)
    settings = WorkerSettings(task_queue=queue, max_cached_workflows=cached, shutdown_grace=0)
    async with running_workers(client, ports, settings, ["workflows"]):
        yield


@pytest.fixture
def run(cached: int, client: Client) -> Run:
    """Run the housekeeping once, with these steps behind its port."""

    async def run(steps: Steps, *, dry_run: bool = False) -> tuple[HousekeepingResult, ScriptedHousekeeping]:
        port, queue = ScriptedHousekeeping(steps), unique_queue()
        async with working(client, port, queue, cached):
            result = await client.execute_workflow(
                HOUSEKEEPING_WORKFLOW_TYPE,
                HousekeepingInput(dry_run=dry_run),
                id=queue,
                task_queue=queue,
                result_type=HousekeepingResult,
            )
        return result, port

    return run


async def test_each_kind_is_cleaned_up_until_nothing_is_left(run: Run) -> None:
    """One kind after the other; a step continues where the one before ended, and the counts are added."""
    steps: Steps = {Kind.VIEWS: [CleanResult(removed=3, cursor="a"), CleanResult(removed=4)]}
    result, port = await run(steps)
    assert [kind for kind, _ in port.calls] == [Kind.VIEWS, *Kind]
    assert [call.cursor for kind, call in port.calls if kind is Kind.VIEWS] == ["", "a"]
    assert {kind: done.removed for kind, done in result.kinds.items()} == {
        **dict.fromkeys(Kind, 0),
        Kind.VIEWS: 7,
    }
    assert all(done.finished_at and not done.cursor and not done.failure for done in result.kinds.values())


async def test_a_kind_that_fails_does_not_stop_the_others(run: Run) -> None:
    """The result has its counts before the failure, and the reason."""
    refused = fails(HOUSEKEEPING_REFUSED, "nobody knows")
    result, port = await run({Kind.VIEWS: [CleanResult(removed=2, cursor="a"), refused]})
    assert [kind for kind, _ in port.calls][-1] is Kind.RETENTIONS
    failed = result.kinds[Kind.VIEWS]
    assert failed == KindResult(removed=2, failure="HousekeepingRefused: nobody knows")  # no cursor
    assert not result.kinds[Kind.PAYLOADS].failure


async def test_a_run_that_is_cancelled_ends(client: Client) -> None:
    """The cancellation does not count as the failure of a kind."""
    port, queue = _Endless({}), unique_queue()
    async with working(client, port, queue):
        run = await client.start_workflow(
            HOUSEKEEPING_WORKFLOW_TYPE, HousekeepingInput(), id=queue, task_queue=queue
        )
        await port.has_begun.wait()
        await run.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await run.result()
    assert isinstance(caught.value.cause, CancelledError)
    assert len(port.calls) == 1


class _Endless(ScriptedHousekeeping):
    """Does not end its first step before its worker stops."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        self.has_begun = asyncio.Event()

    @activity.defn
    async def clean(self, call: CleanInput) -> CleanResult:
        cleaned = await super().clean(call)
        if len(self.calls) == 1:
            self.has_begun.set()
            await asyncio.Event().wait()
        return cleaned


async def test_a_run_is_limited(run: Run) -> None:
    """The next run begins where this one stopped."""
    endless = [CleanResult(removed=1, cursor=f"{n}") for n in range(ROUNDS + 1)]
    result, _ = await run({Kind.PAYLOADS: endless})
    done = result.kinds[Kind.PAYLOADS]
    assert (done.removed, done.cursor, done.finished_at) == (ROUNDS, f"{ROUNDS - 1}", None)


async def test_a_dry_run_says_so_in_every_step(run: Run) -> None:
    """And in its result."""
    result, port = await run({Kind.PAYLOADS: [CleanResult(removed=1, cursor="a")]}, dry_run=True)
    assert all(call.dry_run for _, call in port.calls)
    assert (result.dry_run, result.kinds[Kind.PAYLOADS].removed) == (True, 1)


async def test_the_schedule_hands_on_where_a_run_ended(client: Client) -> None:
    """An unfinished search continues, a finished one begins again later; lists are searched each time."""
    endless = [CleanResult(cursor=f"{n}") for n in range(ROUNDS)]
    steps: Steps = {Kind.PAYLOADS: endless, Kind.VIEWS: [CleanResult(removed=1)]}
    port, queue = ScriptedHousekeeping(steps), unique_queue()
    async with working(client, port, queue), ensured(client, queue) as runs:
        results = [await runs(1)]
        first = len(port.calls)
        results.append(await runs(2))
    assert [result.kinds[Kind.VIEWS].removed for result in results] == [1, 0]
    assert port.calls[first:] == [
        (Kind.CONVERSATIONS, CleanInput(kind=Kind.CONVERSATIONS)),
        (Kind.ARTIFACTS, CleanInput(kind=Kind.ARTIFACTS)),
        (Kind.PENDING_BLOBS, CleanInput(kind=Kind.PENDING_BLOBS)),
        (Kind.PAYLOADS, CleanInput(kind=Kind.PAYLOADS, cursor=f"{ROUNDS - 1}")),
        (Kind.RETENTIONS, CleanInput(kind=Kind.RETENTIONS)),
    ]


@asynccontextmanager
async def ensured(
    client: Client, queue: str
) -> AsyncGenerator[Callable[[int], Awaitable[HousekeepingResult]]]:
    """Make the schedule; yield a function that triggers it and returns the result of its n-th run."""
    assert await ensure_housekeeping(client, queue)
    schedule = client.get_schedule_handle(housekeeping_schedule_id(queue))

    async def run(number: int) -> HousekeepingResult:
        run_id = await run_by_schedule(client, schedule, number)
        return await client.get_workflow_handle(run_id, result_type=HousekeepingResult).result()

    try:
        yield run
    finally:
        await schedule.delete()


async def test_every_worker_may_make_the_schedule(client: Client) -> None:
    """Concurrently, and repeatedly; one that an operator has paused stays so."""
    queue = unique_queue()
    assert all(await asyncio.gather(*(ensure_housekeeping(client, queue) for _ in range(5))))
    schedule = client.get_schedule_handle(housekeeping_schedule_id(queue))
    await schedule.pause(note="Ask Ann.")
    assert await ensure_housekeeping(client, queue)
    known = (await schedule.describe()).schedule
    assert [each.every for each in known.spec.intervals] == [EVERY]
    assert (known.state.paused, known.state.note) == (True, "Ask Ann.")
    await schedule.delete()


async def test_a_schedule_of_another_version_is_changed(client: Client) -> None:
    """It gets this version's settings, and stays paused."""
    queue = unique_queue()
    assert await ensure_housekeeping(client, queue)
    schedule = client.get_schedule_handle(housekeeping_schedule_id(queue))
    await schedule.pause()

    def slow_down(known: ScheduleUpdateInput) -> ScheduleUpdate:
        known.description.schedule.spec.intervals = [ScheduleIntervalSpec(every=timedelta(days=1))]
        return ScheduleUpdate(known.description.schedule)

    await schedule.update(slow_down)
    assert await ensure_housekeeping(client, queue)
    known = (await schedule.describe()).schedule
    assert ([each.every for each in known.spec.intervals], known.state.paused) == ([EVERY], True)
    await schedule.delete()


async def test_a_schedule_is_made_anew_with_another_key(client: Client) -> None:
    """Its runs can then be read without the older key; the same holds after encryption is switched off."""
    queue = unique_queue()
    schedule = client.get_schedule_handle(housekeeping_schedule_id(queue))
    for cipher in (keyring("k1"), keyring("k2", "k1"), NO_CIPHER):
        config = client.config()
        config["data_converter"] = data_converter(None, cipher=cipher)
        reader = Client(**config)
        assert await ensure_housekeeping(reader, queue)
        action = (await schedule.describe()).schedule.action
        assert isinstance(action, ScheduleActionStartWorkflow)
        (kept,) = action.args
        made = await reader.data_converter.encode([HousekeepingInput()])
        assert kept.metadata.get(KEY_ID) == made[0].metadata.get(KEY_ID)
    await schedule.delete()


async def test_a_namespace_that_refuses_schedules_is_a_warning(client: Client) -> None:
    """The worker starts all the same."""
    config = client.config()
    config["namespace"] = "no-such-namespace"
    with capture_logs() as logs:
        assert not await ensure_housekeeping(Client(**config), unique_queue())
    (warning,) = logs
    assert warning["log_level"] == "warning"
    assert "no schedule for the housekeeping" in str(warning["event"])
