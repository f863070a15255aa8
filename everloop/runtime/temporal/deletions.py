"""Deletion workflows, one at a time for each target."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import WorkflowExecutionStatus as RawStatus
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from everloop.runtime.temporal.describe import describe_raw, is_not_found
from everloop.workflows.contract.deletion_payloads import (
    DELETION_WORKFLOW_TYPE,
    OF,
    REMOVED,
    DeletionInput,
    DeletionKind,
    DeletionTarget,
    RemovedCounts,
)
from everloop.workflows.contract.names import derive_deletion_id

BEGAN = "began"
"""Memo key: the time of the request. A long deletion consists of several runs."""

_RPC_TIMEOUT = timedelta(seconds=10)

RUNNING = "running"

_STATES = {
    RawStatus.WORKFLOW_EXECUTION_STATUS_RUNNING: RUNNING,
    RawStatus.WORKFLOW_EXECUTION_STATUS_PAUSED: RUNNING,
    RawStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: RUNNING,
    RawStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED: "done",
}
"""All other statuses mean failed."""


@dataclass(frozen=True)
class KnownDeletion:
    """State of a deletion: running, done or failed."""

    id: str
    target: DeletionTarget
    state: str
    began_at: datetime
    ended_at: datetime | None
    removed: RemovedCounts


def deletion_id(target: DeletionTarget) -> str:
    """Return the id of a target's deletion; a task has one per kind, in whatever context.

    A deletion that may stop early and a requested one have different ids.
    """
    is_task = target.kind is DeletionKind.TASK
    ids = [target.id] if is_task else [target.context_id, target.id]
    ids += ["if over"] if target.if_over else []
    return derive_deletion_id(target.owner, target.kind, *ids)


class Deletions:
    """Starts and finds deletions by id. A request for a running one returns it.

    All methods raise RPCError if Temporal does not answer.
    """

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def start(self, target: DeletionTarget) -> str:
        """Start a deletion unless one is running; return its id."""
        id_ = deletion_id(target)
        await self._client.start_workflow(
            DELETION_WORKFLOW_TYPE,
            DeletionInput(target=target),
            id=id_,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo={OF: target, BEGAN: datetime.now(UTC).isoformat(), REMOVED: RemovedCounts()},
            static_summary=f"delete: {target.kind}",
            rpc_timeout=_RPC_TIMEOUT,
        )
        return id_

    async def find(self, id_: str) -> KnownDeletion | None:
        """Return the state of the last deletion of this id; None if Temporal has none."""
        try:
            described = await describe_raw(self._client, id_, rpc_timeout=_RPC_TIMEOUT)
        except RPCError as error:
            if is_not_found(error):
                return None
            raise
        info = described.workflow_execution_info
        if info.type.name != DELETION_WORKFLOW_TYPE:
            return None
        memo, kinds = info.memo.fields, {OF: DeletionTarget, BEGAN: str, REMOVED: RemovedCounts}
        target, began, removed = await self._client.data_converter.decode(
            [memo[name] for name in kinds], list(kinds.values())
        )
        return KnownDeletion(
            id=id_,
            target=target,
            state=_STATES.get(info.status, "failed"),
            began_at=datetime.fromisoformat(began),
            ended_at=info.close_time.ToDatetime(UTC) if info.HasField("close_time") else None,
            removed=removed,
        )
