"""Descriptions of workflows and of the namespace, and the meaning of Temporal's errors.

The SDK's own `describe` fails for a run that an operator has paused: it has no name for that status.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.enums.v1 import WorkflowExecutionStatus as RawStatus
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure, NotFoundFailure
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
)
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import TypedSearchAttributes
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from everloop.workflows.contract import names
from everloop.workflows.contract.tasks import TaskState

UNAVAILABLE = frozenset(
    {
        RPCStatusCode.CANCELLED,
        RPCStatusCode.UNKNOWN,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.OUT_OF_RANGE,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DATA_LOSS,
    }
)
"""Statuses that the SDK retries for a while, and that of a timeout."""


def is_unavailable(error: RPCError) -> bool:
    """Return True if Temporal cannot answer now.

    A server with a slow database, for instance after a pause, briefly reports that the namespace does
    not exist, although it did when this process started.
    """
    return error.status in UNAVAILABLE or _has_detail(error, NamespaceNotFoundFailure)


def is_not_found(error: RPCError) -> bool:
    """Return True if no such workflow exists or runs; proxies use NOT_FOUND for other reasons."""
    is_meant = _has_detail(error, NotFoundFailure) and not _has_detail(error, NamespaceNotFoundFailure)
    return error.status is RPCStatusCode.NOT_FOUND and is_meant


def _has_detail(error: RPCError, kind: type[NotFoundFailure | NamespaceNotFoundFailure]) -> bool:
    names_given = (each.type_url.rpartition("/")[2] for each in error.grpc_status.details)
    return kind.DESCRIPTOR.full_name in names_given


@dataclass(frozen=True)
class RunDescription:
    """A run. A paused one counts as running. `attempt` is that of its next step, 0 without a pending one.

    `state` is the last task state it reported (None: none), in a status of the number `version` or a
    later one.
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
    cancelled_calls: frozenset[str] = frozenset()
    """Ids of activities whose cancellation is requested and that are still running."""

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


async def describe(client: Client, task_id: str, *, rpc_timeout: timedelta | None = None) -> RunDescription:
    """Describe the newest run of a task; `rpc_timeout` is per attempt.

    Raises:
        RPCError: Temporal does not have the task, or does not answer.
    """
    return run_of(await describe_raw(client, task_id, rpc_timeout=rpc_timeout))


async def describe_raw(
    client: Client, task_id: str, *, rpc_timeout: timedelta | None = None
) -> DescribeWorkflowExecutionResponse:
    """Return Temporal's full description of the newest run of a task; `rpc_timeout` is per attempt.

    Raises:
        RPCError: Temporal does not have the task, or does not answer.
    """
    return await client.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(
            namespace=client.namespace, execution=WorkflowExecution(workflow_id=task_id)
        ),
        retry=True,
        timeout=rpc_timeout,
    )


def run_of(described: DescribeWorkflowExecutionResponse) -> RunDescription:
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
        cancelled_calls=frozenset(
            call.activity_id
            for call in described.pending_activities
            if call.state == PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
        ),
    )


async def find_run(client: Client, task_id: str) -> RunDescription | None:
    """Describe the newest run of a task; None if Temporal does not have it.

    Raises:
        RPCError: Temporal does not answer.
    """
    try:
        return await describe(client, task_id)
    except RPCError as error:
        if is_not_found(error):
            return None
        raise


async def namespace_id(client: Client, *, rpc_timeout: timedelta | None = None) -> str:
    """Return the id of the namespace; a recreated namespace of the same name has another one.

    Raises:
        RPCError: Temporal does not answer, or the namespace does not exist.
    """
    return (await _describe_namespace(client, rpc_timeout)).namespace_info.id


async def namespace_retention(client: Client, *, rpc_timeout: timedelta | None = None) -> timedelta:
    """Return the retention of ended workflows, in which they can be reset; raises as `namespace_id`."""
    retention = (await _describe_namespace(client, rpc_timeout)).config.workflow_execution_retention_ttl
    return retention.ToTimedelta()


async def problem_of_search_attributes(client: Client, *, rpc_timeout: timedelta | None = None) -> str:
    """Return which of our search attributes the namespace lacks, and what mends it; empty if it has all.

    Raises:
        RPCError: Temporal does not answer, or does not let us ask.
    """
    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace), timeout=rpc_timeout
    )
    there = answer.custom_attributes
    required = {key.name: key.indexed_value_type for key in names.SEARCH_ATTRIBUTES}
    types = {name: kind.name.title().replace("_", "") for name, kind in required.items()}
    wrong = [
        f"{name} ({types[name]})" for name in required if name in there and there[name] != required[name]
    ]
    if wrong:
        return (
            f"its search attributes {', '.join(wrong)} should be of these types, and are not; use another "
            "one (TEMPORAL_NAMESPACE), or remove them: `everloop temporal operator search-attribute remove`"
        )
    missing = [name for name in required if name not in there]
    if not missing:
        return ""
    made = " ".join(f"--name {name} --type {types[name]}" for name in missing)
    command = f"everloop temporal operator search-attribute create --namespace {client.namespace} {made}"
    return f"its search attributes {', '.join(missing)} are missing; make them: {command}"


async def _describe_namespace(client: Client, rpc_timeout: timedelta | None) -> DescribeNamespaceResponse:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    return await client.workflow_service.describe_namespace(
        request, retry=rpc_timeout is None, timeout=rpc_timeout
    )
