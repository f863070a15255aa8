"""How a change of an artifact becomes events: numbered so that the fold shows what the store holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from everloop.stores.artifacts.interface import AddParts, Append, Change, Complete, Create, Fail, Replace
from everloop.stores.artifacts.rendering import (
    Contents,
    Rendered,
    continuation,
    matches_view,
    rendered_indexes,
)
from everloop.stores.views.interface import ViewArtifact
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import ArtifactChunk, ChunkMode
from everloop.workflows.contract.messages import EMPTY, Part


class ContentNeededError(Exception):
    """What these parts hold has to be read from the store before the change can be told."""

    def __init__(self, indexes: frozenset[int]) -> None:
        super().__init__(f"the content of the parts {sorted(indexes)} has to be read first")
        self.indexes = indexes


@dataclass(frozen=True)
class Told:
    """What subscribers have of an artifact, and the draft that it is in.

    `shown` is None if that is something else than the store holds. `next_index` is that of the chunk which
    continues the draft, None if the draft is somebody else's.
    """

    shown: Rendered | None
    name: str
    description: str
    complete: bool
    failed: bool
    position: int
    attempt: int = 0
    next_index: int | None = None

    @classmethod
    def by_view(cls, view: ViewArtifact, *candidates: Rendered) -> "Told":
        """Return what a view tells: the first of these forms that it shows, or something else."""
        shown = (each for each in candidates if matches_view(each, view.artifact.parts))
        return cls(
            next(shown, None),
            view.artifact.name,
            view.artifact.description,
            view.artifact.complete,
            view.artifact.failed,
            view.position,
            view.attempt,
        )

    def says(self, artifact: StoredArtifact, shown: Rendered) -> bool:
        """Whether subscribers have all of this, and know what has become of it."""
        return self.shown == shown and self.is_of(artifact) and self.is_closed_as(artifact)

    def is_of(self, artifact: StoredArtifact) -> bool:
        return (self.name, self.description) == (artifact.name, artifact.description)

    def is_closed_as(self, artifact: StoredArtifact) -> bool:
        """Whether subscribers know the status of an artifact."""
        status = ArtifactStatus.BUILDING
        if self.complete or self.failed:
            status = ArtifactStatus.COMPLETE if self.complete else ArtifactStatus.FAILED
        return status is artifact.status


@dataclass(frozen=True)
class Telling:
    """Tells subscribers of changes of one artifact.

    Content is told under `position`, or under that of a draft by somebody later: the version of the artifact,
    which numbers the drafts, tells the order of all who write it. `first_attempt` is the lowest number that
    has not been used.
    """

    artifact_id: str
    position: int
    first_attempt: int = 0

    def tell(
        self, told: Told | None, artifact: StoredArtifact, shown: Rendered
    ) -> tuple[list[ArtifactChunk], Told]:
        """Return the chunks after which subscribers see this, and what they have been told then."""
        rest = continuation(told.shown, shown) if told and told.shown and told.is_of(artifact) else None
        if told is None or rest is None:
            return self._chunks("replace", artifact, shown, [each.part for each in shown], told)
        is_known = not rest and told.is_closed_as(artifact)
        if told.complete or told.failed:
            if is_known:
                return [], replace(told, shown=shown)
            return self._chunks("replace", artifact, shown, [each.part for each in shown], told)
        if is_known and told.next_index is not None:
            return [], replace(told, shown=shown)
        return self._chunks("extend", artifact, shown, rest or [EMPTY], told)

    def withdrawal(self, view: ViewArtifact, *, is_over: bool) -> list[ArtifactChunk]:
        """Return what leaves nothing of an artifact which does not exist; nothing if so it is.

        `is_over`: it will not come to exist either.
        """
        if view.artifact.parts == (EMPTY,) and (view.artifact.failed or not is_over):
            return []
        position, attempt, _ = self._new_draft(0, Told.by_view(view))
        chunk = ArtifactChunk(
            artifact_id=self.artifact_id,
            mode="replace",
            position=position,
            attempt=attempt,
            index=0,
            part=EMPTY,
            failed=is_over,
        )
        return [chunk]

    def _chunks(
        self, mode: ChunkMode, artifact: StoredArtifact, shown: Rendered, parts: list[Part], told: Told | None
    ) -> tuple[list[ArtifactChunk], Told]:
        if told and told.next_index is not None and mode == "extend":
            position, attempt, first = told.position, told.attempt, told.next_index
        else:
            position, attempt, first = self._new_draft(artifact.version, told)
        is_complete = artifact.status is ArtifactStatus.COMPLETE
        is_failed = artifact.status is ArtifactStatus.FAILED
        last = first + len(parts) - 1
        chunks = [
            ArtifactChunk(
                artifact_id=self.artifact_id,
                name=artifact.name,
                description=artifact.description,
                mode=mode,
                position=position,
                attempt=attempt,
                index=index,
                part=part,
                last_chunk=is_complete and index == last,
                failed=is_failed and index == last,
            )
            for index, part in enumerate(parts, first)
        ]
        name, description = artifact.name, artifact.description
        return chunks, Told(
            shown, name, description, is_complete, is_failed, position, attempt, next_index=last + 1
        )

    def _new_draft(self, version: int, told: Told | None) -> tuple[int, int, int]:
        """Return position, attempt and first index of a draft that comes after all others."""
        position = max(self.position, told.position) if told else self.position
        attempt = max(version, self.first_attempt, told.attempt + 1 if told else 0)
        return position, attempt, 0


def changed_contents(
    before: StoredArtifact | None, contents: Contents, change: Change, after: StoredArtifact, room: int
) -> dict[int, bytes | None]:
    """Return the content of the parts that may be shown after a change, in a view with so much `room`.

    Raises:
        ContentNeededError: a part may be shown whose content is not among these.
    """
    changed = _changed(before, contents, change)
    indexes = rendered_indexes(after, room)
    if missing := indexes - changed.keys():
        raise ContentNeededError(missing)
    return {index: changed[index] for index in indexes}


def _changed(before: StoredArtifact | None, contents: Contents, change: Change) -> Mapping[int, bytes | None]:
    count = len(before.parts) if before else 0
    match change:
        case Create():
            return {index: part.content for index, part in enumerate(change.parts)}
        case AddParts():
            return {**contents, **{index: part.content for index, part in enumerate(change.parts, count)}}
        case Replace():
            return {**contents, change.index: change.part.content}
        case Append():
            index = change.index % count if count else 0
            content = contents.get(index)
            longer = {} if content is None else {index: content + change.content}
            added = {number: part.content for number, part in enumerate(change.parts, count)}
            return {**contents, **longer, **added}
        case Complete() | Fail():
            return contents
