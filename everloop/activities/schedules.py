"""Gives each task of a schedule, as it begins, what the schedule keeps for its tasks.

It has a module of its own as every port of the core has.
"""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.lease import heartbeating
from everloop.activities.retries import AWAY
from everloop.runtime.blobs import BlobError
from everloop.stores.artifacts.errors import ArtifactMissingError
from everloop.stores.artifacts.schedule_files import ScheduleFiles
from everloop.stores.push.configs import TooManyPushConfigsError
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.workflows.contract.calls import AttachInput
from everloop.workflows.contract.failures import ATTACHMENT_LOST, FILES_UNAVAILABLE
from everloop.workflows.contract.ports import SchedulePort

# A module of its own, though it is short: nothing else of a task has to do with schedules.


class ScheduledTasks(SchedulePort):
    """Copies files and webhooks of schedules to their tasks."""

    def __init__(self, files: ScheduleFiles, webhooks: ScheduleWebhooks) -> None:
        self._files = files
        self._webhooks = webhooks

    @activity.defn
    async def attach(self, call: AttachInput) -> None:
        task = call.task
        async with heartbeating():
            try:
                named = task.task_id, task.context_id
                await self._files.hand_out(task.owner, call.schedule, named, call.files)
                await self._webhooks.hand_out(call.schedule, *named)
            except AWAY as error:
                raise ApplicationError(
                    f"the store of the schedule's files does not answer: {type(error).__name__}",
                    type=FILES_UNAVAILABLE,
                ) from None
            except (ArtifactMissingError, BlobError):
                raise ApplicationError(
                    "a file of the schedule's message is lost; give the schedule its message anew",
                    type=ATTACHMENT_LOST,
                    non_retryable=True,
                ) from None
            except TooManyPushConfigsError as error:  # its client has set as many, since it was shown
                activity.logger.warning("the webhook of a schedule was left out: %s", error)
