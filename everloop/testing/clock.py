"""Letting time pass at once, for limits, deadlines and pauses of tasks, by Temporal's own time skipping."""

import asyncio
from datetime import timedelta
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import FastForwardConfig, TimeSkippingConfig, WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from everloop.testing.errors import TaskError

PATIENCE = 10.0
"""Seconds that a task gets to finish what it does just now, during which no time can be skipped."""

_LOOK = 0.02
_QUIET_LOOKS = 5
"""So often nothing has happened, when what fell due has been done: a timer fires a moment after its time."""


async def skip_time(client: Client, task_ids: set[str], duration: timedelta) -> None:
    """Let so much time pass for these tasks, and for those of their sub-agents; what falls due happens.

    Raises:
        TaskError: one is busy with a model or a tool: what they do takes real time.
    """
    await asyncio.gather(
        *(_skip(client.get_workflow_handle(task_id), client, duration) for task_id in task_ids)
    )


async def _skip(handle: WorkflowHandle[object, object], client: Client, duration: timedelta) -> None:
    length, name = Duration(), str(uuid4())
    length.FromTimedelta(duration)
    ahead = FastForwardConfig(id=name, duration=length)
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id),
        workflow_execution_options=WorkflowExecutionOptions(
            time_skipping_config=TimeSkippingConfig(enabled=True, fast_forward_config=ahead)
        ),
        update_mask=FieldMask(paths=["time_skipping_config"]),
    )
    described = (await handle.describe()).raw_description
    children = [child.workflow_id for child in described.pending_children]
    try:
        await client.workflow_service.update_workflow_execution_options(request)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:  # it has ended
            return
        raise
    await asyncio.gather(
        _arrived(handle), *(_skip(client.get_workflow_handle(i), client, duration) for i in children)
    )


async def _arrived(handle: WorkflowHandle[object, object]) -> None:
    """Wait until the time is over, and what fell due by then has been done."""
    is_there, steps, quiet = False, 0, 0
    try:
        async with asyncio.timeout(PATIENCE):
            while quiet < _QUIET_LOOKS:
                described = await handle.describe()
                raw = described.raw_description
                is_there = not raw.workflow_extended_info.time_skipping_info.effective_config.enabled
                if described.status is not WorkflowExecutionStatus.RUNNING:
                    return
                is_busy = bool(raw.HasField("pending_workflow_task") or raw.pending_activities)
                is_quiet = is_there and not is_busy and steps == described.history_length
                quiet, steps = (quiet + 1 if is_quiet else 0), described.history_length
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        if is_there:  # what fell due takes its time
            return
        raise TaskError(
            f"no time can be skipped in task {handle.id} while it calls a model, a tool or a sub-agent that "
            f"works: that took longer than {PATIENCE:g} s. Skip when it waits for an answer or for its time"
        ) from None
