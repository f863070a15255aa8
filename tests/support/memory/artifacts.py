"""Artifacts in memory, for tests: what they compare the real store with."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from everloop.runtime.blobs import LinkTerms
from everloop.stores.artifacts.changes import Announcement, Change
from everloop.stores.artifacts.errors import ArtifactMissingError
from everloop.stores.artifacts.record import now
from everloop.stores.artifacts.rules import Changed, OperationContext, change_artifact, check_id, part_of
from everloop.stores.artifacts.store import Artifacts, listed
from everloop.stores.retention import ARTIFACT_TTL
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.artifacts import StoredArtifact

_PIECE = 1024 * 1024


@dataclass(frozen=True)
class _Kept:
    """An artifact and the content of its parts. Content only grows: what replaces it is another object."""

    artifact: StoredArtifact
    contents: tuple[bytearray, ...]
    expires_at: datetime


class MemoryArtifacts(Artifacts):
    """Keeps everything until its time to live ends (default 30 days), or the process.

    For one process only: what a worker writes here, a gateway does not see. Without `views` nobody is told
    of changes.
    """

    def __init__(
        self,
        views: TaskViews | None = None,
        *,
        ttl: timedelta = ARTIFACT_TTL,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self._views = views
        self._ttl = ttl
        self._clock = clock
        self._kept: dict[tuple[str, str], _Kept] = {}

    async def apply(
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        *,
        operation_id: str = "",
        announcement: Announcement | None = None,
    ) -> StoredArtifact:
        self._forget_expired()
        key, at = (context_id, artifact_id), self._clock()
        kept = self._kept.get(key)
        before = kept.artifact if kept else None
        changed = change_artifact(before, change, OperationContext(context_id, artifact_id, at, operation_id))
        if changed is None:
            return await self.get_artifact(context_id, artifact_id)
        events = announcement.events_of(before, changed.artifact) if announcement else ()
        self._kept[key] = _Kept(changed.artifact, _written(kept, changed), at + self._ttl)
        if announcement and self._views:
            await self._views.publish(announcement.task_id, announcement.run_id, events)
        return changed.artifact

    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        return self._find(context_id, artifact_id).artifact

    async def list_artifacts(self, context_id: str, task_id: str | None = None) -> list[StoredArtifact]:
        self._forget_expired()
        found = [kept.artifact for (context, _), kept in self._kept.items() if context == context_id]
        return listed(found, task_id)

    async def delete_artifact(self, context_id: str, artifact_id: str) -> None:
        self._kept.pop((context_id, check_id(artifact_id)), None)

    async def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        kept = self._find(context_id, artifact_id)
        part, content = part_of(kept.artifact, index), kept.contents[index]
        last = part.size if end is None else min(end, part.size)
        for at in range(start, last, _PIECE):
            yield bytes(content[at : min(at + _PIECE, last)])

    async def link(self, context_id: str, artifact_id: str, index: int, terms: LinkTerms) -> str | None:
        part_of(self._find(context_id, artifact_id).artifact, index)
        return None

    def _find(self, context_id: str, artifact_id: str) -> _Kept:
        self._forget_expired()
        kept = self._kept.get((context_id, check_id(artifact_id)))
        if kept is None:
            raise ArtifactMissingError(artifact_id)
        return kept

    def _forget_expired(self) -> None:
        at = self._clock()
        for key in [key for key, kept in self._kept.items() if kept.expires_at <= at]:
            del self._kept[key]


def _written(kept: _Kept | None, changed: Changed) -> tuple[bytearray, ...]:
    contents = [] if kept is None or changed.is_new else list(kept.contents)
    for write in changed.writes:
        if write.is_new:
            contents[write.index : write.index + 1] = [bytearray(write.content)]
        else:
            contents[write.index] += write.content
    return tuple(contents)
