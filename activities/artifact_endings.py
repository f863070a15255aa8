"""The end of a task for its artifacts: nobody writes them any more, and subscribers hear nothing after it."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, BlobsUnavailableError
from everloop.stores.artifacts.interface import (
    ArtifactClosedError,
    ArtifactMissingError,
    Artifacts,
    Complete,
    Fail,
)
from everloop.stores.artifacts.published import PublishedArtifacts
from everloop.stores.artifacts.shown import Contents, read_contents
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import FINAL_ATTEMPT, RESPONSE_ARTIFACT
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskRef, TaskState

_AFTER_ALL_CALLS = FINAL_ATTEMPT
"""The position of what is told here. No transcript gets so long: it comes after every reply and result."""


class ArtifactEndings:
    """Closes the artifacts of a task, and leaves subscribers with what the store holds of those they saw.

    Artifacts are completed if the task completed, and fail if not. A task that completes waits for a blob
    store that is away; of any other, what cannot be read within `patience` seconds, all in all, is shown as a
    link (default: 10).
    """

    def __init__(self, artifacts: Artifacts, views: TaskViews, *, patience: float = 10.0) -> None:
        self._artifacts = artifacts
        self._views = views
        self._patience = patience

    async def end(self, task: TaskRef, state: TaskState) -> None:
        """Close what the task has left open, and tell subscribers. Repeating it is safe.

        Raises:
            BlobsUnavailableError, RedisError: a store is away; some may be closed already.
        """
        is_completed = state is TaskState.COMPLETED
        reading = read_contents if is_completed else _LimitedReading(self._patience).read
        published = PublishedArtifacts(self._artifacts, task, _AFTER_ALL_CALLS, self._views, reading=reading)
        context = context_key(task.owner, task.context_id)
        written = [
            artifact
            for artifact in await self._artifacts.list_artifacts(context, task.task_id)
            if not artifact.is_input
        ]
        for artifact in written:
            if artifact.status is ArtifactStatus.BUILDING:
                await _close(published, artifact, Complete() if is_completed else Fail())
        for artifact_id in await self._unfinished(task, written):
            await published.reconcile(context, artifact_id, is_over=is_completed)

    async def _unfinished(self, task: TaskRef, written: Iterable[StoredArtifact]) -> list[str]:
        """Return the artifacts that subscribers may see as unfinished."""
        snapshot = await self._views.load(task.task_id)
        if snapshot is None:  # it was lost, and what was told since cannot be listed
            return [artifact.artifact_id for artifact in written]
        artifacts = (artifact for artifact in snapshot.view.artifacts if not artifact.complete)
        return [artifact.artifact_id for artifact in artifacts if artifact.artifact_id != RESPONSE_ARTIFACT]


class _LimitedReading:
    """Reads what can be read in a short time, all in all; the rest is as good as lost."""

    def __init__(self, seconds: float) -> None:
        self._end = asyncio.get_running_loop().time() + seconds

    async def read(self, artifacts: Artifacts, artifact: StoredArtifact, indexes: Iterable[int]) -> Contents:
        """Return the content of parts, None for what cannot be read now."""
        return {index: await self._part(artifacts, artifact, index) for index in indexes}

    async def _part(self, artifacts: Artifacts, artifact: StoredArtifact, index: int) -> bytes | None:
        left = self._end - asyncio.get_running_loop().time()
        if left <= 0:
            return None
        # Not asyncio.timeout: in Python 3.11 Redis' client may lose the one cancellation that this sends.
        reading = asyncio.create_task(read_contents(artifacts, artifact, (index,)))
        try:
            await asyncio.wait({reading}, timeout=left)
            return reading.result()[index] if reading.done() else None
        except BlobsUnavailableError:
            return None
        finally:
            reading.cancel()


async def _close(published: PublishedArtifacts, artifact: StoredArtifact, change: Complete | Fail) -> None:
    key = artifact.context_id, artifact.artifact_id
    # Somebody else may have closed or deleted it since it was listed.
    with suppress(ArtifactClosedError, ArtifactMissingError):
        try:
            await published.apply(*key, change)
        except (BlobMissingError, BlobCorruptError):
            # It will never be whole, however often it is tried.
            await published.apply(*key, Fail())
