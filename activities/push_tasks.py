"""What the workflows of tasks say of them, where the store of views may have lost it."""

import asyncio

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.temporal.failures import says_workflow_unknown
from everloop.stores.artifacts.interface import Artifacts
from everloop.stores.artifacts.shown import with_artifacts
from everloop.stores.views.interface import MAX_TASK_BYTES
from everloop.workflows.contract.push import TASK_UNREADABLE
from everloop.workflows.contract.tasks import TaskView

RPC_TIMEOUT = 5.0


class TaskWorkflows:
    """Asks Temporal about tasks; changes nothing. A view has room for `max_bytes` of what a task put out."""

    def __init__(self, client: Client, artifacts: Artifacts, max_bytes: int = MAX_TASK_BYTES) -> None:
        self._client = client
        self._artifacts = artifacts
        self._max_bytes = max_bytes

    async def view(self, task_id: str) -> TaskView | None:
        """Return the whole view of a task, None if there is no such workflow.

        Raises:
            ApplicationError: `TaskUnreadable`.
        """
        handle = self._client.get_workflow_handle(task_id)
        try:
            async with asyncio.timeout(RPC_TIMEOUT):
                view = await handle.query("view", result_type=TaskView)
            return await with_artifacts(view, self._artifacts, self._max_bytes)
        except RPCError as error:
            if says_workflow_unknown(error):
                return None
            raise _unreadable(error) from None
        except (TimeoutError, WorkflowQueryFailedError, BlobsUnavailableError, ValueError) as error:
            # ValueError: the SDK has no name for the status of a paused run.
            raise _unreadable(error) from None


def _unreadable(error: Exception) -> ApplicationError:
    return ApplicationError(f"the task cannot be read now ({type(error).__name__})", type=TASK_UNREADABLE)
