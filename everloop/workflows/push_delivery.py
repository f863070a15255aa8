"""Notifications of one client about one task, in order, for the lifetime of the task."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from everloop.workflows.contract import names
from everloop.workflows.contract.calls import PushRef
from everloop.workflows.contract.ports import PushPort

FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=5), timedelta(hours=1)
"""Pause without a signal until the task is checked, doubled each time: the first, and the longest."""

_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=10)
)


@workflow.defn(name=names.PUSH_WORKFLOW_TYPE)
class PushDelivery:
    """Sends unacknowledged statuses to a client, and waits for more, until the task has ended.

    It holds neither webhook nor content: these stay in the stores, with the client's acknowledged
    position. The activity is retried for ever, and skips a notification that was not accepted for a
    day.
    """

    @workflow.init
    def __init__(self, push: PushRef) -> None:
        self._has_news = False

    @workflow.run
    async def run(self, push: PushRef) -> None:
        pause = FIRST_PAUSE
        while True:
            self._has_news = False
            result = await workflow.execute_activity_method(
                PushPort.deliver_push,
                push,
                task_queue=names.task_queue_of(names.PUSH_QUEUE, workflow.info().task_queue),
                start_to_close_timeout=timedelta(seconds=30),
                retry_policy=_RETRIES,
                summary="next notification",
            )
            if result.done and not self._has_news:
                return
            if result.delivered or result.done or await self._news_within(pause):
                pause = FIRST_PAUSE
            else:
                pause = min(pause * 2, LONGEST_PAUSE)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(push)

    @workflow.signal(name=names.PUSH_NEWS)
    def news(self) -> None:
        """Wake up: the task has a new status."""
        self._has_news = True

    async def _news_within(self, pause: timedelta) -> bool:
        try:
            await workflow.wait_condition(lambda: self._has_news, timeout=pause)
        except TimeoutError:
            return False
        return True
