"""Publishes artifacts: what the store holds at version n is appended to the log of a task as version n.

A change is stored first. If the log has the version before it, the rest is appended. If not, because a writer
died or a view was lost, the stored artifact is published once more as a whole. The head of the log names its
version; nothing is compared with what subscribers have seen.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from secrets import token_hex
from weakref import WeakValueDictionary

from everloop.stores.artifacts.artifact_errors import (
    ArtifactMissingError,
    ArtifactReplacedError,
    PartIndexError,
)
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import AddParts, Append, Change, Complete, Create, Fail, Replace
from everloop.stores.artifacts.rendering import (
    RENDERED_BYTES,
    Contents,
    Rendered,
    continuation,
    read_contents,
    render_parts,
    rendered_indexes,
)
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import LoggedArtifact
from everloop.stores.scripts import Lease
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import ArtifactChunk, ChunkMode, content_of
from everloop.workflows.contract.messages import EMPTY, Part
from everloop.workflows.contract.tasks import TaskRef

Reading = Callable[[Artifacts, StoredArtifact, Iterable[int]], Awaitable[Contents]]
"""Reads parts of an artifact, as `read_contents` does."""

_MISSING = "0"
"""The version of an artifact that the store does not hold."""

_STATES = {
    ArtifactStatus.BUILDING: "open",
    ArtifactStatus.COMPLETE: "complete",
    ArtifactStatus.FAILED: "failed",
}


def version_of(artifact: StoredArtifact, room: int = RENDERED_BYTES) -> str:
    """Return the name of the content that a log has of a stored artifact.

    Numbers begin again when an artifact is deleted, so the time of its creation is part of the name; and so
    is the room that it was rendered in, if that is less than usual.
    """
    name = f"{artifact.version}.{artifact.created_at.timestamp():.6f}"
    return name if room >= RENDERED_BYTES else f"{name}/{room}"


def drafted_version(arguments: str, base: StoredArtifact | None) -> str:
    """Return the name of the content that the log has when a model has written a call, before it runs.

    `base` is the artifact that the call extends.
    """
    written = f"{version_of(base) if base else ''} {arguments}".encode(errors="replace")
    return f"~{hashlib.sha256(written).hexdigest()[:32]}"


def is_logged(logged: LoggedArtifact | None, artifact: StoredArtifact) -> bool:
    """Whether a log has an artifact as it is stored."""
    return logged is not None and logged.state == _STATES[artifact.status] and _has(logged.version, artifact)


def _has(version: str, artifact: StoredArtifact) -> bool:
    return version.partition("/")[0] == version_of(artifact)


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
    version: str = "",
    base: str = "",
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
            version=version if number == last else "",
            base=base,
        )
        for number, part in enumerate(parts)
    ]


@dataclass(frozen=True)
class _CachedArtifact:
    """An artifact of which the log has this version, rendered of contents in a room.

    Versions that showed nothing new may have followed the one that is `logged`.
    """

    version: str
    contents: Contents
    room: int
    logged: LoggedArtifact | None


@dataclass(eq=False)
class ArtifactPublisher:
    """Publishes what one writer does: an attempt at a model or a tool call, or the end of a task.

    `position` is where the reply stands, or the next one for what its calls write: all of them publish in the
    order of versions. `arguments` are those of a call of which the model has published a draft. `lease` is
    what corrections are published under. `reading` reads the `store`.

    At most about 1 MB of each artifact that is building is held in memory.
    """

    store: Artifacts
    task: TaskRef
    position: int
    views: TaskViews
    _: KW_ONLY
    arguments: str = ""
    lease: Lease | None = None
    reading: Reading = read_contents

    def __post_init__(self) -> None:
        self._cached: dict[str, _CachedArtifact] = {}
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def apply(
        self, context_id: str, artifact_id: str, change: Change, *, operation_id: str = "", follows: str = ""
    ) -> StoredArtifact:
        """Change an artifact, and publish that; see `Artifacts.apply`. It may be repeated."""
        operation_id = operation_id or token_hex(8)
        async with self._changing.setdefault(artifact_id, asyncio.Lock()):
            artifact = await self.store.apply(
                context_id, artifact_id, change, operation_id=operation_id, follows=follows
            )
            last = next((done.id for done in reversed(artifact.operations) if done.id), "")
            # Another one may have followed an operation that is done already.
            made = change if last == operation_id else None
            with suppress(ArtifactMissingError, PartIndexError, ArtifactReplacedError):  # others publish that
                await self._publish_change(artifact, made)
            return artifact

    async def reconcile(
        self, context_id: str, artifact_id: str, *, drafted_at: int | None = None, is_over: bool = False
    ) -> None:
        """Publish an artifact as the store holds it, unless the log has that.

        Of one that the store does not hold an empty text remains.
        `drafted_at`: only if the log has the draft of the reply at this position. `is_over`: nothing follows
        in this task, so that one which another task goes on with is complete to its subscribers, and one that
        is not stored has failed.

        Raises:
            BlobsUnavailableError: its content cannot be read now.
            OvertakenError: a later attempt has claimed the call.
        """
        while True:
            logged = await self._logged(artifact_id)
            if drafted_at is not None and (logged is None or logged.position != drafted_at):
                return
            artifact = await self._find(context_id, artifact_id)
            if artifact is None:
                await self.publish(self._withdrawal(artifact_id, logged, is_over=is_over))
                return
            if is_over and artifact.status is ArtifactStatus.BUILDING:
                artifact = artifact.model_copy(update={"status": ArtifactStatus.COMPLETE})
            if is_logged(logged, artifact):
                return
            room = await self._room(artifact_id)
            with suppress(ArtifactMissingError, PartIndexError, ArtifactReplacedError):
                contents = await self.reading(self.store, artifact, rendered_indexes(artifact, room))
                rendered = render_parts(artifact, contents)
                await self.publish(self._chunks(artifact, rendered, logged, version_of(artifact, room)))
                return

    async def publish(self, chunks: Sequence[ArtifactChunk]) -> None:
        """Publish chunks, if there are any.

        Raises:
            OvertakenError: a later attempt has claimed the call.
        """
        if chunks:
            await self.views.publish(self.task.task_id, self.task.run_id, chunks, self.lease)

    async def _publish_change(self, artifact: StoredArtifact, change: Change | None) -> None:
        """Publish a version of an artifact; the change that has made it is None if that is not known."""
        before = _before(artifact, change)
        known = self._cached.pop(artifact.artifact_id, None)
        if known and not (before and _has(known.version, before)):
            known = None
        if known is None or artifact.status is not ArtifactStatus.BUILDING:
            known = await self._look(artifact, known)
        if known is None:
            return
        version = version_of(artifact, known.room)
        is_next = before is not None and known.version == version_of(before, known.room)
        if is_next and isinstance(change, Fail):
            await self.publish(self._chunks(artifact, (), known.logged, version, rest=[]))
            return
        contents = await self._contents(artifact, change, known)
        rendered = render_parts(artifact, contents)
        rest: list[Part] | None = None
        if before and is_next:
            rest = _rest(before, artifact, contents, known.room)
        elif known.room >= RENDERED_BYTES and known.version == self._drafted(change, before):
            rest = [EMPTY]  # the model has published it; late chunks of its draft are refused from here on
        chunks = self._chunks(artifact, rendered, known.logged, version, rest=rest)
        await self.publish(chunks)
        if artifact.status is ArtifactStatus.BUILDING:
            last = chunks[-1] if chunks else None
            logged = LoggedArtifact(last.position, last.attempt, "open", version) if last else known.logged
            self._cached[artifact.artifact_id] = _CachedArtifact(version, contents, known.room, logged)

    async def _look(self, artifact: StoredArtifact, known: _CachedArtifact | None) -> _CachedArtifact | None:
        """Return what the log has of an artifact, None if it has this version, or a later one.

        It may have been lost since this publisher wrote to it.
        """
        logged = await self._logged(artifact.artifact_id)
        if is_logged(logged, artifact) or await self._is_overtaken(artifact, logged):
            return None
        if known and logged == known.logged:
            return known
        return _CachedArtifact(
            logged.version if logged else "", {}, await self._room(artifact.artifact_id), logged
        )

    def _chunks(
        self,
        artifact: StoredArtifact,
        rendered: Rendered,
        logged: LoggedArtifact | None,
        version: str,
        rest: list[Part] | None = None,
    ) -> list[ArtifactChunk]:
        """Return the chunks that append the rest of an artifact to the log, or all of it if that is None."""
        parts = [each.part for each in rendered]
        content = content_of(parts) if artifact.status is ArtifactStatus.COMPLETE else ()
        if len(content) == 1:
            rest = None  # the last chunk is all of it
        elif rest == [] and artifact.status is not ArtifactStatus.BUILDING:
            rest = [EMPTY]
        mode: ChunkMode = "replace" if rest is None else "extend"
        chunks = make_chunks(
            artifact.artifact_id,
            parts if rest is None else rest,
            mode,
            self._next_draft(logged, artifact.version),
            name=artifact.name,
            description=artifact.description,
            status=artifact.status,
            version=version,
            base=logged.version if logged and mode == "extend" else "",
        )
        if len(content) > 1:
            chunks[-1] = chunks[-1].model_copy(update={"content": content})
        return chunks

    def _withdrawal(
        self, artifact_id: str, logged: LoggedArtifact | None, *, is_over: bool
    ) -> list[ArtifactChunk]:
        """Return the chunk that leaves nothing of an artifact that the store does not hold."""
        if logged is None or (logged.version == _MISSING and (logged.state == "failed" or not is_over)):
            return []
        status = ArtifactStatus.FAILED if is_over else ArtifactStatus.BUILDING
        draft = self._next_draft(logged, 0)
        return make_chunks(artifact_id, [EMPTY], "replace", draft, status=status, version=_MISSING)

    def _next_draft(self, logged: LoggedArtifact | None, version: int) -> Draft:
        """Return the draft of a version: after the one before, also of a deleted artifact."""
        is_beside = logged is not None and logged.position == self.position
        return Draft(self.position, max(version, logged.attempt + 1) if logged and is_beside else version)

    def _drafted(self, change: Change | None, before: StoredArtifact | None) -> str | None:
        """Return the version that the log has if the model's draft of the call says what the change makes."""
        if not self.arguments or not isinstance(change, Create | Append | AddParts):
            return None
        return drafted_version(self.arguments, before)

    async def _is_overtaken(self, artifact: StoredArtifact, logged: LoggedArtifact | None) -> bool:
        """Whether a later version of an artifact is published, and not one that has been deleted."""
        number = logged.version.partition(".")[0] if logged else ""
        if not number.isdecimal() or int(number) <= artifact.version:
            return False
        return await self._find(artifact.context_id, artifact.artifact_id) != artifact

    async def _contents(
        self, artifact: StoredArtifact, change: Change | None, known: _CachedArtifact
    ) -> Contents:
        """Return the content of the parts that are rendered after a change, most of it without reading it."""
        written = _written(known.contents, change, len(artifact.parts))
        contents: dict[int, bytes | None] = {**known.contents, **written}
        indexes = rendered_indexes(artifact, known.room)
        if missing := indexes - contents.keys():
            contents |= await self.reading(self.store, artifact, missing)
        return {index: contents[index] for index in indexes}

    async def _logged(self, artifact_id: str) -> LoggedArtifact | None:
        return await self.views.logged_artifact(self.task.task_id, artifact_id)

    async def _find(self, context_id: str, artifact_id: str) -> StoredArtifact | None:
        with suppress(ArtifactMissingError):
            return await self.store.get_artifact(context_id, artifact_id)
        return None

    async def _room(self, artifact_id: str) -> int:
        """Return for how many bytes of an artifact the view of the task has room; it has this of it now."""
        room = self.views.max_bytes - await self.views.size(self.task.task_id)
        if room >= RENDERED_BYTES:
            return room
        shown = await self.views.artifact(self.task.task_id, artifact_id)
        return room + (len(shown.model_dump_json().encode()) if shown else 0)


def _before(artifact: StoredArtifact, change: Change | None) -> StoredArtifact | None:
    """Return an artifact before a change that goes on from there."""
    parts = list(artifact.parts)
    match change:
        case Append() | AddParts():
            del parts[len(parts) - len(change.parts) :]
        case Complete() | Fail():
            pass
        case _:
            return None
    if isinstance(change, Append):
        part = parts[change.index % len(parts)]
        parts[part.index] = part.model_copy(update={"size": part.size - len(change.content)})
    update = {"parts": tuple(parts), "status": ArtifactStatus.BUILDING, "version": artifact.version - 1}
    return artifact.model_copy(update=update)


def _written(contents: Contents, change: Change | None, count: int) -> Mapping[int, bytes]:
    """Return the contents of parts that a change has written; now there are so many of them."""
    match change:
        case Create() | AddParts():
            return {index: part.content for index, part in enumerate(change.parts, count - len(change.parts))}
        case Replace():
            return {change.index: change.part.content}
        case Append():
            first = count - len(change.parts)
            index = change.index % first
            content = contents.get(index)
            longer = {} if content is None else {index: content + change.content}
            return {**longer, **{number: part.content for number, part in enumerate(change.parts, first)}}
        case _:
            return {}


def _rest(
    before: StoredArtifact, artifact: StoredArtifact, contents: Contents, room: int
) -> list[Part] | None:
    """Return what a change has added to an artifact as it is rendered; None if it is more than that."""
    indexes = rendered_indexes(before, room)
    if indexes != frozenset(index for index in contents if index < len(before.parts)):
        return None  # a part has outgrown the room
    shorter = {index: (contents[index] or b"")[: before.parts[index].size] for index in indexes}
    return continuation(render_parts(before, shorter), render_parts(artifact, contents))
