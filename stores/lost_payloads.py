"""The end of workflows that cannot go on because a payload in their history is lost."""

from datetime import timedelta

import structlog
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

CALL_TIMEOUT = timedelta(seconds=3)
"""For each call; the first ones decide within the time of a workflow task (10 s)."""

_READ_IN_A_REPLAY = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
        EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_MARKER_RECORDED,
    }
)
"""Events whose payloads a workflow reads; those that it sent itself it makes anew."""

_log = structlog.get_logger()


class LostPayloads:
    """What a worker does when a payload is lost for good. Set `client` once it is connected.

    The SDK makes the workflow fail if it reads the payload for the first time. In a replay Temporal refuses
    that end, because history goes on differently, and repeats the workflow task for ever. So a workflow whose
    workflow task failed before, and which has to read this payload in each replay, is terminated.
    """

    def __init__(self) -> None:
        self.client: Client | None = None

    async def report(self, workflow_id: str, key: str, reason: str) -> None:
        """Terminate the workflow that cannot go on without the blob `key`: this one, or its parent.

        The SDK does not tell which run reads. It may be an older one, for a query, or the parent, for the
        result of a child. A failure to do so is logged only: the next workflow task comes here again.
        """
        if not self.client:
            return
        for stuck_id in {workflow_id, workflow_id.rpartition("/")[0] or workflow_id}:
            try:
                await _end_if_stuck(self.client, stuck_id, key, reason)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended meanwhile
                    _log.warning(
                        "a task without its payload was not ended", task_id=stuck_id, error=str(error)
                    )


async def _end_if_stuck(client: Client, workflow_id: str, key: str, reason: str) -> None:
    newest = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=CALL_TIMEOUT)
    if newest.raw_description.pending_workflow_task.attempt <= 1:
        return
    # Of this run only: one that begins meanwhile is another matter.
    run = client.get_workflow_handle(workflow_id, run_id=newest.run_id)
    if await _reads(run, key.encode()):
        await run.terminate(reason=reason, rpc_timeout=CALL_TIMEOUT)
        _log.error("task terminated: its payload is lost", task_id=workflow_id, reason=reason)


async def _reads(run: WorkflowHandle[object, object], key: bytes) -> bool:
    """Whether a replay of this run has to read the blob."""
    async for event in run.fetch_history_events(rpc_timeout=CALL_TIMEOUT):
        if event.event_type in _READ_IN_A_REPLAY and key in event.SerializeToString():
            return True
    return False
