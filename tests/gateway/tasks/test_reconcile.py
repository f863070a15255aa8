"""Tasks whose run an operator or a defect ended: reports to clients."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, TaskState
from temporalio.client import Client

from everloop.gateway.tasks.fanout import EventFanout
from everloop.gateway.tasks.workflow_runs import Alive, RunEnd, Runs, StuckRun
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import REASON, Warned
from everloop.workflows.contract.messages import text_of
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import running_gateway, stand_in_worker, unique
from tests.gateway.tasks.silent_tasks import (
    BUG,
    NAMED,
    TIMEOUT,
    UNNAMED,
    VIEWER,
    Services,
    defective_worker,
    delete,
    events_of,
    services,
    start,
    until_closed,
    view_of,
)
from tests.support.a2a_client import connected, request, send
from tests.support.rigs.operator import until

End = Callable[[Client, str], Awaitable[None]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def defective(client: Client) -> AsyncGenerator[str]:
    """The queue of a worker whose tasks fail as their prompts say."""
    queue = unique("defective")
    async with defective_worker(client, queue):
        yield queue


async def terminate(client: Client, task_id: str) -> None:
    await client.get_workflow_handle(task_id).terminate(reason="it was too dear")


async def terminate_wordlessly(client: Client, task_id: str) -> None:
    await client.get_workflow_handle(task_id).terminate()


@dataclass(frozen=True)
class Case:
    """The end of a task, and the text about it."""

    prompt: str
    end: End
    reason: str
    failure: str | None = None


def _reason_of(case: Case) -> str:
    return case.reason


@pytest.mark.parametrize(
    "case",
    [
        Case("wait", terminate, "the task was terminated: it was too dear"),
        Case("wait", terminate_wordlessly, "the task was terminated"),
        Case("wait", delete, "the workflow of the task no longer exists"),
        Case(TIMEOUT, until_closed, "the task ran out of time"),
        Case(NAMED, until_closed, "no such model", failures.MODEL_REFUSED),
        Case(UNNAMED, until_closed, "an error in the workflow's code (ValueError)"),
    ],
    ids=_reason_of,
)
async def test_clients_are_told_why_the_task_ended(
    client: Client, views: TaskViews, defective: str, case: Case
) -> None:
    """The operator's reason and the messages of our own failures are shown; those of other errors are not."""
    gateway = services(client, views, queue=defective)
    task_id = await start(client, views, defective, case.prompt)
    await gateway.stores.secrets.put(task_id, "message", "s3cret")
    await gateway.stores.secrets.accept(task_id, "message", "token")
    await case.end(client, task_id)
    await gateway.reconciler.reconcile(task_id)
    status = (await view_of(views, task_id)).status
    assert status.state is State.FAILED
    assert status.message
    assert text_of(status.message.parts) == case.reason
    assert status.message.metadata.get(REASON) == case.failure
    assert await gateway.stores.secrets.get(task_id, "token") is None


@pytest.mark.parametrize("method", ["GetTask", "ListTasks"])
async def test_who_looks_at_a_silent_task_hears_that_it_has_ended(
    client: Client, views: TaskViews, method: str
) -> None:
    """Without subscribers, a client that reads or lists it again after the next sweep finds the end."""
    queue = unique("looked-at")
    async with (
        stand_in_worker(client, queue),
        running_gateway(client, views, queue=queue, fanout=EventFanout(views, idle_check=0.05)) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(unique("silent"), return_immediately=True))
        await delete(client, task.id)  # a sweep finds it only because it was read
        shown = task
        while shown.status.state != TaskState.TASK_STATE_FAILED:
            if method == "GetTask":
                shown = await a2a.get_task(GetTaskRequest(id=task.id))
            else:
                (shown,) = (await a2a.list_tasks(ListTasksRequest(context_id=task.context_id))).tasks


async def test_who_reads_a_silent_task_waits_for_nobody_but_redis(client: Client, views: TaskViews) -> None:
    """The sweep queries Temporal for all tasks that were read.

    Only a change of the task waits for Temporal.
    """
    runs = CountingRuns(client)
    gateway = services(client, views, runs=runs)
    task_id = await start(client, views, unique("nobody"))
    snapshot = await gateway.snapshots.take(task_id, VIEWER)
    assert runs.asked == 0
    runs.gate.set()
    await client.get_workflow_handle(task_id).terminate()
    # One look waits for Temporal a short time only.
    await until(
        lambda: gateway.snapshots.revived(snapshot), does=lambda seen: seen.view.status.state is State.FAILED
    )


async def checked(gateway: Services, task_id: str) -> None:
    """Wait until the gateway has the result of a task."""
    if check := gateway.reconciler.check_soon(task_id):
        await check


class CountingRuns(Runs):
    """Counts the queries to Temporal; `gate` delays the answers."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.asked = 0
        self.gate = asyncio.Event()

    async def state(self, task_id: str) -> RunEnd | StuckRun | Alive:
        self.asked += 1
        await self.gate.wait()
        return await super().state(task_id)


async def test_temporal_is_asked_once_for_all_who_want_to_know(client: Client, views: TaskViews) -> None:
    """Concurrent callers, and later ones for a while, share one query; another task has its own."""
    runs = CountingRuns(client)
    gateway = services(client, views, runs=runs, pause=60)
    one, other = [await start(client, views, unique("nobody")) for _ in range(2)]
    checks = {gateway.reconciler.check_soon(one) for _ in range(10)}
    runs.gate.set()
    (check,) = checks
    assert check
    await check
    assert gateway.reconciler.check_soon(one) is None
    assert runs.asked == 1
    await checked(gateway, other)
    assert runs.asked == 2


async def test_a_look_at_a_stuck_task_warns_its_subscribers_once(
    client: Client, views: TaskViews, defective: str
) -> None:
    """Without problem reports of the server: the warning has the error's type, not its text."""
    gateways = [services(client, views, queue=defective) for _ in range(2)]
    task_id = await start(client, views, defective, BUG)
    warnings: list[str] = []
    while not warnings:
        await checked(gateways[0], task_id)
        warnings = [e.text for e in await events_of(views, task_id) if isinstance(e, Warned)]
    await checked(gateways[0], task_id)
    await checked(gateways[1], task_id)
    warnings = [e.text for e in await events_of(views, task_id) if isinstance(e, Warned)]
    assert warnings == ["the task cannot go on: workflow worker unhandled failure (RuntimeError)"]
    await terminate(client, task_id)
