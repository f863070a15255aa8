"""Publishes what the workflow itself has to say."""

from temporalio import activity

from stores.task_views import TaskViews
from workflows.contract.calls import PublishInput
from workflows.contract.ports import PublishPort


class ViewPublisher(PublishPort):
    """Writes to the views and streams that gateways read."""

    def __init__(self, views: TaskViews) -> None:
        self._views = views

    @activity.defn
    async def publish(self, call: PublishInput) -> None:
        await self._views.publish(call.task.task_id, call.task.run_id, call.events)
