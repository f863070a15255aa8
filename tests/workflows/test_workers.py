"""Queues of work, and their sharing by workers of several versions."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import RateLimitSource, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.worker import (
    FixedSizeSlotSupplier,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    ResourceBasedSlotConfig,
    ResourceBasedSlotSupplier,
    ResourceBasedTunerConfig,
    WorkerConfig,
)

from everloop.gateway.tasks.task_workflows import Tasks
from everloop.runtime.temporal.temporal_connection import TemporalUnreachableError
from everloop.worker import WorkerSettings, build_workers, running_workers
from everloop.workflows.contract.tasks import AgentSpec, TaskInput, ToolSpec
from tests.support.fakes.ports import TASK_WORK, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import Handle, start_workflow, unique_queue, user

CROWD = 200
"""Waiting tasks of one owner when another owner's one comes."""

AT_ONCE = 20
"""Tasks that are started together."""

SOON = 10
"""A place among all calls that does not grow with the number of waiting tasks."""


async def _start(client: Client, queue: str, owner: str, priority: int | None = None) -> str:
    """Start a task with the options of gateways, and return its id."""
    task = TaskInput(
        context_id="context",
        owner=owner,
        agent=AgentSpec(id="agent", priority=priority),
        message=user("Hello"),
        created_at=datetime.now(UTC),
    )
    task_id = f"{queue}-{uuid4()}"
    await Tasks(client, queue).start(task_id, task, summary="")
    return task_id


async def _start_crowd(client: Client, queue: str, owner: str, size: int) -> None:
    for _ in range(size // AT_ONCE):  # a gateway gives Temporal only so long to answer
        await asyncio.gather(*(_start(client, queue, owner) for _ in range(AT_ONCE)))


async def _calls_until_ended(client: Client, queue: str, task_id: str) -> list[str]:
    """Run one call at a time until this task has ended; return the tasks in the order of their calls."""
    ports = FakePorts(ScriptedModel(*[answer("done")] * (CROWD + 1)))
    settings = WorkerSettings(task_queue=queue, max_concurrent_activities=1, shutdown_grace=0)
    async with running_workers(client, ports.wired(), settings, TASK_WORK):
        await client.get_workflow_handle(task_id).result()
        return [call.task.task_id for call in ports.model.calls]


async def test_many_tasks_of_one_owner_do_not_keep_another_owners_one_waiting(client: Client) -> None:
    """It came last, and its calls and its end are among the first."""
    queue = unique_queue()
    await _start_crowd(client, queue, "busy", CROWD)
    single = await _start(client, queue, "modest")
    order = await _calls_until_ended(client, queue, single)
    assert order.index(single) < SOON
    assert len(order) < CROWD / 4


async def test_an_agent_with_priority_goes_first(client: Client) -> None:
    """Also if it came last, and has the same owner."""
    queue = unique_queue()
    await _start_crowd(client, queue, "owner", CROWD // 5)
    urgent = await _start(client, queue, "owner", priority=1)
    order = await _calls_until_ended(client, queue, urgent)
    assert order.index(urgent) < SOON


async def _waited(handle: Handle) -> list[tuple[str, str]]:
    """Return the calls in order, each with the queue on which it waited."""
    scheduled = [
        event.activity_task_scheduled_event_attributes
        async for event in handle.fetch_history_events()
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    return [(call.activity_type.name, call.task_queue.name) for call in scheduled]


@pytest.mark.parametrize(
    ("splits", "has_own"), [(False, False), (True, False), (True, True)], ids=["together", "apart", "own"]
)
async def test_kinds_of_work_wait_together_or_apart(client: Client, *, splits: bool, has_own: bool) -> None:
    """By the gateway's setting when the task began, or by the agent's queue; a tool's queue is its own."""
    queue, own, gpu = unique_queue(), unique_queue(), unique_queue()
    spec = AgentSpec(id="agent", tools={"paint": ToolSpec(task_queue=gpu), "add": ToolSpec()})
    spec = spec.model_copy(update={"task_queue": own if has_own else None})
    ports = FakePorts(ScriptedModel(asks(("c1", "paint")), asks(("c2", "add")), answer("done")))
    handle = await start_workflow(client, queue, spec, changes={"splits_queues": splits})
    settings = WorkerSettings(task_queue=queue)
    async with running_workers(client, ports.wired(), settings, [*TASK_WORK, own, gpu]):
        await handle.result()
    waited = await _waited(handle)
    model, tools = (f"{queue}-model", f"{queue}-tools") if splits else (queue, queue)
    assert [where for what, where in waited if what == "call_model"] == [own if has_own else model] * 3
    assert [where for what, where in waited if what == "run_tool"] == [gpu, own if has_own else tools]
    assert {where for what, where in waited if what not in {"call_model", "run_tool"}} == {queue}


async def test_a_queue_has_a_rate(client: Client) -> None:
    """By kind or by name; Temporal applies it to all workers of the queue together."""
    queue, gpu = unique_queue(), unique_queue()
    settings = WorkerSettings(task_queue=queue, queue_rates={"model": 50, gpu: 0.5}, shutdown_grace=0)
    ports = FakePorts(ScriptedModel()).wired()
    async with running_workers(client, ports, settings, [*TASK_WORK, gpu]), asyncio.timeout(20):
        of_models = await _rate_of_workers(client, f"{queue}-model")
        of_gpu = await _rate_of_workers(client, gpu)
    assert (of_models, of_gpu) == (50, 0.5)


async def _rate_of_workers(client: Client, queue: str) -> float:
    """Return the queue's limit on the server in calls per second, once a worker has set it."""
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        report_config=True,
    )
    while True:
        limit = (await client.workflow_service.describe_task_queue(asked)).effective_rate_limit
        if limit.rate_limit_source == RateLimitSource.RATE_LIMIT_SOURCE_WORKER:
            return limit.requests_per_second
        await asyncio.sleep(0.05)


MOST = {"": 200, "-model": 200, "-tools": 200, "-push": 100, "/gpu": 200}
"""How the name of a queue ends → calls at once."""


def _configs(client: Client, settings: WorkerSettings) -> dict[str, WorkerConfig]:
    """Return the configuration of each queue's worker, by the end of the queue's name."""
    ports = FakePorts(ScriptedModel()).wired()
    workers = build_workers(client, ports, settings, [*TASK_WORK, "push", f"{settings.task_queue}/gpu"])
    configs = [worker.config(active_config=True) for worker in workers]
    return {config.get("task_queue", "").removeprefix(settings.task_queue): config for config in configs}


def _pollers(config: WorkerConfig) -> tuple[object, object]:
    return config.get("workflow_task_poller_behavior"), config.get("activity_task_poller_behavior")


async def test_slots_are_fixed_unless_a_target_is_set(client: Client) -> None:
    """The number of calls at once is that of the settings, or fits a webhook; five open polls."""
    configs = _configs(client, WorkerSettings(task_queue=unique_queue()))
    tuners = {queue: config.get("tuner") for queue, config in configs.items()}
    slots = {queue: tuner and tuner._get_activity_task_slot_supplier() for queue, tuner in tuners.items()}
    assert slots == {queue: FixedSizeSlotSupplier(most) for queue, most in MOST.items()}
    five = PollerBehaviorSimpleMaximum(maximum=5)
    assert {_pollers(config) for config in configs.values()} == {(five, five)}


@pytest.mark.parametrize(
    ("targets", "aims"),
    [
        ({"target_cpu": 0.5}, ResourceBasedTunerConfig(target_memory_usage=0.8, target_cpu_usage=0.5)),
        ({"target_memory": 0.6}, ResourceBasedTunerConfig(target_memory_usage=0.6, target_cpu_usage=0.9)),
    ],
)
async def test_one_target_lets_the_machine_decide(
    client: Client, targets: Mapping[str, float], aims: ResourceBasedTunerConfig
) -> None:
    """From 10 slots to the fixed number, and Temporal scales the open polls."""
    configs = _configs(client, WorkerSettings.model_validate({"task_queue": unique_queue(), **targets}))
    at_once = timedelta(0)
    for queue, most in MOST.items():
        tuner = configs[queue].get("tuner")
        assert tuner
        calls, steps = ResourceBasedSlotConfig(10, most, at_once), ResourceBasedSlotConfig(10, 500, at_once)
        assert tuner._get_activity_task_slot_supplier() == ResourceBasedSlotSupplier(calls, aims)
        assert tuner._get_workflow_task_slot_supplier() == ResourceBasedSlotSupplier(steps, aims)
    scaled = PollerBehaviorAutoscaling(minimum=2, initial=5, maximum=50)
    assert {_pollers(config) for config in configs.values()} == {(scaled, scaled)}


async def test_a_worker_that_temporal_does_not_serve_says_why(client: Client) -> None:
    """Temporal is queried once more in the background; its answer does not make it a defect of the worker."""
    config = client.config()
    config["namespace"] = "nowhere"
    settings = WorkerSettings(task_queue=unique_queue())
    with pytest.raises(TemporalUnreachableError, match="Start it again when Temporal answers for 'nowhere'"):
        async with running_workers(Client(**config), FakePorts(ScriptedModel()).wired(), settings, TASK_WORK):
            await asyncio.Event().wait()
