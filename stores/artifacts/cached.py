"""What is known of artifacts, remembered for a moment."""

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

from everloop.runtime.blobs import LinkTerms
from everloop.stores.artifacts.interface import Announcement, Artifacts, Change
from everloop.workflows.contract.artifacts import StoredArtifact

MAX_ARTIFACTS = 1000
SECONDS = 2.0


class CachedArtifacts(Artifacts):
    """Another store, whose `get_artifact` answers from memory for `seconds` (default 2).

    What is changed by way of this object is seen at once; what others change, after that time. Content is
    never remembered, and neither is that there is no such artifact. It holds at most `size` artifacts
    (default 1,000); `clock` counts seconds.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        *,
        size: int = MAX_ARTIFACTS,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._artifacts = artifacts
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], tuple[float, StoredArtifact]] = OrderedDict()
        self._changes = 0

    async def apply(
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        *,
        operation_id: str = "",
        announcement: Announcement | None = None,
    ) -> StoredArtifact:
        try:
            return await self._artifacts.apply(
                context_id, artifact_id, change, operation_id=operation_id, announcement=announcement
            )
        finally:
            self._forget(context_id, artifact_id)

    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        key, at = (context_id, artifact_id), self._clock()
        until, artifact = self._known.get(key, (at, None))
        if artifact and at < until:
            return artifact
        changes = self._changes
        artifact = await self._artifacts.get_artifact(context_id, artifact_id)
        if changes == self._changes:  # otherwise this may be from before the change
            self._remember(key, at + self._seconds, artifact)
        return artifact

    async def list_artifacts(self, context_id: str, task_id: str | None = None) -> list[StoredArtifact]:
        return await self._artifacts.list_artifacts(context_id, task_id)

    async def delete_artifact(self, context_id: str, artifact_id: str) -> None:
        try:
            await self._artifacts.delete_artifact(context_id, artifact_id)
        finally:
            self._forget(context_id, artifact_id)

    async def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        async for piece in self._artifacts.read_part(context_id, artifact_id, index, start=start, end=end):
            yield piece

    async def link(self, context_id: str, artifact_id: str, index: int, terms: LinkTerms) -> str | None:
        return await self._artifacts.link(context_id, artifact_id, index, terms)

    def _remember(self, key: tuple[str, str], until: float, artifact: StoredArtifact) -> None:
        self._known[key] = until, artifact
        self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)

    def _forget(self, context_id: str, artifact_id: str) -> None:
        self._changes += 1
        self._known.pop((context_id, artifact_id), None)
