"""The sweep: it settles tasks that no client reads."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from redis.asyncio import Redis
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from everloop.gateway.errors import TemporalUnavailableError
from everloop.gateway.tasks.task_workflows import submitted_view
from everloop.gateway.tasks.workflow_runs import Alive, RunEnd, Runs, StuckRun
from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import StatusChanged, Warned
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import task_input, unique
from tests.gateway.process.gateways import gateway_process
from tests.gateway.tasks.silent_tasks import (
    BUG,
    defective_worker,
    delete,
    events_of,
    reset,
    services,
    start,
    until_closed,
    view_of,
)
from tests.support.servers.otlp_receiver import OtlpReceiver, running_otlp_receiver
from tests.support.servers.processes import ServerProcess, running_temporal

REPORT_PROBLEMS = "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute=2"


async def test_a_terminated_task_that_nobody_looks_at_is_settled_once(
    client: Client, views: TaskViews
) -> None:
    """Concurrent and repeated sweeps publish one last status."""
    task_id = await start(client, views, unique("nobody"))
    await client.get_workflow_handle(task_id).terminate()
    await until_closed(client, task_id)
    gateways = [services(client, views) for _ in range(3)]
    for _ in range(2):
        await asyncio.gather(*(gateway.sweep.sweep() for gateway in gateways))
    statuses = [e.state for e in await events_of(views, task_id) if isinstance(e, StatusChanged)]
    assert statuses == [TaskState.FAILED]


async def test_a_task_that_was_reset_goes_on(client: Client, views: TaskViews) -> None:
    """Its terminated run is found, and its newest run is alive."""
    queue = unique("reset")
    async with defective_worker(client, queue):
        task_id = await start(client, views, queue)
        await _first_step_is_done(client, task_id)
        await reset(client, task_id)
        await until_closed(client, task_id)
        gateway = services(client, views, queue=queue)
        found = await ended_unpublished(gateway.runs)
        await gateway.sweep.sweep()
    assert task_id in found
    assert (await view_of(views, task_id)).status.state is TaskState.SUBMITTED
    await client.get_workflow_handle(task_id).terminate()


async def _first_step_is_done(client: Client, task_id: str) -> None:
    async for event in client.get_workflow_handle(task_id).fetch_history_events(wait_new_event=True):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return


async def ended_unpublished(runs: Runs) -> set[str]:
    pages = runs.ended_unpublished(datetime.now(UTC) - timedelta(hours=1))
    return {task_id async for page in pages for task_id in page}


async def test_tasks_of_sub_agents_are_left_to_their_parents(client: Client, views: TaskViews) -> None:
    """They have no view of their own, and their parent gets their end; a client's task is found."""
    task_id = unique("parent")
    child_id = child_task_id(task_id, "call_1")
    for each in (task_id, child_id):
        await start(client, views, unique("nobody"), task_id=each)
        await client.get_workflow_handle(each).terminate()
        await until_closed(client, each)
    found = await ended_unpublished(Runs(client))
    assert task_id in found
    assert child_id not in found


class FoundRuns(Runs):
    """Finds the runs of a test, some on each page. Tasks whose names begin with `alive` go on."""

    def __init__(self, client: Client, ended: Sequence[str] = (), stuck: Sequence[StuckRun] = ()) -> None:
        super().__init__(client)
        self._ended, self._stuck = ended, stuck
        self.since: list[datetime] = []
        self.failure: Exception | None = None
        self.failing: str = ""

    async def state(self, task_id: str) -> RunEnd | StuckRun | Alive:
        if task_id == self.failing:
            raise TemporalUnavailableError
        if task_id.startswith("alive"):
            return Alive("run")
        return RunEnd(TaskState.FAILED, "the task was terminated", datetime.now(UTC), "run")

    async def ended_unpublished(self, since: datetime) -> AsyncGenerator[list[str]]:
        self.since.append(since)
        yield list(self._ended[:-1])
        if self.failure:
            raise self.failure
        yield list(self._ended[-1:])

    async def stuck(self) -> AsyncGenerator[list[StuckRun]]:
        if self.failure:
            raise self.failure
        yield list(self._stuck)

    async def cause(self, stuck: StuckRun) -> str:
        return "a bug"


async def created(views: TaskViews, *task_ids: str) -> None:
    """Make these tasks known."""
    for task_id in task_ids:
        await views.create(submitted_view(task_id, task_input()))


async def test_a_task_that_cannot_be_settled_keeps_no_other_from_it(client: Client, redis: Redis) -> None:
    """The others are settled now, and this one in the next sweep, whatever the time of its end."""
    views = TaskViews(redis)
    await created(views, "first", "second", "third")
    runs = FoundRuns(client, ["first", "second", "third"])
    gateway = services(client, views, runs=runs)
    runs.failing = "first"
    await gateway.sweep.sweep()
    others = [await views.state(task_id) for task_id in ("first", "second", "third")]
    runs.failing = ""
    await gateway.sweep.sweep()
    await gateway.sweep.sweep()
    assert others == [TaskState.SUBMITTED, TaskState.FAILED, TaskState.FAILED]
    assert await views.state("first") is TaskState.FAILED
    assert runs.since[0] == runs.since[1] < runs.since[2] < datetime.now(UTC) - timedelta(minutes=14)


@asynccontextmanager
async def watched_gateway(
    directory: Path, temporal: str, redis_url: str
) -> AsyncGenerator[tuple[ServerProcess, OtlpReceiver]]:
    """Run a gateway process that sends its metrics."""
    async with running_otlp_receiver() as receiver:
        variables = {
            "TEMPORAL_ADDRESS": temporal,
            "EVERLOOP_REDIS_URL": redis_url,
            "EVERLOOP_PORT": "0",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        process = gateway_process(directory / "gateway.log", variables)
        process.start()
        try:
            yield process, receiver
        finally:
            process.stop()


async def test_a_task_whose_workflow_is_gone_is_found(client: Client, redis: Redis) -> None:
    """An open task does not expire, so the sweep has to notice; the other tasks go on."""
    views, queue = TaskViews(redis), unique("gone")
    async with defective_worker(client, queue):
        gone, beside = [await start(client, views, queue) for _ in range(2)]
        await delete(client, gone)
        sweep = services(client, views, queue=queue).sweep
        while await views.state(gone) is not TaskState.FAILED:
            await sweep.reconcile_open()
        assert await views.state(beside) is TaskState.SUBMITTED
        await client.get_workflow_handle(beside).terminate()


async def test_an_end_that_redis_has_lost_is_found_while_nothing_else_runs(
    client: Client, redis_url: str
) -> None:
    """No other task confirms the right Temporal; the closed run does."""
    async with connect_redis(redis_url.replace("/0", "/4")) as redis:
        views, queue = TaskViews(redis), unique("last")
        last = await start(client, views, queue)
        await client.get_workflow_handle(last).terminate()
        sweep = services(client, views, queue=queue).sweep
        while await views.state(last) is not TaskState.FAILED:
            await sweep.reconcile_open()


async def test_a_temporal_that_knows_no_task_is_not_believed(client: Client, redis: Redis) -> None:
    """A gateway with the namespace of another Everloop must not fail all open tasks."""
    views = TaskViews(redis)
    await created(views, *(ids := [unique("unknown") for _ in range(3)]))
    sweep = services(client, views).sweep
    for _ in range(3):
        await sweep.reconcile_open()
    assert {await views.state(task_id) for task_id in ids} == {TaskState.SUBMITTED}


async def test_what_the_gateway_notices_is_a_metric(tmp_path: Path, redis_url: str) -> None:
    """A stuck task is a warning, a log line and a metric; a settled one is a metric with its state.

    They are sent together with those of the Temporal SDK.
    """
    redis_url = redis_url.replace("/0", "/3")  # this gateway would settle what other tests have left open
    async with (
        running_temporal(tmp_path, [REPORT_PROBLEMS]) as (_, address),
        connect_redis(redis_url) as redis,
    ):
        client = await Client.connect(address, data_converter=WIRE_DATA_CONVERTER)
        views, queue = TaskViews(redis), unique("stuck")
        stuck, ended = [await start(client, views, queue, prompt) for prompt in (BUG, "wait")]
        await client.get_workflow_handle(ended).terminate()
        await until_closed(client, ended)
        async with (
            defective_worker(client, queue),
            watched_gateway(tmp_path, address, redis_url) as (gateway, receiver),
        ):
            settled = await receiver.wait_for_metric("everloop.tasks.settled")
            problems = await receiver.wait_for_metric("everloop.workflow_task.problems")
            assert await receiver.wait_for_metric("temporal_request")
            assert gateway.stop() == 0
        warnings = [e.text for e in await events_of(views, stuck) if isinstance(e, Warned)]
    cause = "workflow worker unhandled failure (RuntimeError)"
    assert _points(settled) == [(1, {"state": "failed"})]
    assert _points(problems) == [(1, {"cause": cause})]
    assert warnings == [f"the task cannot go on: {cause}"]
    assert "workflow task fails again and again" in gateway.output
    assert "content of the task" not in gateway.output


def _points(metric: Metric) -> list[tuple[int, dict[str, str]]]:
    return [
        (point.as_int, {a.key: a.value.string_value for a in point.attributes})
        for point in metric.sum.data_points
        if point.as_int
    ]
