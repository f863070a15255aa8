"""What Temporal tells of the newest run of a task.

The SDK's own `describe` fails for a run that an operator has paused: it has no name for that status.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus as RawStatus
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import TypedSearchAttributes
from temporalio.converter import decode_typed_search_attributes

from everloop.workflows.contract import names
from everloop.workflows.contract.tasks import TaskState


@dataclass(frozen=True)
class RunDescription:
    """A run. A paused one counts as running. `attempt` is that of its next step, 0 where none is due.

    `state` is the last state that it reported of its task (None: none), in a status of the number `version`
    or a later one.
    """

    workflow_id: str
    run_id: str
    workflow_type: str
    status: WorkflowExecutionStatus
    is_paused: bool
    close_time: datetime | None
    attempt: int
    is_cancel_requested: bool
    search_attributes: TypedSearchAttributes

    @property
    def state(self) -> TaskState | None:
        state = self.search_attributes.get(names.TASK_STATE)
        return TaskState(state) if state else None

    @property
    def version(self) -> int:
        return self.search_attributes.get(names.TASK_VERSION, 0)

    @property
    def is_running(self) -> bool:
        return self.status is WorkflowExecutionStatus.RUNNING


async def describe(client: Client, task_id: str) -> RunDescription:
    """Describe the newest run of a task.

    Raises:
        RPCError: Temporal does not know the task, or does not answer.
    """
    described = await client.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(
            namespace=client.namespace, execution=WorkflowExecution(workflow_id=task_id)
        ),
        retry=True,
    )
    info = described.workflow_execution_info
    is_paused = info.status == RawStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
    return RunDescription(
        workflow_id=info.execution.workflow_id,
        run_id=info.execution.run_id,
        workflow_type=info.type.name,
        status=WorkflowExecutionStatus.RUNNING if is_paused else WorkflowExecutionStatus(info.status),
        is_paused=is_paused,
        close_time=info.close_time.ToDatetime(UTC) if info.HasField("close_time") else None,
        attempt=described.pending_workflow_task.attempt,
        is_cancel_requested=described.workflow_extended_info.cancel_requested,
        search_attributes=decode_typed_search_attributes(info.search_attributes),
    )
