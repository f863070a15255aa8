"""Where work has to wait: owners get equal parts of it, agents may go first, and kinds have queues."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from temporalio.client import Client

from tests.support.fake_ports import TASK_WORK, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import start_workflow, unique_queue, user
from worker import WorkerSettings, build_workers, running_workers
from workflows.contract import names
from workflows.contract.tasks import AgentSpec, TaskInput, ToolSpec

CROWD = 40
"""Tasks of one owner that wait when another owner's one comes."""


async def _start(
    client: Client, queue: str, owner: str, priority: int | None = None, *, splits: bool = False
) -> str:
    """Start a task as the gateway does, and return its id."""
    task = TaskInput(
        context_id="context",
        owner=owner,
        agent=AgentSpec(id="agent", priority=priority),
        message=user("Hello"),
        created_at=datetime.now(UTC),
        splits_queues=splits,
    )
    task_id = f"{queue}-{uuid4()}"
    place = names.place_in_queues(owner, priority)
    await client.start_workflow(names.WORKFLOW_TYPE, task, id=task_id, task_queue=queue, priority=place)
    return task_id


async def _served(client: Client, queue: str, task_ids: Sequence[str]) -> list[str]:
    """Let one call run at a time until all tasks have ended; return the tasks in the order of their calls."""
    ports = FakePorts(ScriptedModel(*[answer("done")] * len(task_ids)))
    settings = WorkerSettings(task_queue=queue, max_concurrent_activities=1, shutdown_grace=0)
    async with running_workers(client, ports.wired(), settings, TASK_WORK):
        for task_id in task_ids:
            await client.get_workflow_handle(task_id).result()
    return [call.task.task_id for call in ports.model.calls]


async def test_many_tasks_of_one_owner_do_not_keep_another_owners_one_waiting(client: Client) -> None:
    """It does not wait for all of those that came before it."""
    queue = unique_queue()
    crowd = [await _start(client, queue, "busy") for _ in range(CROWD)]
    single = await _start(client, queue, "modest")

    order = await _served(client, queue, [*crowd, single])

    assert len(order) == CROWD + 1
    assert order.index(single) < CROWD * 3 / 4


async def test_an_agent_with_priority_goes_first(client: Client) -> None:
    """Also where it came last, and has the same owner."""
    queue = unique_queue()
    crowd = [await _start(client, queue, "owner") for _ in range(CROWD)]
    urgent = await _start(client, queue, "owner", priority=1)

    order = await _served(client, queue, [*crowd, urgent])

    assert order.index(urgent) < CROWD * 3 / 4


@pytest.mark.parametrize("splits", [False, True], ids=["together", "apart"])
async def test_kinds_of_work_wait_together_or_apart(client: Client, *, splits: bool) -> None:
    """As the gateway said when the task began; the calls of a named queue wait there in any case."""
    queue, gpu = unique_queue(), unique_queue()
    spec = AgentSpec(id="agent", tools={"paint": ToolSpec(task_queue=gpu), "add": ToolSpec()})
    ports = FakePorts(ScriptedModel(asks(("c1", "paint")), asks(("c2", "add")), answer("done")))
    changes = {"splits_queues": splits}
    handle = await start_workflow(client, queue, spec, changes=changes)

    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue), [*TASK_WORK, gpu]):
        await handle.result()

    scheduled = [
        event.activity_task_scheduled_event_attributes
        async for event in handle.fetch_history_events()
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    waited = [(call.activity_type.name, call.task_queue.name) for call in scheduled]
    model, tools = (f"{queue}-model", f"{queue}-tools") if splits else (queue, queue)
    assert [where for what, where in waited if what == "call_model"] == [model] * 3
    assert [where for what, where in waited if what == "run_tool"] == [gpu, tools]
    assert {where for what, where in waited if what not in {"call_model", "run_tool"}} == {queue}


async def test_a_queue_has_a_rate(client: Client) -> None:
    """By kind or by name; Temporal holds all workers of the queue to it, so it is part of what each asks."""
    settings = WorkerSettings(task_queue=unique_queue(), queue_rates={"model": 5, "gpu": 0.5})

    workers = build_workers(client, FakePorts(ScriptedModel()).wired(), settings, [*TASK_WORK, "gpu"])
    configs = [worker.config(active_config=True) for worker in workers]

    assert {
        str(config.get("task_queue")).removeprefix(settings.task_queue): config.get(
            "max_task_queue_activities_per_second"
        )
        for config in configs
    } == {"": None, "-model": 5, "-tools": None, "gpu": 0.5}
