"""Publishes what subscribers of a task see of artifacts: in the end, what the store holds.

Whoever publishes compares what subscribers have (`Seen`) with what they are to have, and sends the rest if
the one continues the other. If not, or if nobody knows, it sends the whole artifact once more, in place of
all that was sent before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from weakref import WeakValueDictionary

from everloop.stores.artifacts.changes import (
    AddParts,
    Announcement,
    Append,
    Change,
    Complete,
    Create,
    Fail,
    Replace,
)
from everloop.stores.artifacts.errors import (
    ArtifactMissingError,
    ArtifactOvertakenError,
    ArtifactReplacedError,
    PartIndexError,
)
from everloop.stores.artifacts.rendering import (
    RENDERED_BYTES,
    Contents,
    Rendered,
    continuation,
    matches_view,
    read_contents,
    render_parts,
    rendered_indexes,
)
from everloop.stores.artifacts.store import Artifacts
from everloop.stores.log.interface import ViewArtifact
from everloop.stores.log.store import TaskViews
from everloop.stores.scripts import Lease
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk, ChunkMode, content_of
from everloop.workflows.contract.messages import EMPTY, Part
from everloop.workflows.contract.tasks import TaskRef

Reading = Callable[[Artifacts, StoredArtifact, Iterable[int]], Awaitable[Contents]]
"""Reads parts of an artifact, as `read_contents` does."""

_Key = tuple[str, str]


@dataclass(frozen=True)
class Draft:
    """Which draft of an artifact chunks belong to, and the index of the next one."""

    position: int
    attempt: int
    index: int = 0


def make_chunks(  # noqa: PLR0913 -- what a chunk says
    artifact_id: str,
    parts: Sequence[Part],
    mode: ChunkMode,
    draft: Draft,
    *,
    name: str = "",
    description: str = "",
    status: ArtifactStatus = ArtifactStatus.BUILDING,
) -> list[ArtifactChunk]:
    """Return the chunks that carry parts of an artifact; the last one says what has become of it."""
    last = len(parts) - 1
    return [
        ArtifactChunk(
            artifact_id=artifact_id,
            name=name,
            description=description,
            mode=mode,
            position=draft.position,
            attempt=draft.attempt,
            index=draft.index + number,
            part=part,
            last_chunk=number == last and status is ArtifactStatus.COMPLETE,
            failed=number == last and status is ArtifactStatus.FAILED,
        )
        for number, part in enumerate(parts)
    ]


@dataclass(frozen=True)
class Seen:
    """What subscribers have of an artifact, and the draft that it is in.

    `rendered` is None if that is something else than the store holds. `is_ours`: whether the draft may be
    continued; one of somebody else may not.
    """

    rendered: Rendered | None
    name: str
    description: str
    status: ArtifactStatus
    draft: Draft
    is_ours: bool = False

    @classmethod
    def in_view(cls, view: ViewArtifact, *candidates: Rendered) -> "Seen":
        """Return what a view shows: the first of these forms that it has, or something else."""
        artifact, status = view.artifact, ArtifactStatus.BUILDING
        if artifact.complete or artifact.failed:
            status = ArtifactStatus.COMPLETE if artifact.complete else ArtifactStatus.FAILED
        rendered = (each for each in candidates if matches_view(each, artifact.parts))
        draft = Draft(view.position, view.attempt)
        return cls(next(rendered, None), artifact.name, artifact.description, status, draft)

    @property
    def is_closed(self) -> bool:
        return self.status is not ArtifactStatus.BUILDING

    def is_in(self, view: ViewArtifact) -> bool:
        """Whether a view still has this: it may have been lost, and put back."""
        is_same = (view.position, view.attempt) == (self.draft.position, self.draft.attempt)
        return is_same and self.rendered is not None and matches_view(self.rendered, view.artifact.parts)

    def rest(self, artifact: StoredArtifact, rendered: Rendered) -> list[Part] | None:
        """Return what has to be appended to show this; None if the whole has to be sent."""
        if self.rendered is None or (self.name, self.description) != (artifact.name, artifact.description):
            return None
        rest = continuation(self.rendered, rendered)
        is_rest = not self.is_closed or (not rest and self.status is artifact.status)
        return rest if is_rest else None

    def newer_draft(self, position: int, version: int) -> Draft:
        """Return the draft at a position, or behind it, that comes after this one."""
        return Draft(max(position, self.draft.position), max(version, self.draft.attempt + 1))


def chunks_to(
    artifact: StoredArtifact, rendered: Rendered, seen: Seen | None, position: int, version: int
) -> tuple[list[ArtifactChunk], Seen]:
    """Return the chunks after which subscribers see this, and what they have then.

    Content is published under `position`, or under that of a draft by somebody later; `version`, the one of
    the artifact, numbers the drafts there, and so tells the order of all who write it.
    """
    rest = seen.rest(artifact, rendered) if seen else None
    if seen is None or rest is None:
        draft = seen.newer_draft(position, version) if seen else Draft(position, version)
        mode, parts = "replace", [each.part for each in rendered]
    elif not rest and seen.status is artifact.status and (seen.is_ours or seen.is_closed):
        return [], replace(seen, rendered=rendered)
    else:
        # With nothing to add to somebody's draft, an empty extension fences what they may send yet.
        draft = seen.draft if seen.is_ours else seen.newer_draft(position, version)
        mode, parts = "extend", rest or [EMPTY]
    name, description, status = artifact.name, artifact.description, artifact.status
    chunks = make_chunks(
        artifact.artifact_id, parts, mode, draft, name=name, description=description, status=status
    )
    if status is ArtifactStatus.COMPLETE and (mode == "extend" or len(parts) > 1):
        content = content_of([each.part for each in rendered])
        chunks[-1] = chunks[-1].model_copy(update={"content": content})
    next_draft = replace(draft, index=draft.index + len(chunks))
    return chunks, Seen(rendered, name, description, status, next_draft, is_ours=True)


class _StaleError(Exception):
    """The artifact is no longer what it was when somebody looked."""


class _ContentNeededError(Exception):
    """What these parts hold has to be read from the store before the change can be published."""

    def __init__(self, indexes: frozenset[int]) -> None:
        super().__init__(f"the content of the parts {sorted(indexes)} has to be read first")
        self.indexes = indexes


@dataclass(frozen=True)
class _Known:
    """An artifact, the content that may be rendered of it in so much `room`, and what subscribers have of it.

    That is `seen` if this writer has published it, and else what the `view` shows.
    """

    artifact: StoredArtifact | None
    contents: Contents
    room: int
    view: ViewArtifact | None = None
    seen: Seen | None = None

    def seen_before(self, rendered: Rendered) -> Seen | None:
        """Return what subscribers have before a change after which this is to be seen."""
        if self.seen or self.view is None:
            return self.seen
        before = [render_parts(self.artifact, self.contents)] if self.artifact else []
        return Seen.in_view(self.view, rendered, *before)


@dataclass(eq=False)
class ArtifactPublisher:
    """Publishes what one writer does: an attempt at a model or a tool call, or the end of a task.

    `position` is that of the reply, or of the result of the call. Of a change that a view shows already,
    because a model's draft or an earlier attempt has published it, nothing is published again. `lease` is
    what corrections are published under. `reading` gets what subscribers see from the `store`.

    At most about 2 MB of each artifact that is building are held in memory.
    """

    store: Artifacts
    task: TaskRef
    position: int
    views: TaskViews
    _: KW_ONLY
    lease: Lease | None = None
    reading: Reading = read_contents

    def __post_init__(self) -> None:
        self._known: dict[_Key, _Known] = {}
        self._changing: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()

    async def apply(
        self, context_id: str, artifact_id: str, change: Change, *, operation_id: str = "", follows: str = ""
    ) -> StoredArtifact:
        """Change an artifact, and publish that; see `Artifacts.apply`.

        Of an operation that is done already, by somebody who may have died before it was published,
        subscribers get to see what came of it.

        `follows`: the last operation on it must be one whose id begins so, or else this one is refused.

        Raises:
            ArtifactOvertakenError: it is not.
        """
        key = context_id, artifact_id
        async with self._changing.setdefault(key, asyncio.Lock()):
            known, needed = self._known.pop(key, None), frozenset[int]()
            if known and _is_closing(change) and not await self._is_still_seen(artifact_id, known):
                known = None
            while True:
                try:
                    known = known or await self._look(key, change, needed)
                    after, published = await self._change(key, change, known, operation_id, follows)
                except (_StaleError, ArtifactReplacedError):
                    known = None
                except _ContentNeededError as error:
                    known, needed = None, error.indexes
                else:
                    if published is None:
                        await self.reconcile(*key)
                    elif after.status is ArtifactStatus.BUILDING:
                        self._known[key] = published
                    return after

    async def reconcile(
        self, context_id: str, artifact_id: str, *, drafted_at: int | None = None, is_over: bool = False
    ) -> None:
        """Show subscribers an artifact as the store holds it, where they see something else, or nothing.

        Of one that the store does not hold an empty text remains.
        `drafted_at`: only if they see the draft of the reply at this position. `is_over`: nothing follows in
        this task, so that one which another task goes on with is complete to them, and one that is not stored
        has failed.

        Raises:
            BlobsUnavailableError: its content cannot be read now.
            OvertakenError: a later attempt has claimed the call.
        """
        key = context_id, artifact_id
        while True:
            view = await self.views.artifact(self.task.task_id, artifact_id)
            if drafted_at is not None and (view is None or view.position != drafted_at):
                return
            artifact = await self._find(key)
            try:
                chunks = await self._correction(artifact_id, view, artifact, is_over=is_over)
            except (ArtifactMissingError, PartIndexError, ArtifactReplacedError):
                continue
            await self.publish(chunks)
            # What is published of a change that came between may have been dropped, being older than this.
            if not chunks or _state(await self._find(key)) == _state(artifact):
                return

    async def publish(self, chunks: Sequence[ArtifactChunk]) -> None:
        """Publish chunks, if there are any.

        Raises:
            OvertakenError: a later attempt has claimed the call.
        """
        if chunks:
            await self.views.publish(self.task.task_id, self.task.run_id, chunks, self.lease)

    async def shows(self, artifact_id: str, position: int, rendered: Rendered) -> bool:
        """Whether subscribers see this, and no more, in a draft at this position that goes on."""
        view = await self.views.artifact(self.task.task_id, artifact_id)
        if view is None or view.position != position:
            return False
        seen = Seen.in_view(view, rendered)
        return seen.rendered is not None and not seen.is_closed

    async def unfinished(self, written: Iterable[str] = ()) -> list[str] | None:
        """Return the artifacts that subscribers may see as unfinished; None if their view is lost.

        Those that were `written` are too, where subscribers do not see them at all.
        """
        complete = await self.views.artifacts_seen(self.task.task_id)
        if complete is None:
            return None
        ids = dict.fromkeys([*complete, *written])
        return [each for each in ids if each != RESPONSE_ARTIFACT and not complete.get(each)]

    async def _change(
        self, key: _Key, change: Change, known: _Known, operation_id: str, follows: str
    ) -> tuple[StoredArtifact, _Known | None]:
        """Make a change; return what is known then, None for an operation that the store knew already."""
        published: _Known | None = None

        def events_of(before: StoredArtifact | None, after: StoredArtifact) -> Sequence[ArtifactChunk]:
            nonlocal published
            published = None
            done = before.operations if before else ()
            if follows and not (done and done[-1].id.startswith(follows)):
                raise ArtifactOvertakenError(after.artifact_id)
            if _state(before) != _state(known.artifact):
                raise _StaleError
            contents = _changed_contents(known, change, after)
            rendered = render_parts(after, contents)
            seen = known.seen_before(rendered)
            chunks, seen = chunks_to(after, rendered, seen, self.position, after.version)
            published = _Known(after, contents, known.room, seen=seen)
            return chunks

        announcement = Announcement(self.task.task_id, self.task.run_id, events_of)
        after = await self.store.apply(*key, change, operation_id=operation_id, announcement=announcement)
        return after, published

    async def _find(self, key: _Key) -> StoredArtifact | None:
        with suppress(ArtifactMissingError):
            return await self.store.get_artifact(*key)
        return None

    async def _correction(
        self, artifact_id: str, view: ViewArtifact | None, artifact: StoredArtifact | None, *, is_over: bool
    ) -> list[ArtifactChunk]:
        """Return the chunks after which subscribers see what is stored; none if they do."""
        if artifact is None:
            if view is None:
                return []
            if view.artifact.parts == (EMPTY,) and (view.artifact.failed or not is_over):
                return []
            draft = Seen.in_view(view).newer_draft(self.position, 0)
            status = ArtifactStatus.FAILED if is_over else ArtifactStatus.BUILDING
            return make_chunks(artifact_id, [EMPTY], "replace", draft, status=status)
        contents = await self.reading(
            self.store, artifact, rendered_indexes(artifact, await self._room(view))
        )
        if is_over and artifact.status is ArtifactStatus.BUILDING:
            artifact = artifact.model_copy(update={"status": ArtifactStatus.COMPLETE})
        rendered = render_parts(artifact, contents)
        if view is None:
            return chunks_to(artifact, rendered, None, self.position, artifact.version)[0]
        seen = Seen.in_view(view, rendered)
        if seen.rest(artifact, rendered) == [] and seen.status is artifact.status:
            return []
        # What a later attempt at the same call publishes has to come after it.
        version = artifact.version if view.position < self.position else 0
        return chunks_to(artifact, rendered, seen, self.position, version)[0]

    async def _is_still_seen(self, artifact_id: str, known: _Known) -> bool:
        view = await self.views.artifact(self.task.task_id, artifact_id)
        return view is not None and known.seen is not None and known.seen.is_in(view)

    async def _look(self, key: _Key, change: Change, needed: frozenset[int]) -> _Known:
        """See what the store holds and what subscribers have.

        The store first: if it is unchanged when the change is made, so is what was published of it.
        """
        contents: Contents = {}
        artifact = await self._find(key)
        view = await self.views.artifact(self.task.task_id, key[1])
        room = await self._room(view)
        # What was deleted or replaced since it was found is noticed when the change is made.
        with suppress(ArtifactMissingError, PartIndexError):
            if artifact and not isinstance(change, Create):
                contents = await self.reading(self.store, artifact, rendered_indexes(artifact, room) | needed)
        return _Known(artifact, contents, room, view)

    async def _room(self, view: ViewArtifact | None) -> int:
        """Return for how many bytes of an artifact the view of the task has room; it has this of it now."""
        room = self.views.max_bytes - await self.views.size(self.task.task_id)
        if room >= RENDERED_BYTES or view is None:
            return room
        return room + len(view.artifact.model_dump_json().encode())


def _changed_contents(known: _Known, change: Change, after: StoredArtifact) -> dict[int, bytes | None]:
    """Return the content of the parts that may be rendered after a change.

    Raises:
        _ContentNeededError: a part may be rendered whose content is not known.
    """
    count = len(known.artifact.parts) if known.artifact else 0
    changed = {**known.contents, **_written(known.contents, change, count)}
    indexes = rendered_indexes(after, known.room)
    if missing := indexes - changed.keys():
        raise _ContentNeededError(missing)
    return {index: changed[index] for index in indexes}


def _written(contents: Contents, change: Change, count: int) -> Mapping[int, bytes]:
    """Return what a change makes of the contents of parts, of which there were so many."""
    match change:
        case Create():
            return {index: part.content for index, part in enumerate(change.parts)}
        case AddParts():
            return {index: part.content for index, part in enumerate(change.parts, count)}
        case Replace():
            return {change.index: change.part.content}
        case Append():
            index = change.index % count if count else 0
            content = contents.get(index)
            longer = {} if content is None else {index: content + change.content}
            return {**longer, **{number: part.content for number, part in enumerate(change.parts, count)}}
        case Complete() | Fail():
            return {}


def _is_closing(change: Change) -> bool:
    """Whether nobody puts the view right after this change."""
    match change:
        case Complete() | Fail():
            return True
        case Append() | AddParts():
            return change.last_chunk
        case _:
            return False


def _state(artifact: StoredArtifact | None) -> object:
    return artifact and (artifact.version, artifact.updated_at)
