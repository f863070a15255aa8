"""Tasks that are large: loaded one by one as there is room for them, so that they never fill the memory.

What is shown of a task takes several times its stored bytes: as the store answers it, parsed, as a message of
protobuf, and as the text that is sent.
"""

import asyncio
from collections import deque
from collections.abc import MutableMapping
from contextlib import ExitStack
from typing import Any

from everloop.gateway.errors import TaskTooLargeError, UnavailableNowError
from everloop.gateway.instruments import record_refused
from everloop.gateway.tasks.snapshots import SMALL_BYTES
from everloop.stores.views.interface import Snapshot, TaskViews

HELD = "everloop.held"
"""Where the state of a call has what is held until it is answered."""

AT_ONCE = 2
"""How many tasks of the largest size are shown at a time. More would be no faster: the loop is one."""

WAIT = 20.0
"""Seconds that a call waits for room."""

RETRY_AFTER = 5
"""Seconds after which a client may try again that got no room."""


class Room:
    """So many bytes may be held at a time; who asks for more than are left waits, in order of arrival."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def hold(self, size: int, held: ExitStack) -> None:
        """Wait for room, and hold it until `held` is closed; more than there is at all counts as all of it.

        Raises:
            UnavailableNowError: there was none in time.
        """
        size = min(size, self._size)
        if self._waiting or size > self._left:
            await self._turn(size)
        else:
            self._left -= size
        held.callback(self._give_back, size)

    async def _turn(self, size: int) -> None:
        entry = size, asyncio.get_running_loop().create_future()
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(WAIT):
                await entry[1]
        except BaseException as error:
            self._leave(entry)
            if not isinstance(error, TimeoutError):
                raise
            record_refused("large_tasks")
            raise UnavailableNowError(
                "this server shows as many large tasks as it can at once; send the same request again in a "
                "few seconds, or ask for less with historyLength",
                retry_after=RETRY_AFTER,
            ) from None

    def _leave(self, entry: tuple[int, "asyncio.Future[None]"]) -> None:
        """Stop waiting; room that came in the last moment goes to the next one."""
        size, turn = entry
        if entry in self._waiting:
            self._waiting.remove(entry)
        self._give_back(0 if turn.cancelled() else size)

    def _give_back(self, size: int) -> None:
        self._left += size
        while self._waiting and (self._waiting[0][1].cancelled() or self._waiting[0][0] <= self._left):
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._left -= wanted
                turn.set_result(None)


class LargeTasks:
    """Loads all of a task of which a snapshot has only the beginning, for those who may see it."""

    def __init__(self, views: TaskViews) -> None:
        self._views = views
        self._room = Room(AT_ONCE * views.max_bytes)

    async def whole(
        self, snapshot: Snapshot, held: ExitStack, *, history_length: int | None = None
    ) -> Snapshot:
        """Return the task with its newest `history_length` messages (None: all), as it stands now.

        It counts as being shown until `held` is closed. One that is whole already is returned as it is.

        Raises:
            TaskTooLargeError: it is larger than a task may be.
            UnavailableNowError: there was no room for it in time.
        """
        if snapshot.is_whole:
            return snapshot
        task_id = snapshot.view.task_id
        sized = await self._views.load(task_id, most=0, history_length=history_length) or snapshot
        if sized.size > self._views.max_bytes:
            raise TaskTooLargeError(task_id, sized.size, self._views.max_bytes)
        if sized.size > SMALL_BYTES:
            await self._room.hold(sized.size, held)
        return await self._views.load(task_id, history_length=history_length) or snapshot


def held_by(state: MutableMapping[str, Any]) -> ExitStack:
    """Return what a call holds until its answer is out; whoever serves it closes this."""
    return state.setdefault(HELD, ExitStack())
