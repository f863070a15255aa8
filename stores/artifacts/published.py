"""Artifacts whose changes are told to the subscribers of a task, in the same atomic step."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from everloop.stores.artifacts.events import ContentNeededError, Telling, Told, changed_contents
from everloop.stores.artifacts.interface import (
    AddParts,
    Announcement,
    Append,
    ArtifactMissingError,
    ArtifactOvertakenError,
    ArtifactReplacedError,
    Artifacts,
    Change,
    Complete,
    Create,
    Fail,
    PartIndexError,
)
from everloop.stores.artifacts.rendering import (
    RENDERED_BYTES,
    Contents,
    Rendered,
    matches_view,
    read_contents,
    render_parts,
    rendered_indexes,
)
from everloop.stores.views.interface import TaskViews, ViewArtifact
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import ArtifactChunk
from everloop.workflows.contract.tasks import TaskRef

Reading = Callable[[Artifacts, StoredArtifact, Iterable[int]], Awaitable[Contents]]
"""Reads parts of an artifact, as `read_contents` does."""

_Key = tuple[str, str]


class PublishedArtifacts(Artifacts):
    """Tells subscribers what one writer changes: an attempt at a tool call, or the end of a task.

    `position` is that of the result of the call. Of a change that a view shows already, because a model's
    draft or an earlier attempt has told it, nothing is told again. Where a view shows something else than the
    store holds, it gets the whole artifact. A change that comes with an announcement of its own is told by
    that one alone.

    At most about 2 MB of each artifact that is building are held in memory. `reading` gets what subscribers
    are shown from the store.
    """

    def __init__(
        self,
        inner: Artifacts,
        task: TaskRef,
        position: int,
        views: TaskViews,
        *,
        reading: Reading = read_contents,
    ) -> None:
        self._inner = inner
        self._task = task
        self._position = position
        self._views = views
        self._read = reading
        self._known: dict[_Key, _Known] = {}
        self._attempts: dict[_Key, int] = {}
        self._changing: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()

    async def apply(  # noqa: PLR0913 -- the interface's, and what it has to follow
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        *,
        operation_id: str = "",
        announcement: Announcement | None = None,
        follows: str = "",
    ) -> StoredArtifact:
        """Change an artifact; see `Artifacts`.

        `follows`: the last operation on it must be one whose id begins so, or else this one is refused.

        Raises:
            ArtifactOvertakenError: it is not.
        """
        if announcement:
            return await self._inner.apply(
                context_id, artifact_id, change, operation_id=operation_id, announcement=announcement
            )
        key = context_id, artifact_id
        async with self._changing.setdefault(key, asyncio.Lock()):
            known, needed = self._known.pop(key, None), frozenset[int]()
            if known and _is_closing(change) and not await self._is_shown(key, known):
                known = None
            while True:
                try:
                    known = known or await self._look(key, change, needed)
                    step = self._step(key, change, known, follows)
                    told = Announcement(self._task.task_id, self._task.run_id, step.events_of)
                    after = await self._inner.apply(
                        context_id, artifact_id, change, operation_id=operation_id, announcement=told
                    )
                except (_StaleError, ArtifactReplacedError):
                    known = None
                except ContentNeededError as error:
                    known, needed = None, error.indexes
                else:
                    self._keep(key, step, after)
                    return after

    async def reconcile(
        self, context_id: str, artifact_id: str, *, drafted_at: int | None = None, is_over: bool = False
    ) -> None:
        """Show subscribers an artifact as the store holds it, where they see something else of it.

        Of one that the store does not hold an empty text remains; one that they have not seen stays so.
        `drafted_at`: only if they see the draft of the reply at this position. `is_over`: nothing follows in
        this task, so that one which another task goes on with is complete to them, and one that is not stored
        has failed.

        Raises:
            BlobsUnavailableError: its content cannot be read now.
        """
        key = context_id, artifact_id
        while True:
            view = await self._views.artifact(self._task.task_id, artifact_id)
            if view is None or drafted_at not in {None, view.position}:
                return
            artifact = await self._find(key)
            try:
                chunks = await self._correction(key, view, artifact, is_over=is_over)
            except (ArtifactMissingError, PartIndexError, ArtifactReplacedError):
                continue
            if chunks:
                await self._views.publish(self._task.task_id, self._task.run_id, chunks)
            # What is told of a change that came between may have been dropped, being older than this.
            if not chunks or _state(await self._find(key)) == _state(artifact):
                return

    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        return await self._inner.get_artifact(context_id, artifact_id)

    async def list_artifacts(self, context_id: str, task_id: str | None = None) -> list[StoredArtifact]:
        return await self._inner.list_artifacts(context_id, task_id)

    async def delete_artifact(self, context_id: str, artifact_id: str) -> None:
        """Remove an artifact; views show it as it was."""
        await self._inner.delete_artifact(context_id, artifact_id)

    def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        return self._inner.read_part(context_id, artifact_id, index, start=start, end=end)

    async def _find(self, key: _Key) -> StoredArtifact | None:
        with suppress(ArtifactMissingError):
            return await self._inner.get_artifact(*key)
        return None

    async def _correction(
        self, key: _Key, view: ViewArtifact, artifact: StoredArtifact | None, *, is_over: bool
    ) -> list[ArtifactChunk]:
        """Return the chunks after which subscribers see what is stored; none if they do."""
        telling = Telling(key[1], self._position, self._attempts.get(key, 0))
        if artifact is None:
            return telling.withdrawal(view, is_over=is_over)
        room = await self._room(view)
        contents = await self._read(self._inner, artifact, rendered_indexes(artifact, room))
        if is_over and artifact.status is ArtifactStatus.BUILDING:
            artifact = artifact.model_copy(update={"status": ArtifactStatus.COMPLETE})
        shown = render_parts(artifact, contents)
        told = Told.by_view(view, shown)
        return [] if told.says(artifact, shown) else telling.tell(told, artifact, shown)[0]

    async def _is_shown(self, key: _Key, known: "_Known") -> bool:
        """Whether the view still has what this writer has told: it may have been lost, and put back."""
        view, told = await self._views.artifact(self._task.task_id, key[1]), known.told
        if view is None or told is None or told.shown is None:
            return False
        is_same = (view.position, view.attempt) == (told.position, told.attempt)
        return is_same and matches_view(told.shown, view.artifact.parts)

    async def _look(self, key: _Key, change: Change, needed: frozenset[int]) -> "_Known":
        """See what the store holds and what subscribers have been told.

        The store first: if it is unchanged when the change is made, so is what was told of it.
        """
        contents: Contents = {}
        artifact = await self._find(key)
        view = await self._views.artifact(self._task.task_id, key[1])
        room = await self._room(view)
        # What was deleted or replaced since it was found is noticed when the change is made.
        with suppress(ArtifactMissingError, PartIndexError):
            if artifact and not isinstance(change, Create):
                indexes = rendered_indexes(artifact, room) | needed
                contents = await self._read(self._inner, artifact, indexes)
        return _Known(artifact, contents, room, view)

    async def _room(self, view: ViewArtifact | None) -> int:
        """Return for how many bytes of an artifact the view of the task has room; it has this of it now."""
        room = self._views.max_bytes - await self._views.size(self._task.task_id)
        if room >= RENDERED_BYTES or view is None:
            return room
        return room + len(view.artifact.model_dump_json().encode())

    def _step(self, key: _Key, change: Change, known: "_Known", follows: str) -> "_Step":
        telling = Telling(key[1], self._position, self._attempts.get(key, 0))
        return _Step(change, known, telling, follows)

    def _keep(self, key: _Key, step: "_Step", after: StoredArtifact) -> None:
        """Remember what was told; of an operation that the store knew already, nothing was."""
        result = step.result
        if result and result.told:
            self._attempts[key] = result.told.attempt + 1
        if result and after.status is ArtifactStatus.BUILDING:
            self._known[key] = result


class _StaleError(Exception):
    """The artifact is no longer what it was when somebody looked."""


@dataclass(frozen=True)
class _Known:
    """An artifact, the content that may be shown of it in so much `room`, and what subscribers have of it.

    That is `told` if this writer has told it, and else what the `view` shows.
    """

    artifact: StoredArtifact | None
    contents: Contents
    room: int
    view: ViewArtifact | None = None
    told: Told | None = None


@dataclass
class _Step:
    """One change, and what it comes to. The store may ask for its events several times."""

    change: Change
    known: _Known
    telling: Telling
    follows: str
    result: _Known | None = field(default=None, init=False)

    def events_of(self, before: StoredArtifact | None, after: StoredArtifact) -> Sequence[ArtifactChunk]:
        self.result = None
        if self.follows and not _is_last(before, self.follows):
            raise ArtifactOvertakenError(after.artifact_id)
        if _state(before) != _state(self.known.artifact):
            raise _StaleError
        room = self.known.room
        contents = changed_contents(before, self.known.contents, self.change, after, room)
        shown = render_parts(after, contents)
        chunks, told = self.telling.tell(self._told(before, shown), after, shown)
        self.result = _Known(after, contents, room, told=told)
        return chunks

    def _told(self, before: StoredArtifact | None, shown: Rendered) -> Told | None:
        if self.known.told or self.known.view is None:
            return self.known.told
        shown_before = [render_parts(before, self.known.contents)] if before else []
        return Told.by_view(self.known.view, shown, *shown_before)


def _is_closing(change: Change) -> bool:
    """Whether nobody puts the view right after this change."""
    match change:
        case Complete() | Fail():
            return True
        case Append() | AddParts():
            return change.last_chunk
        case _:
            return False


def _is_last(artifact: StoredArtifact | None, prefix: str) -> bool:
    return bool(artifact and artifact.operations and artifact.operations[-1].id.startswith(prefix))


def _state(artifact: StoredArtifact | None) -> object:
    return artifact and (artifact.version, artifact.updated_at)
