"""What became of a message whose agent decides by itself: a task, or an answer at once."""

import asyncio

from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from everloop.gateway.errors import NoWorkerError
from everloop.gateway.temporal_calls import readable, temporal_answers
from everloop.runtime.temporal.failures import says_workflow_unknown
from everloop.workflows.contract.tasks import Route, TaskResult

DECISION_TIMEOUT = 120.0
"""Seconds that a model, and the workers that ask it, may take to decide."""

_UPDATE = "wait_for_route"
_UPDATE_ID = f"everloop/{_UPDATE}"
"""The same for all who wait. Ids of clients' messages begin otherwise (`names.message_update_id`)."""


class Routes:
    """Asks the workflows, which decide once and for good."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def decided(self, task_id: str) -> Route | None:
        """Wait for the decision; None if the workflow has ended without one, or as a failed task.

        Any number of callers may wait, at any time: they hear the same.

        Raises:
            NoWorkerError: nobody has decided in time; it goes on, and can be asked again.
            TemporalUnavailableError: nobody can tell.
        """
        handle = self._client.get_workflow_handle(task_id, result_type=TaskResult)
        try:
            async with asyncio.timeout(DECISION_TIMEOUT), readable():
                return await handle.execute_update(_UPDATE, id=_UPDATE_ID, result_type=Route)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise NoWorkerError from error
        except WorkflowUpdateFailedError:
            pass  # its run ended below it
        except RPCError as error:
            if not (error.status is RPCStatusCode.FAILED_PRECONDITION or says_workflow_unknown(error)):
                async with temporal_answers():
                    raise
        try:
            async with temporal_answers(), readable():
                result = await handle.result()
                return Route(message=result.message, digest=result.digest)
        except WorkflowFailureError:
            return None
