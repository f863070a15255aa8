"""Statuses on their way to the view: they ride on calls, and none is lost or overtaken."""

from collections.abc import Generator
from contextlib import contextmanager

from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.state import TaskRunState


class Outbox:
    """Hands `TaskRunState.outbox` to calls, in order of version, until one that carried it has ended.

    A view that has a status takes no older one, so what carries a newer status carries all before it that
    nobody knows to be published. A call that failed, or was cancelled before it began, proves nothing: the
    next one carries the same again, and the view takes each version once.
    """

    def __init__(self, state: TaskRunState) -> None:
        self._state = state
        self._riding: list[int] = []

    @contextmanager
    def carried(self) -> Generator[tuple[StatusChanged, ...]]:
        """Return what a call has to publish before it begins; the call is made inside.

        Nothing, while another call carries all that there is: it may not have begun, but nothing newer is
        said meanwhile, and each status enters the history once.
        """
        statuses = tuple(self._state.outbox)
        newest = statuses[-1].version if statuses else 0
        if newest <= max(self._riding, default=0):
            yield ()
            return
        self._riding.append(newest)
        try:
            yield statuses
            self._state.outbox = [status for status in self._state.outbox if status.version > newest]
        finally:
            self._riding.remove(newest)
