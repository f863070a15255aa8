"""Unneeded attempts end even if their cancellation is lost at first; heartbeats carry counts on."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio import activity, workflow
from temporalio.activity import ActivityCancellationDetails
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import UpdateActivityOptionsRequest
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.testing import ActivityEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from everloop.activities import lease
from everloop.activities.lease import MODEL_LEASE, CallLease, heartbeating
from everloop.stores.keys import records_key
from everloop.stores.scripts import Lease, OvertakenError, Step
from everloop.stores.tool_records import ToolRecords
from tests.support.stores import database

HEARTBEAT_TIMEOUT = timedelta(seconds=4)
"""5 seconds later the SDK cancels an attempt whose heartbeats Temporal has not answered."""


class Endless:
    """A call that ends when it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.is_lost, self.has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @activity.defn
    async def work(self) -> None:
        """Work under a lease, and send no heartbeat."""
        try:
            await _hold(ToolRecords(database()), self._work)
        finally:
            self.has_ended.set()

    async def _work(self) -> None:
        self.begun.set()
        while not activity.is_cancelled():  # noqa: ASYNC110 -- the SDK cancels it
            await asyncio.sleep(0.02)
        self.is_lost.set()
        await asyncio.Event().wait()


@workflow.defn
class Waiting:
    """Waits for the call, also when it is cancelled."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(
            "work",
            activity_id="1",
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


def working(client: Client, queue: str, kind: type, work: Callable[..., object]) -> Worker:
    """Return a worker for one kind of workflow and its activity."""
    runner = UnsandboxedWorkflowRunner()
    return Worker(
        client, task_queue=queue, workflows=[kind], activities=[work], workflow_runner=runner, build_id="test"
    )


CANCELED = ActivityCancellationDetails(cancel_requested=True)


async def test_work_that_loses_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that loses its cancellation is cancelled again.

    `asyncio.wait_for` of Python 3.11, in clients of servers, may lose one.
    """
    monkeypatch.setattr(lease, "LAST_WORDS", 0.02)
    begun, cancelled, environment = asyncio.Event(), list[bool](), ActivityEnvironment()

    async def work() -> None:
        begun.set()
        while len(cancelled) < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)

    held = asyncio.create_task(environment.run(_hold, ToolRecords(database()), work))
    await begun.wait()
    environment.cancel(cancellation_details=CANCELED)
    with pytest.raises(asyncio.CancelledError):
        await held
    assert len(cancelled) == 2


async def test_work_does_not_begin_where_the_claim_has_lost_the_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work does not start if the claim has lost the cancellation."""
    environment, claimed = ActivityEnvironment(), asyncio.Event()

    async def losing(*steps: Step[Any]) -> tuple[Any, ...]:
        claimed.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await run(*steps)

    async def work() -> None:
        await asyncio.Event().wait()

    records = ToolRecords(database())
    run = records.run
    monkeypatch.setattr(records, "run", losing)
    held = asyncio.create_task(environment.run(_hold, records, work))
    await claimed.wait()
    environment.cancel(cancellation_details=CANCELED)
    with pytest.raises(asyncio.CancelledError):
        await held


async def test_a_renewal_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed renewal is repeated after a short outage, and the call stays ours."""
    monkeypatch.setattr(lease, "RENEWAL", 0.01)
    records, tried, again = ToolRecords(database()), list[float](), asyncio.Event()
    renew = records.renew

    async def unsteady(held: Lease, seconds: float) -> bool:
        tried.append(seconds)
        if len(tried) == 1:
            raise RedisConnectionError
        again.set()
        return await renew(held, seconds)

    async def work() -> None:
        await again.wait()

    monkeypatch.setattr(records, "renew", unsteady)
    await ActivityEnvironment().run(_hold, records, work)
    assert tried[1] == MODEL_LEASE


async def _hold(records: ToolRecords, work: Callable[[], Coroutine[object, object, None]]) -> None:
    await CallLease(records, "task", "call", MODEL_LEASE, is_repeatable=True).work(work)


async def test_an_attempt_that_the_sdk_alone_takes_for_lost_is_cancelled(
    temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that the SDK cancels asks Temporal for its state: Temporal may accept a late heartbeat."""
    monkeypatch.setattr(lease, "_LOOK", 1)
    client, queue, call = await Client.connect(temporal_address), str(uuid4()), Endless()
    async with working(client, queue, Waiting, call.work):
        handle = await client.start_workflow(Waiting.run, id=queue, task_queue=queue)
        await call.begun.wait()
        await _let_heartbeats_be_late(client, queue)
        await call.is_lost.wait()
        await handle.cancel()
        await call.has_ended.wait()
        await handle.terminate()


@pytest.mark.parametrize("task", ["there", "ended", "deleted"])
async def test_an_attempt_that_stood_still_asks_whether_its_task_is_there(
    temporal_address: str, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    """An attempt that was suspended asks Temporal for its task: Redis would accept a deleted task's writes.

    The end of its lease does not bring the task back either.
    """
    client = await Client.connect(temporal_address)
    queue, begun, go_on = str(uuid4()), asyncio.Event(), asyncio.Event()
    refused = asyncio.get_running_loop().create_future()

    async def find_nothing(*_: object) -> None:
        """Raise Temporal's error for a deleted task."""

    @activity.defn
    async def work() -> None:
        held = CallLease(ToolRecords(database()), "task", "call", 0.2, is_repeatable=False)
        await held.claim()
        begun.set()
        await go_on.wait()
        time.sleep(0.3)  # noqa: ASYNC251 -- as if the process was frozen
        try:
            await held.check_task()
        except OvertakenError:
            await database().delete(records_key("task"))
            await held.end()
            refused.set_result(not await database().exists(records_key("task")))
        else:
            refused.set_result(False)

    async with working(client, queue, Waiting, work):
        handle = await client.start_workflow(Waiting.run, id=queue, task_queue=queue)
        await begun.wait()
        if task != "there":
            await handle.terminate()
        if task == "deleted":  # the server takes some time for it
            monkeypatch.setattr(lease, "find_run", find_nothing)
        go_on.set()
        assert await refused == (task != "there")
        if task == "there":
            await handle.terminate()


async def _let_heartbeats_be_late(client: Client, workflow_id: str) -> None:
    """Give an attempt a heartbeat timeout in Temporal that is much longer than the SDK's."""
    await client.workflow_service.update_activity_options(
        UpdateActivityOptionsRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=workflow_id),
            id="1",
            activity_options=ActivityOptions(heartbeat_timeout=Duration(seconds=3600)),
            update_mask=FieldMask(paths=["heartbeat_timeout"]),
        )
    )


# Values that heartbeats carry from one attempt to the next.


@activity.defn
async def count() -> int:
    """Count a failure in the first and the third attempt, and fail in the first two."""
    async with heartbeating() as heartbeat:
        match activity.info().attempt:
            case 1:
                heartbeat.count_failure()
                raise RuntimeError
            case 2:
                raise RuntimeError
            case _:
                return heartbeat.count_failure()


@workflow.defn
class Counting:
    """Runs the activity until it succeeds."""

    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(
            count,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
        )


async def test_failures_are_counted_across_attempts(temporal_address: str) -> None:
    """The count of failures survives an attempt that failed at once, and one without a count."""
    client, queue = await Client.connect(temporal_address), str(uuid4())
    async with working(client, queue, Counting, count):
        assert await client.execute_workflow(Counting.run, id=queue, task_queue=queue) == 2
