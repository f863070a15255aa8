"""Sends the output of a model or a tool in batches while it is written."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

LAST_WORD = 3.0
"""Time limit in seconds for a batch in progress when its writer is stopped."""


class Batcher:
    """Sends added output in batches: the first at once, each other when the interval of the last allows it.

    `send` sends everything that was added, and returns the seconds from its start to the next batch. `delay`
    is that of the first one.
    """

    def __init__(self, send: Callable[[], Awaitable[float]], delay: float = 0.0) -> None:
        self._send = send
        self._added = asyncio.Event()
        self._sending = asyncio.Lock()
        self._stopped = False
        self._due = _now() + delay

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send_until_stopped())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        end = _now() + LAST_WORD
        while not self._sender.done() and _now() < end:
            self._stop()
            await asyncio.wait({self._sender}, timeout=LAST_WORD / 10)
        if self._sender.done() and not self._sender.cancelled():
            self._sender.exception()  # it has been raised before

    @property
    def is_due(self) -> bool:
        """True if a batch may be sent now."""
        return self._due <= _now()

    def add(self) -> None:
        """Send a batch when it is due. `check` raises its failure."""
        self._added.set()

    def check(self) -> None:
        """Raise the failure of a batch that was sent in the background."""
        if self._sender.done():
            self._sender.result()

    async def send(self) -> None:
        """Send a batch now, after the one in progress."""
        async with self._sending:
            start = _now()
            self._due = start + await self._send()

    async def stop(self) -> None:
        """Send no more batches, after the one in progress."""
        async with self._sending:
            self.check()
            self._stop()

    async def _send_until_stopped(self) -> None:
        while not self._stopped:
            await self._added.wait()
            await asyncio.sleep(self._due - _now())
            self._added.clear()
            await self.send()

    def _stop(self) -> None:
        """Make the next wait the last one; cancelling only shortens it.

        Redis' client sends through `asyncio.wait_for`, which in Python 3.11 may lose a cancellation.
        """
        self._stopped = True
        self._added.set()
        self._sender.cancel()


def _now() -> float:
    return asyncio.get_running_loop().time()
