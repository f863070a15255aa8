"""Starts tasks of schedules, and gives each the files and the webhook of its schedule.

A module of its own, like that of every port of the core.
"""

from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everloop.activities.lease import heartbeating
from everloop.activities.store_retries import AWAY
from everloop.runtime.blobs import BlobError
from everloop.stores.artifacts.artifact_errors import ArtifactMissingError
from everloop.stores.artifacts.schedule_files import ScheduleFiles
from everloop.stores.push.configs import TooManyPushConfigsError
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.quotas import LimitSettings, Quotas, Rate
from everloop.workflows.contract.calls import AdmitInput, AttachInput
from everloop.workflows.contract.failures import ATTACHMENT_LOST, FILES_UNAVAILABLE, REQUEST_LIMIT
from everloop.workflows.contract.ports import SchedulePort

LONGEST_WAIT = timedelta(minutes=1)
"""Limit of the time that a task waits for the request rate of its owner."""


class ScheduledTasks(SchedulePort):
    """Applies an owner's limits to scheduled tasks, and gives them the files and webhooks of schedules."""

    def __init__(
        self, files: ScheduleFiles, webhooks: ScheduleWebhooks, quotas: Quotas, limits: LimitSettings
    ) -> None:
        self._files = files
        self._webhooks = webhooks
        self._quotas = quotas
        self._limits = limits

    @activity.defn
    async def admit(self, call: AdmitInput) -> None:
        owner, limits = call.task.owner, self._limits
        if limits.rate and (seconds := await self._quotas.take_request(owner, limits.rate)):
            raise _too_often(limits.rate, timedelta(seconds=seconds))
        most = limits.max_open_tasks
        if most is not None and not await self._quotas.reserve_task(owner, call.task.task_id, most):
            raise ApplicationError(
                f"the owner of the schedule has {most} tasks that have not ended, and one owner may have no "
                "more: this run was left out",
                type=REQUEST_LIMIT,
                non_retryable=True,
            )

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
                    "a file of the schedule's message is lost; set the message of the schedule again",
                    type=ATTACHMENT_LOST,
                    non_retryable=True,
                ) from None
            except TooManyPushConfigsError as error:  # the client has set others since the task is listed
                activity.logger.warning("the webhook of a schedule was left out: %s", error)


def _too_often(rate: Rate, wait: timedelta) -> ApplicationError:
    waited = datetime.now(UTC) - activity.info().scheduled_time
    word = "request" if rate.per_minute == 1 else "requests"
    return ApplicationError(
        f"the owner of the schedule may send {rate.per_minute} {word} a minute, and has: this run was left "
        "out",
        type=REQUEST_LIMIT,
        non_retryable=waited + wait > LONGEST_WAIT,
        next_retry_delay=wait,
        category=ApplicationErrorCategory.BENIGN,  # nothing has failed
    )
