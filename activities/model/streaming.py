"""Publishes what the model writes while it writes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

import structlog
from redis.exceptions import RedisError

from everloop.activities.model.artifacts import ArtifactStreams
from everloop.activities.model.drafts import ResponseDraft
from everloop.activities.model.reply import ArgumentsDelta, Delta, TextDelta, ThoughtDelta, coalesce
from everloop.workflows.contract.events import TaskEvent, Thought

INTERVAL = 0.020
"""Seconds from one publish to the next; what comes meanwhile goes out together. Below 25 ms, so that 40
tokens a second, the pace of many models, are not held up by their own jitter (15 ms of median latency,
measured)."""

PAUSES = (0.25, 1.0, 5.0, 10.0)
"""Seconds until the next publish after 1, 2, … failures in a row."""

Publish = Callable[[Sequence[TaskEvent]], Awaitable[object]]

_log = structlog.get_logger()


class DeltaPublisher:
    """Publishes the first delta at once and later ones every 20 ms, beside the reading of the stream.

    Deltas are best effort: a publish that fails makes a pause and a new draft, never an error. Without a
    `draft` the answer is not published.
    """

    def __init__(
        self, publish: Publish, draft: ResponseDraft | None, artifacts: ArtifactStreams, iteration: int
    ) -> None:
        self._publish = publish
        self._draft = draft
        self._artifacts = artifacts
        self._iteration = iteration
        self._pending: list[Delta] = []
        self._added = asyncio.Event()
        self._publishing = asyncio.Lock()
        self._stopped = False
        self._failures = 0
        self._due = 0.0

    async def __aenter__(self) -> Self:
        self._flusher = asyncio.create_task(self._flush_until_stopped())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_flusher()
        await asyncio.gather(self._flusher, return_exceptions=True)

    def add(self, deltas: Iterable[Delta]) -> None:
        """Take deltas; they go out when it is their time."""
        self._pending.extend(deltas)
        if self._pending:
            self._added.set()

    async def stop(self) -> list[Delta]:
        """Publish no more; return the deltas that have not gone out. A publish that runs may end first."""
        async with self._publishing:
            if self._flusher.done():
                self._flusher.result()  # it ends by itself only when something unforeseen was raised
            self._stop_flusher()
        return self._take()

    def _stop_flusher(self) -> None:
        """Make the next wait of the flusher its last one; cancelling only shortens that wait.

        Redis' client sends through `asyncio.wait_for`, which in Python 3.11 may lose a cancellation.
        """
        self._stopped = True
        self._added.set()
        self._flusher.cancel()

    async def _flush_until_stopped(self) -> None:
        clock = asyncio.get_running_loop().time
        while not self._stopped:
            await self._added.wait()
            await asyncio.sleep(self._due - clock())
            self._added.clear()
            self._due = clock() + INTERVAL
            async with self._publishing:
                await self._flush()
            if self._failures:
                self._due = clock() + PAUSES[min(self._failures, len(PAUSES)) - 1]

    async def _flush(self) -> None:
        deltas = self._take()
        try:
            if events := await self._events(deltas):
                await self._publish(events)
        except (RedisError, OSError) as error:
            self._keep(deltas, error)
        else:
            self._failures = 0

    def _take(self) -> list[Delta]:
        taken, self._pending = coalesce(self._pending), []
        return taken

    async def _events(self, deltas: list[Delta]) -> list[TaskEvent]:
        events = [event for delta in deltas if (event := self._event(delta))]
        return [*events, *await self._artifacts.chunks()]

    def _event(self, delta: Delta) -> TaskEvent | None:
        match delta:
            case TextDelta():
                return self._draft.append(delta.text) if self._draft else None
            case ThoughtDelta():
                return thought(delta, self._iteration)
            case ArgumentsDelta():
                self._artifacts.add(delta)
                return None

    def _keep(self, deltas: list[Delta], error: Exception) -> None:
        """Keep thoughts for the next time; the drafts keep the rest."""
        if not self._failures:
            _log.warning("deltas not published", error_type=type(error).__name__)
        self._failures += 1
        self._pending = [delta for delta in deltas if isinstance(delta, ThoughtDelta)] + self._pending
        if self._draft:
            self._draft.restart()
        self._artifacts.restart()


def thought(delta: ThoughtDelta, iteration: int) -> Thought:
    """Return the event that carries a thought."""
    return Thought(iteration=iteration, thought_id=delta.thought_id, text=delta.text, last=delta.last)
