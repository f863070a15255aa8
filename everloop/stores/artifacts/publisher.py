"""Publishes artifacts: version n in the store is appended to the log of a task as version n.

A change is stored first. If the log has the version before it, the difference is appended. Otherwise a writer
has died or a view was lost, and the complete stored artifact is published again. The head of the log names
its version; nothing is compared with the chunks that subscribers have received.
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
"""The version of an artifact that is missing in the store."""

_STATES = {
    ArtifactStatus.BUILDING: "open",
    ArtifactStatus.COMPLETE: "complete",
    ArtifactStatus.FAILED: "failed",
}


def version_of(artifact: StoredArtifact, room: int = RENDERED_BYTES) -> str:
    """Return the version of a stored artifact in a log.

    Numbers begin again after a deletion, so the time of creation is part of the version. So is the room for
    its rendering, if that is less than usual.
    """
    name = f"{artifact.version}.{artifact.created_at.timestamp():.6f}"
    return name if room >= RENDERED_BYTES else f"{name}/{room}"


def drafted_version(arguments: str, base: StoredArtifact | None) -> str:
    """Return the version in the log after a model has written a call and before the call runs.

    `base` is the artifact that the call extends.
    """
    written = f"{version_of(base) if base else ''} {arguments}".encode(errors="replace")
    return f"~{hashlib.sha256(written).hexdigest()[:32]}"


def is_logged(logged: LoggedArtifact | None, artifact: StoredArtifact) -> bool:
    """Return True if a log has the stored version of an artifact."""
    return logged is not None and logged.state == _STATES[artifact.status] and _has(logged.version, artifact)


def _has(version: str, artifact: StoredArtifact) -> bool:
    return version.partition("/")[0] == version_of(artifact)


@dataclass(frozen=True)
class Draft:
    """The draft of an artifact that chunks belong to, and the index of the next chunk."""

    position: int
    attempt: int
    index: int = 0


def make_chunks(  # noqa: PLR0913 -- the fields of a chunk
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
    """Return the chunks that carry parts of an artifact. The last one carries its status and version."""
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
    """An artifact whose version is in the log, rendered from contents in a room.

    Versions without a visible change may have followed the `logged` one.
    """

    version: str
    contents: Contents
    room: int
    logged: LoggedArtifact | None


@dataclass(eq=False)
class ArtifactPublisher:
    """Publishes the changes of one writer: an attempt at a model or a tool call, or the end of a task.

    `position` is the position of the reply, or the next one for changes by its calls: all of them publish in
    the order of versions. `arguments` are those of a call whose draft the model has published. Corrections
    are published under `lease`. `reading` reads the `store`.

    Memory holds at most about 1 MB of each artifact that is building.
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
        """Change an artifact and publish the change; see `Artifacts.apply`. May be repeated."""
        operation_id = operation_id or token_hex(8)
        async with self._changing.setdefault(artifact_id, asyncio.Lock()):
            artifact = await self.store.apply(
                context_id, artifact_id, change, operation_id=operation_id, follows=follows
            )
            last = next((done.id for done in reversed(artifact.operations) if done.id), "")
            # If this operation was done before, another one may have followed.
            made = change if last == operation_id else None
            with suppress(ArtifactMissingError, PartIndexError, ArtifactReplacedError):  # others publish that
                await self._publish_change(artifact, made)
            return artifact

    async def reconcile(
        self, context_id: str, artifact_id: str, *, drafted_at: int | None = None, is_over: bool = False
    ) -> None:
        """Publish the stored version of an artifact, unless the log has it.

        An artifact that is missing in the store is replaced by an empty text. With `drafted_at`, nothing is
        published unless the log has the draft of the reply at this position. `is_over`: the task makes no
        more changes. An artifact that another task continues then counts as complete for subscribers, and one
        that is not stored as failed.

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
        """Publish a version of an artifact. `change` has made it; None if unknown."""
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
        """Return the state of an artifact in the log, None if the log has this version or a later one.

        The log may have been lost since this publisher wrote to it.
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
        """Return the chunks that append `rest` to an artifact in the log, or replace it if `rest` is None."""
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
        """Return the chunk that empties an artifact that is missing in the store."""
        if logged is None or (logged.version == _MISSING and (logged.state == "failed" or not is_over)):
            return []
        status = ArtifactStatus.FAILED if is_over else ArtifactStatus.BUILDING
        draft = self._next_draft(logged, 0)
        return make_chunks(artifact_id, [EMPTY], "replace", draft, status=status, version=_MISSING)

    def _next_draft(self, logged: LoggedArtifact | None, version: int) -> Draft:
        """Return the draft of a version. It follows the logged draft, even that of a deleted artifact."""
        is_beside = logged is not None and logged.position == self.position
        return Draft(self.position, max(version, logged.attempt + 1) if logged and is_beside else version)

    def _drafted(self, change: Change | None, before: StoredArtifact | None) -> str | None:
        """Return the version in the log if the model's draft of the call equals the result of the change."""
        if not self.arguments or not isinstance(change, Create | Append | AddParts):
            return None
        return drafted_version(self.arguments, before)

    async def _is_overtaken(self, artifact: StoredArtifact, logged: LoggedArtifact | None) -> bool:
        """Return True if the log has a later version of an artifact, and it is not of a deleted one."""
        number = logged.version.partition(".")[0] if logged else ""
        if not number.isdecimal() or int(number) <= artifact.version:
            return False
        return await self._find(artifact.context_id, artifact.artifact_id) != artifact

    async def _contents(
        self, artifact: StoredArtifact, change: Change | None, known: _CachedArtifact
    ) -> Contents:
        """Return the contents of the rendered parts after a change. Most need not be read from the store."""
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
        """Return the room for an artifact in the view of the task in bytes, including its present size."""
        room = self.views.max_bytes - await self.views.size(self.task.task_id)
        if room >= RENDERED_BYTES:
            return room
        shown = await self.views.artifact(self.task.task_id, artifact_id)
        return room + (len(shown.model_dump_json().encode()) if shown else 0)


def _before(artifact: StoredArtifact, change: Change | None) -> StoredArtifact | None:
    """Return the artifact that a change has extended; None if the change has replaced it."""
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
    """Return the contents of parts that a change has written. `count` is the number of parts after it."""
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
    """Return the rendered parts that a change has appended to an artifact; None for other changes."""
    indexes = rendered_indexes(before, room)
    if indexes != frozenset(index for index in contents if index < len(before.parts)):
        return None  # a part has outgrown the room
    shorter = {index: (contents[index] or b"")[: before.parts[index].size] for index in indexes}
    return continuation(render_parts(before, shorter), render_parts(artifact, contents))
