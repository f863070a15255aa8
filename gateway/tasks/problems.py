"""Tasks that cannot go on because their workflow's code fails: a warning, a log line, a metric."""

import structlog

from everloop.gateway.instruments import record_problem
from everloop.gateway.tasks.runs import Runs, Stuck
from everloop.runtime.telemetry.logs import task_fields
from everloop.stores.views.interface import START, TaskViews
from everloop.workflows.contract.events import Warned

MAX_REMEMBERED = 10_000
"""How many problems a process remembers; one that it forgot is looked up again."""

_log = structlog.get_logger()


class Problems:
    """Tells subscribers and operators of each problem once."""

    def __init__(self, views: TaskViews, runs: Runs) -> None:
        self._views = views
        self._runs = runs
        self._reported: dict[Stuck, None] = {}

    async def report(self, stuck: Stuck) -> None:
        """Tell of a run that is stuck; repeating it, here or in another process, tells nothing new.

        The problem of a sub-agent is told in the stream of the client's task.

        Raises:
            TemporalUnavailableError: nobody can tell what is wrong.
        """
        if stuck in self._reported:
            return
        cause = await self._runs.cause(stuck)
        problem = Stuck(stuck.task_id, stuck.run_id, (cause,))
        if problem not in self._reported:
            await self._tell(stuck, cause)
            self._remember(problem)
        self._remember(stuck)

    async def _tell(self, stuck: Stuck, cause: str) -> None:
        client_task, _, child = stuck.task_id.partition("/")
        snapshot = await self._views.load(client_task, most=0)
        if not child:
            await self._warn(stuck.task_id, stuck.run_id, f"the task cannot go on: {cause}")
        elif snapshot:
            text = f"a sub-agent of the task cannot go on: {cause}"
            await self._warn(snapshot.view.task_id, snapshot.view.run_id, text)
        about = {**(task_fields(snapshot.view) if snapshot else {}), "task_id": stuck.task_id}
        _log.warning("workflow task fails again and again", **about, cause=cause)
        record_problem(cause)

    async def _warn(self, task_id: str, run_id: str, text: str) -> None:
        # With the run that Temporal names: the view may not have heard of it, and whatever it publishes
        # is newer than what the view shows.
        if not await self._is_told(task_id, text):
            await self._views.publish(task_id, run_id, [Warned(text=text)])

    async def _is_told(self, task_id: str, text: str) -> bool:
        """Whether the stream holds this warning, from another process or from before our restart."""
        position = START
        while page := await self._views.read({task_id: position}, wait=0):
            if any(isinstance(streamed.event, Warned) and streamed.event.text == text for streamed in page):
                return True
            position = page[-1].position
        return False

    def _remember(self, stuck: Stuck) -> None:
        self._reported[stuck] = None
        if len(self._reported) > MAX_REMEMBERED:
            del self._reported[next(iter(self._reported))]
