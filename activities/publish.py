"""Publishes what the workflow itself has to say."""

from temporalio import activity

from stores.secrets import Secrets
from stores.task_views import TaskViews
from workflows.contract.calls import PublishInput
from workflows.contract.events import StatusChanged
from workflows.contract.ports import PublishPort


class ViewPublisher(PublishPort):
    """Writes to the views and streams that gateways read; forgets the secrets of a task that has ended."""

    def __init__(self, views: TaskViews, secrets: Secrets) -> None:
        self._views = views
        self._secrets = secrets

    @activity.defn
    async def publish(self, call: PublishInput) -> None:
        await self._views.publish(call.task.task_id, call.task.run_id, call.events)
        if any(isinstance(event, StatusChanged) and event.state.is_terminal for event in call.events):
            await self._secrets.forget(call.task.task_id)
