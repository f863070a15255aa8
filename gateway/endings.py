"""Tasks whose workflow ended without a word: terminated by an operator, timed out, or gone."""

from contextlib import suppress

import structlog

from gateway.errors import GatewayError
from gateway.tasks import Ending, Tasks
from stores.task_views import TaskViews
from workflows.contract.events import StatusChanged
from workflows.contract.messages import AgentMessage, TextPart
from workflows.contract.tasks import TaskView

LAST_STEP = 1_000_000_000
"""Behind every passing status that an activity may have published under the same version."""

_log = structlog.get_logger()


class Endings:
    """Gives such a task the last status that it could not publish itself, so that nobody waits for it."""

    def __init__(self, views: TaskViews, tasks: Tasks) -> None:
        self._views = views
        self._tasks = tasks

    async def settle(self, task_id: str) -> None:
        """Make the view of a task say that it has ended, if its workflow has; repeating it changes nothing.

        Raises:
            TemporalUnavailableError: nobody can tell.
        """
        if ending := await self._tasks.ending(task_id):
            await self._settle(task_id, ending)

    async def _settle(self, task_id: str, ending: Ending) -> None:
        with suppress(GatewayError):
            # What the workflow itself says is better than what we can tell: it may know its answer.
            await self._views.restore(await self._tasks.view(task_id))
        snapshot = await self._views.load(task_id)
        if snapshot and not snapshot.view.status.state.is_terminal:
            status = _last_status(snapshot.view, ending)
            await self._views.publish(task_id, ending.run_id or snapshot.view.run_id, [status])
            _log.warning("task ended without a word", task_id=task_id, state=ending.state)


def _last_status(view: TaskView, ending: Ending) -> StatusChanged:
    message = AgentMessage(message_id=f"{view.task_id}-ended", parts=(TextPart(text=ending.reason),))
    return StatusChanged(
        version=view.version, step=LAST_STEP, state=ending.state, at=ending.at, message=message
    )
