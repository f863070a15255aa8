"""Tasks that publish nothing, and a gateway without a web server that has to notice."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from everloop.gateway.context import Viewer
from everloop.gateway.settings import Stores
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.snapshots import Snapshots
from everloop.gateway.tasks.sweep import Sweep
from everloop.gateway.tasks.task_workflows import Tasks, submitted_view
from everloop.gateway.tasks.workflow_runs import Runs
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import TaskInput, TaskResult, TaskState, TaskView
from tests.gateway.harness import task_input, unique
from tests.support.stores import stores_of

OWNER = "owner"
VIEWER = Viewer(OWNER, "staged")
BUG, NAMED, UNNAMED, TIMEOUT = "bug", "named", "unnamed", "time out"


@workflow.defn(name=names.WORKFLOW_TYPE, sandboxed=False)
class DefectiveTask:
    """Fails as its prompt says, without publishing anything; `view` returns its beginning."""

    @workflow.init
    def __init__(self, task: TaskInput) -> None:
        self._view = submitted_view(workflow.info().workflow_id, task)

    @workflow.query
    def view(self) -> TaskView:
        """The whole task."""
        return self._view

    @workflow.run
    async def run(self, task: TaskInput) -> TaskResult | None:
        match task.message.parts[0]:
            case TextPart(text="bug"):
                raise RuntimeError("content of the task")
            case TextPart(text="named"):
                raise ApplicationError("no such model", type=failures.MODEL_REFUSED)
            case TextPart(text="unnamed"):
                raise ApplicationError("content of the task", type="ValueError")
            case _:
                await workflow.wait_condition(lambda: False)
        return None


@asynccontextmanager
async def defective_worker(client: Client, queue: str) -> AsyncGenerator[None]:
    """Run the defective workflow on a queue."""
    async with Worker(client, task_queue=queue, build_id="test", workflows=[DefectiveTask]):
        yield


@dataclass(frozen=True)
class Services:
    """The services of a gateway, wired as in `everloop.gateway.app`."""

    stores: Stores
    runs: Runs
    reconciler: Reconciler
    snapshots: Snapshots
    sweep: Sweep


def services(  # noqa: PLR0913 -- what a test may set, each by its name
    client: Client,
    views: TaskViews,
    *,
    queue: str = "none",
    pause: float = 0.0,
    runs: Runs | None = None,
    artifacts: Artifacts | None = None,
) -> Services:
    """Wire a gateway that queries a task at every call, unless there is a pause."""
    runs, stores = runs or Runs(client), stores_of(views, artifacts)
    tasks = Tasks(client, queue)
    reconciler = Reconciler(stores, tasks, runs, pause=pause)
    snapshots = Snapshots(stores, tasks, reconciler)
    return Services(stores, runs, reconciler, snapshots, Sweep(views, runs, reconciler))


async def start(
    client: Client, views: TaskViews, queue: str, prompt: str = "wait", *, task_id: str = ""
) -> str:
    """Start a task as a gateway does, and return its id; a step that fails is tried again after a second."""
    task_id = task_id or unique("silent")
    task = task_input(prompt, owner=OWNER)
    state = SearchAttributePair(names.TASK_STATE, TaskState.SUBMITTED)
    await client.start_workflow(
        names.WORKFLOW_TYPE,
        task,
        id=task_id,
        task_queue=queue,
        search_attributes=TypedSearchAttributes([state]),
        run_timeout=timedelta(seconds=1) if prompt == TIMEOUT else None,
        task_timeout=timedelta(seconds=1),
    )
    await views.create(submitted_view(task_id, task))
    return task_id


async def view_of(views: TaskViews, task_id: str) -> TaskView:
    snapshot = await views.load(task_id)
    assert snapshot
    return snapshot.view


async def events_of(views: TaskViews, task_id: str) -> list[TaskEvent]:
    """Return all events that subscribers of a task got."""
    return [streamed.event for streamed in await views.read({task_id: START}, wait=0)]


async def until_closed(client: Client, task_id: str) -> None:
    """Wait until visibility shows that the task's run is over."""
    query = f"WorkflowId = '{task_id}' AND ExecutionStatus != 'Running'"
    while not (await client.count_workflows(query)).count:  # noqa: ASYNC110 -- a fact of a server, no event
        await asyncio.sleep(0.05)


async def reset(client: Client, task_id: str, *, to_before: "EventType.ValueType | None" = None) -> None:
    """Reset a task to its last completed step, as an operator does, also after its end.

    With `to_before`: to the last step before the one in which such an event came, which does not come again.
    """
    events = (await client.get_workflow_handle(task_id).fetch_history()).events
    done = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    steps = [event.event_id for event in events if event.event_type == done]
    if to_before is not None:
        (last, *_) = (event.event_id for event in events if event.event_type == to_before)
        steps = [step for step in steps if step < last][:-1]
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=task_id),
            workflow_task_finish_event_id=steps[-1],
            reset_reapply_exclude_types=[ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE],
            request_id=unique("reset"),
            reason="once more",
        )
    )


async def delete(client: Client, task_id: str) -> None:
    """Delete a workflow, as an operator can, and wait until it is gone."""
    execution = WorkflowExecution(workflow_id=task_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    await client.workflow_service.delete_workflow_execution(request)
    while await _exists(client, task_id):  # noqa: ASYNC110 -- a fact of a server, no event
        await asyncio.sleep(0.05)


async def _exists(client: Client, task_id: str) -> bool:
    try:
        await client.get_workflow_handle(task_id).describe()
    except RPCError:
        return False
    return True
