"""The sweep: what is noticed although nobody looks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from gateway.runs import Runs
from stores.redis_connection import connect_redis
from stores.redis_task_views import RedisTaskViews
from stores.task_views import TaskViews
from tests.gateway.silent_tasks import (
    BUG,
    defective_worker,
    events_of,
    services,
    start,
    until_closed,
    view_of,
)
from tests.gateway.stage import running_gateway, unique
from tests.gateway.test_process import gateway_process
from tests.support.otlp_receiver import OtlpReceiver, running_otlp_receiver
from tests.support.processes import ServerProcess, running_temporal
from workflows.contract.events import StatusChanged, Warned
from workflows.contract.names import child_task_id
from workflows.contract.tasks import TaskState

REPORT_PROBLEMS = "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute=2"


async def test_a_terminated_task_that_nobody_looks_at_is_settled_once(
    client: Client, views: TaskViews
) -> None:
    """Gateways that sweep at the same time, and again, publish one last status."""
    task_id = await start(client, views, unique("nobody"))
    await client.get_workflow_handle(task_id).terminate()
    await until_closed(client, task_id)
    gateways = [services(client, views) for _ in range(3)]

    for _ in range(2):
        await asyncio.gather(*(gateway.sweep.settle_ended() for gateway in gateways))

    statuses = [e.state for e in await events_of(views, task_id) if isinstance(e, StatusChanged)]
    assert statuses == [TaskState.FAILED]


async def test_a_gateway_sweeps_by_itself(client: Client, views: TaskViews) -> None:
    """It is started and not asked for anything."""
    task_id = await start(client, views, unique("nobody"))
    await client.get_workflow_handle(task_id).terminate()
    await until_closed(client, task_id)

    async with running_gateway(client, views, queue=unique("sweep")):
        while not (await view_of(views, task_id)).status.state.is_terminal:  # noqa: ASYNC110 -- a fact of a server
            await asyncio.sleep(0.01)


async def test_a_task_that_was_reset_goes_on(client: Client, views: TaskViews) -> None:
    """Its terminated run is found, and its newest run is alive."""
    queue = unique("reset")
    async with defective_worker(client, queue):
        task_id = await start(client, views, queue)
        await _first_step_is_done(client, task_id)
        await _reset(client, task_id)
        await until_closed(client, task_id)
        gateway = services(client, views, queue=queue)
        found = [id_ async for id_ in gateway.runs.ended_unsaid(datetime.now(UTC) - timedelta(hours=1))]
        await gateway.sweep.settle_ended()

    assert task_id in found
    assert (await view_of(views, task_id)).status.state is TaskState.SUBMITTED
    await client.get_workflow_handle(task_id).terminate()


async def _first_step_is_done(client: Client, task_id: str) -> None:
    async for event in client.get_workflow_handle(task_id).fetch_history_events(wait_new_event=True):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return


async def _reset(client: Client, task_id: str) -> None:
    """Go back to the first step, as an operator does in the Temporal UI."""
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=task_id),
            workflow_task_finish_event_id=4,
            request_id=unique("reset"),
            reason="once more",
        )
    )


async def test_tasks_of_sub_agents_are_left_to_their_parents(client: Client, views: TaskViews) -> None:
    """They have no view of their own, and their parent hears of their end."""
    child_id = child_task_id(unique("parent"), "call_1")
    await start(client, views, unique("nobody"), task_id=child_id)
    await client.get_workflow_handle(child_id).terminate()
    await until_closed(client, child_id)

    found = [id_ async for id_ in Runs(client).ended_unsaid(datetime.now(UTC) - timedelta(hours=1))]

    assert child_id not in found


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


async def test_what_the_gateway_notices_is_a_metric(tmp_path: Path, redis_url: str) -> None:
    """A stuck task is a warning, a log line and a metric; a settled one is a metric with its state."""
    async with (
        running_temporal(tmp_path, [REPORT_PROBLEMS]) as (_, address),
        connect_redis(redis_url) as redis,
    ):
        client = await Client.connect(address, data_converter=pydantic_data_converter)
        views, queue = RedisTaskViews(redis), unique("stuck")
        stuck, ended = [await start(client, views, queue, prompt) for prompt in (BUG, "wait")]
        await client.get_workflow_handle(ended).terminate()
        await until_closed(client, ended)
        async with (
            defective_worker(client, queue),
            watched_gateway(tmp_path, address, redis_url) as (gateway, receiver),
        ):
            settled = await receiver.wait_for_metric("everloop.tasks.settled")
            problems = await receiver.wait_for_metric("everloop.workflow_task.problems")
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
    ]
