"""How a change of an artifact becomes events: numbered so that the fold shows what the store holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stores.artifacts import AddParts, Append, Change, Complete, Create, Fail, Replace
from stores.shown_artifacts import Contents, Shown, continuation, is_shown_by, shown_indexes
from stores.task_views import ShownArtifact
from stores.view_parts import EMPTY
from workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from workflows.contract.events import ArtifactChunk, ChunkMode
from workflows.contract.messages import Part


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

    shown: Shown | None
    name: str
    description: str
    complete: bool
    position: int
    attempt: int = 0
    next_index: int | None = None

    @classmethod
    def by_view(cls, view: ShownArtifact | None, *candidates: Shown) -> "Told | None":
        """Return what a view tells: the first of these forms that it shows, or something else."""
        if view is None:
            return None
        shown = (each for each in candidates if is_shown_by(each, view.artifact.parts))
        artifact = view.artifact
        first = next(shown, None)
        return cls(first, artifact.name, artifact.description, artifact.complete, view.position, view.attempt)


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
        self, told: Told | None, artifact: StoredArtifact, shown: Shown
    ) -> tuple[list[ArtifactChunk], Told]:
        """Return the chunks after which subscribers see this, and what they have been told then."""
        is_named = told is not None and (told.name, told.description) == (artifact.name, artifact.description)
        rest = continuation(told.shown, shown) if told and told.shown and is_named else None
        is_complete = artifact.status is ArtifactStatus.COMPLETE
        if told is None or rest is None or (told.complete and (rest or not is_complete)):
            return self._chunks("replace", artifact, shown, [each.part for each in shown], told)
        if told.complete or (told.next_index is not None and not (rest or is_complete)):
            return [], replace(told, shown=shown)
        return self._chunks("extend", artifact, shown, rest or [EMPTY], told)

    def withdrawal(self) -> ArtifactChunk:
        """Return the chunk that leaves nothing of an artifact which does not exist."""
        return ArtifactChunk(
            artifact_id=self.artifact_id,
            mode="replace",
            position=self.position,
            attempt=self.first_attempt,
            index=0,
            part=EMPTY,
        )

    def _chunks(
        self, mode: ChunkMode, artifact: StoredArtifact, shown: Shown, parts: list[Part], told: Told | None
    ) -> tuple[list[ArtifactChunk], Told]:
        if told and told.next_index is not None and mode == "extend":
            position, attempt, first = told.position, told.attempt, told.next_index
        else:
            position, attempt, first = self._new_draft(artifact, told)
        is_complete = artifact.status is ArtifactStatus.COMPLETE
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
                last_chunk=is_complete and index == first + len(parts) - 1,
            )
            for index, part in enumerate(parts, first)
        ]
        return chunks, Told(
            shown, artifact.name, artifact.description, is_complete, position, attempt, first + len(parts)
        )

    def _new_draft(self, artifact: StoredArtifact, told: Told | None) -> tuple[int, int, int]:
        """Return position, attempt and first index of a draft that comes after all others."""
        position = max(self.position, told.position) if told else self.position
        attempt = max(artifact.version, self.first_attempt, told.attempt + 1 if told else 0)
        return position, attempt, 0


def changed_contents(
    before: StoredArtifact | None, contents: Contents, change: Change, after: StoredArtifact
) -> dict[int, bytes | None]:
    """Return the content of the parts that may be shown after a change.

    Raises:
        ContentNeededError: a part may be shown whose content is not among these.
    """
    changed = _changed(before, contents, change)
    indexes = shown_indexes(after)
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
            return contents if content is None else {**contents, index: content + change.content}
        case Complete() | Fail():
            return contents
