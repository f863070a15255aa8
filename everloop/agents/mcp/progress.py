"""What a server tells of how far a call is."""

import asyncio
from collections.abc import Awaitable, Callable


class LatestProgress:
    """Tells the newest progress, one after the other; what came while one was being told is left out."""

    def __init__(self, tell: Callable[[str], Awaitable[None]]) -> None:
        self._tell = tell
        self._next = ""
        self._has_stopped = False
        self._telling = asyncio.Lock()

    async def hear(self, progress: float, total: float | None, message: str | None) -> None:
        """Take in a progress notification."""
        if self._has_stopped:
            return
        self._next = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        async with self._telling:
            text, self._next = self._next, ""
            if text and not self._has_stopped:
                await self._tell(text)

    async def told(self) -> None:
        """Wait until all that was heard has been told."""
        async with self._telling:  # whoever heard something before stands before us in the queue
            return

    def stop(self) -> None:
        """Tell nothing more."""
        self._has_stopped = True
