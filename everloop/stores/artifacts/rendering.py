"""The view form of an artifact: its content in the view of a task.

Workers render artifacts to publish changes, gateways to restore a lost view, by the same rules. An artifact
shows at most a megabyte of content, in the order of its parts, and at most 100 KB of each data, rows or
binary part; less if the view of its task has less room. Other parts are links to the store, without a size
until the artifact is complete. Texts are joined as in every view (`everloop.workflows.contract.events`).
"""

import base64
import codecs
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import from_json

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError
from everloop.stores.artifacts.artifact_errors import ArtifactMissingError, PartIndexError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.workflows.contract.artifacts import ArtifactPart, ArtifactStatus, PartKind, StoredArtifact
from everloop.workflows.contract.messages import (
    EMPTY,
    DataPart,
    FilePart,
    Part,
    StoredPartRef,
    TextPart,
    is_plain,
)
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.parts import is_sendable
from everloop.workflows.contract.parts import is_text as is_text_type
from everloop.workflows.contract.tasks import Artifact, TaskView

RENDERED_BYTES = 1_000_000
"""Maximum of rendered bytes of an artifact."""

RENDERED_PART_BYTES = 100_000
"""Maximum of rendered bytes of a part that is not text."""

Contents = Mapping[int, bytes | None]
"""Index → content of the parts that may be rendered; None: it is lost."""

MEDIA_TYPES: dict[PartKind, str] = {
    "text": "text/plain",
    "file": "application/octet-stream",
    "data": "application/json",
    "rows": "application/x-ndjson",
}


@dataclass(frozen=True)
class RenderedPart:
    """A part in its view form. Rows may also be several lists, one after the other."""

    part: Part
    is_rows: bool = False


Rendered = tuple[RenderedPart, ...]


async def render_artifact(
    artifacts: Artifacts, artifact: StoredArtifact, room: int = RENDERED_BYTES
) -> Artifact:
    """Return a stored artifact in the form of a view with `room` for so many bytes.

    Raises:
        ArtifactMissingError, PartIndexError: it was deleted or replaced meanwhile.
        BlobsUnavailableError: its content cannot be read now.
    """
    contents = await read_contents(artifacts, artifact, rendered_indexes(artifact, room))
    return Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=tuple(each.part for each in render_parts(artifact, contents)),
        complete=artifact.status is ArtifactStatus.COMPLETE,
        failed=artifact.status is ArtifactStatus.FAILED,
    )


async def read_contents(
    artifacts: Artifacts, artifact: StoredArtifact, indexes: Iterable[int]
) -> dict[int, bytes | None]:
    """Read the complete content of parts of an artifact. A lost part stays a link, which reports the loss.

    Raises:
        ArtifactMissingError, PartIndexError: it was deleted or replaced meanwhile.
        BlobsUnavailableError: they cannot be read now.
    """
    return {index: await _read(artifacts, artifact, index) for index in indexes}


async def _read(artifacts: Artifacts, artifact: StoredArtifact, index: int) -> bytes | None:
    size, content = artifact.parts[index].size, bytearray()
    try:
        async for piece in artifacts.read_part(artifact.context_id, artifact.artifact_id, index, end=size):
            content += piece
    except (BlobMissingError, BlobCorruptError):
        return None
    return bytes(content)


def rendered_indexes(artifact: StoredArtifact, room: int = RENDERED_BYTES) -> frozenset[int]:
    """Return the indexes of parts that fit into the `room` of a view once they are complete."""
    indexes: set[int] = set()
    left = min(RENDERED_BYTES, room)
    for part in artifact.parts:
        if part.size <= (left if is_text(part) else min(left, RENDERED_PART_BYTES)):
            indexes.add(part.index)
            left -= part.size
    return frozenset(indexes)


def render_parts(artifact: StoredArtifact, contents: Contents) -> Rendered:
    """Return the view form of an artifact. A part without content in `contents` is a link."""
    is_complete = artifact.status is ArtifactStatus.COMPLETE
    parts: list[RenderedPart] = []
    for part in artifact.parts:
        content = contents.get(part.index)
        rendered = (
            None if content is None or part.url else _content_of(part, content, is_complete=is_complete)
        )
        parts.append(RenderedPart(rendered or _link(artifact, part), part.kind == "rows"))
    return _joined(parts)


def continuation(old: Rendered, new: Rendered) -> list[Part] | None:
    """Return the parts to append to `old` to make it `new`; None if it has to be replaced."""
    last = len(old) - 1
    if len(new) < len(old) or not all(map(_is_equal, old[:last], new[:last])):
        return None
    rest = _rest(old[last], new[last])
    return None if rest is None else [*rest, *(each.part for each in new[len(old) :])]


def is_text(part: ArtifactPart) -> bool:
    """Return True if a part is rendered as text, provided that it is valid UTF-8."""
    return part.kind == "text" or (part.kind == "file" and not part.url and is_text_type(part.media_type))


def _link(artifact: StoredArtifact, part: ArtifactPart) -> FilePart:
    if part.url:
        return FilePart(media_type=part.media_type, filename=part.filename, url=part.url)
    return FilePart(
        media_type=part.media_type or MEDIA_TYPES[part.kind],
        filename=part.filename,
        size=part.size if artifact.status is ArtifactStatus.COMPLETE else None,
        stored=StoredPartRef(artifact_id=artifact.artifact_id, index=part.index),
    )


def _content_of(part: ArtifactPart, content: bytes, *, is_complete: bool) -> Part | None:
    """Return a part with its content, if it can be rendered now."""
    match part.kind:
        case "data":
            return _data(part, content, part.media_type)
        case "rows":
            # The content becomes a list, whose media type is not that of JSON lines.
            return _data(part, b"[%s]" % b",".join(content.removesuffix(b"\n").split(b"\n")), "")
        case _:
            text = _decode(content, is_complete=is_complete) if is_text(part) else None
            if text is not None:
                return TextPart(text=text, media_type=part.media_type, filename=part.filename)
            is_small = part.kind == "file" and is_complete and len(content) <= RENDERED_PART_BYTES
            return _file(part, content) if is_small else None


def _decode(content: bytes, *, is_complete: bool) -> str | None:
    """Return the text. While more may follow, an incomplete character at the end is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(content, final=is_complete)
    except UnicodeDecodeError:
        return None


def _data(part: ArtifactPart, content: bytes, media_type: str) -> DataPart | None:
    try:
        value: JsonValue = from_json(content, allow_inf_nan=False)
    except ValueError:
        return None  # nested too deeply, or half a character: JSON that an event cannot carry
    if not is_sendable(value):
        return None
    return DataPart(data=value, media_type=media_type, filename=part.filename)


def _file(part: ArtifactPart, content: bytes) -> FilePart:
    return FilePart(
        media_type=part.media_type or MEDIA_TYPES[part.kind],
        filename=part.filename,
        size=len(content),
        content=base64.b64encode(content).decode(),
    )


def _joined(parts: Iterable[RenderedPart]) -> Rendered:
    joined: list[RenderedPart] = []
    for each in parts:
        before = joined[-1].part if joined else None
        if isinstance(before, TextPart) and isinstance(each.part, TextPart) and is_plain(each.part):
            text = before.text + each.part.text
            joined[-1] = RenderedPart(before.model_copy(update={"text": text}))
        elif not (joined and each.part == EMPTY):
            joined.append(each)
    return tuple(joined) or (RenderedPart(EMPTY),)


def _rest(old: RenderedPart, new: RenderedPart) -> list[Part] | None:
    """Return the parts that turn `old` into `new` when appended; None if that is impossible."""
    if _is_equal(old, new):
        return []
    match old.part, new.part:
        case TextPart(), TextPart():
            is_named_alike = (old.part.media_type, old.part.filename) == (
                new.part.media_type,
                new.part.filename,
            )
            if is_named_alike and new.part.text.startswith(old.part.text):
                return [TextPart(text=new.part.text[len(old.part.text) :])]
        case DataPart(data=list() as before), DataPart(data=list() as after) if new.is_rows:
            shortened = RenderedPart(new.part.model_copy(update={"data": after[: len(before)]}), is_rows=True)
            if _is_equal(old, shortened):
                return [new.part.model_copy(update={"data": after[len(before) :]})]
        case _:
            pass
    return None


def _is_equal(old: RenderedPart, new: RenderedPart) -> bool:
    return old.is_rows == new.is_rows and _is_same(old.part, new.part)


def _is_same(old: Part, new: Part) -> bool:
    if isinstance(old, DataPart) and isinstance(new, DataPart):
        return old.model_dump_json() == new.model_dump_json()  # in Python, 1 == True
    return old == new


# Artifacts for the views that workflows answer.


async def with_artifacts(view: TaskView, artifacts: Artifacts, max_bytes: int) -> TaskView:
    """Return a view with the artifacts of the task other than its answer, which its workflow does not store.

    Artifacts that exceed a view of `max_bytes` are links.

    Raises:
        BlobsUnavailableError: the content cannot be read now.
    """
    shown = {artifact.artifact_id for artifact in view.artifacts}
    rendered: list[Artifact] = []
    room = max_bytes - len(view.model_dump_json().encode())
    for stored in await artifacts.list_artifacts(context_key(view.owner, view.context_id), view.task_id):
        if stored.is_input or stored.artifact_id in shown:
            continue
        try:
            rendered.append(await render_artifact(artifacts, stored, room))
        except (ArtifactMissingError, PartIndexError):
            continue  # removed or replaced meanwhile, by a process that publishes the change
        room -= len(rendered[-1].model_dump_json().encode())
    return view.model_copy(update={"artifacts": (*rendered, *view.artifacts)})
