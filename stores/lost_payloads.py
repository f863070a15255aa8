"""The end of workflows that cannot go on because a payload in their history is lost."""

from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

CALL_TIMEOUT = timedelta(seconds=3)
"""For each of two calls, well within the time of a workflow task (10 s)."""

_log = structlog.get_logger()


class LostPayloads:
    """What a worker does when a payload of a workflow is lost for good. Set `client` once it is connected.

    The SDK makes the workflow fail if it reads the payload for the first time. In a replay Temporal refuses
    that end, because history goes on differently, and repeats the workflow task for ever. So a workflow whose
    workflow task failed before is terminated, with the reason.
    """

    def __init__(self) -> None:
        self.client: Client | None = None

    async def report(self, workflow_id: str, reason: str) -> None:
        """Terminate the workflow if its workflow task was tried before; else the SDK can still end it.

        A failure to do so is logged only: the next attempt of the workflow task comes here again.
        """
        if not self.client:
            return
        try:
            await self._end_if_stuck(self.client, workflow_id, reason)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended meanwhile
                _log.warning(
                    "a task without its payload was not ended", task_id=workflow_id, error=str(error)
                )

    async def _end_if_stuck(self, client: Client, workflow_id: str, reason: str) -> None:
        handle = client.get_workflow_handle(workflow_id)
        workflow = await handle.describe(rpc_timeout=CALL_TIMEOUT)
        if workflow.raw_description.pending_workflow_task.attempt > 1:
            # Of this run only: a newer one is another matter.
            stuck = client.get_workflow_handle(workflow_id, run_id=workflow.run_id)
            await stuck.terminate(reason=reason, rpc_timeout=CALL_TIMEOUT)
            _log.error("task terminated: its payload is lost", task_id=workflow_id, reason=reason)
