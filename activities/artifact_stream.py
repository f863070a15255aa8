"""One artifact while the model writes the tool call that makes it."""

from dataclasses import dataclass

from everloop.activities.draft_numbers import DraftNumbers
from everloop.stores.artifacts.shown import Shown, continuation
from everloop.workflows.contract.events import ArtifactChunk, ChunkMode
from everloop.workflows.contract.messages import EMPTY, Part


@dataclass(frozen=True)
class ShownContent:
    """What subscribers see of an artifact, or are to see."""

    artifact_id: str
    parts: Shown = ()
    name: str = ""
    description: str = ""
    complete: bool = False


class ArtifactStream:
    """Makes the chunks that one activity attempt publishes of one artifact; see `DraftNumbers`.

    `base` is what the artifact holds that the call extends, None for one that it makes. The first draft of
    all extends what subscribers see; nobody could take that back, so every later one repeats the base.
    """

    def __init__(self, position: int, numbers: DraftNumbers, base: Shown | None = None) -> None:
        self._position = position
        self._numbers = numbers
        self._base = base
        self._shown = ShownContent("")

    def show(self, content: ShownContent) -> list[ArtifactChunk]:
        """Return the chunks that bring subscribers to what the call itself has written so far."""
        added = self._added(content)
        if added is None:  # what seemed to be its beginning is not
            self.restart()
            added = self._added(content)
        if not added or self._numbers.is_spent:
            return []
        self._shown = content
        mode = self._mode()
        return [chunk_of(self._position, self._numbers, content, part, mode) for part in added]

    def restart(self) -> None:
        """Begin a new draft with the next chunk: it is not known whether the last ones were published."""
        self._numbers.restart()

    def _added(self, content: ShownContent) -> list[Part] | None:
        """Return what comes behind what is shown; None if that is not the beginning of it."""
        if not self._numbers.has_begun:
            base = (self._base or ()) if self._mode() == "replace" and content.parts else ()
            return [shown.part for shown in (*base, *content.parts)]
        if (self._shown.name, self._shown.description) != (content.name, content.description):
            return None
        return continuation(self._shown.parts, content.parts)

    def _mode(self) -> ChunkMode:
        if self._base is None:
            return "draft"
        return "extend" if self._numbers.is_first else "replace"


def whole_chunks(position: int, numbers: DraftNumbers, content: ShownContent) -> list[ArtifactChunk]:
    """Return the chunks that put a whole content in the place of every draft of this attempt."""
    numbers.end()
    parts = [shown.part for shown in content.parts] or [EMPTY]
    chunks = [chunk_of(position, numbers, content, part, "replace") for part in parts]
    chunks[-1] = chunks[-1].model_copy(update={"last_chunk": content.complete})
    return chunks


def chunk_of(
    position: int, numbers: DraftNumbers, content: ShownContent, part: Part, mode: ChunkMode
) -> ArtifactChunk:
    """Return the next chunk."""
    return ArtifactChunk(
        artifact_id=content.artifact_id,
        name=content.name,
        description=content.description,
        mode=mode,
        position=position,
        attempt=numbers.draft,
        index=numbers.next_index(),
        part=part,
    )
