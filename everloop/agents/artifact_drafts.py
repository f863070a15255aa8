"""What a tool call is about to write into an artifact, read from arguments that a model still writes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from pydantic import JsonValue
from pydantic_core import from_json

from everloop.workflows.contract.messages import DataPart, FilePart, Part, TextPart
from everloop.workflows.contract.parts import filename_flaw, media_type_flaw

ARTIFACT_ID = ("artifact_id", "artifactId")
MEDIA_TYPE = ("media_type", "mediaType")
CONTENT_FIELDS = ("text", "data", "raw", "url")
"""One of these holds the content of a part."""

Values = Mapping[str, JsonValue]


class _Named(TypedDict):
    """What a part is called."""

    media_type: str
    filename: str


@dataclass(frozen=True)
class _Read:
    """Arguments without, and with, the string that is still being written; they are the same when whole."""

    known: Values
    open: Values
    is_whole: bool


@dataclass(frozen=True)
class ArtifactDraft:
    """The artifact as a call leaves it, as far as its arguments are written.

    `extends`: the parts are put behind those that the artifact has. `parts` is None where the content cannot
    be shown before the call has run: it is a file, or it changes what stands there already.
    """

    artifact_id: str
    name: str = ""
    description: str = ""
    parts: tuple[Part, ...] | None = ()
    extends: bool = False


DraftReader = Callable[[str], ArtifactDraft | None]
"""Reads the arguments of a call, as far as they are written; None while nobody knows what it does."""


def read_update(written: str) -> ArtifactDraft | None:
    """Read a call of `artifact_update`."""
    read = _read(written)
    append, artifact = read.known.get("append"), _fields(read.known.get("artifact"))
    artifact_id = _text(artifact, *ARTIFACT_ID)
    if not isinstance(append, bool) or not artifact_id:
        return None
    open_parts = _fields(read.open.get("artifact")).get("parts")
    return ArtifactDraft(
        artifact_id,
        name=_text(artifact, "name"),
        description=_text(artifact, "description"),
        parts=_parts(artifact.get("parts"), open_parts, is_whole=read.is_whole),
        extends=append,
    )


def read_creation(written: str) -> ArtifactDraft | None:
    """Read a call of `create_artifact`."""
    read = _read(written)
    if not (artifact_id := _text(read.known, *ARTIFACT_ID)):
        return None
    return ArtifactDraft(
        artifact_id,
        name=_text(read.known, "name"),
        description=_text(read.known, "description"),
        parts=_to_show(text_parts(_text(read.open, "content"), _text(read.known, *MEDIA_TYPE))),
    )


def read_text_append(written: str) -> ArtifactDraft | None:
    """Read a call of `append_artifact`."""
    read = _read(written)
    if not (artifact_id := _text(read.known, *ARTIFACT_ID)):
        return None
    return ArtifactDraft(artifact_id, parts=text_parts(_text(read.open, "content")), extends=True)


def read_data_append(written: str) -> ArtifactDraft | None:
    """Read a call of `append_artifact_data`; data are shown when they are whole."""
    read = _read(written)
    if not (artifact_id := _text(read.known, *ARTIFACT_ID)):
        return None
    parts = (DataPart(data=read.known.get("data")),) if read.is_whole else ()
    return ArtifactDraft(artifact_id, parts=parts, extends=True)


def read_claim(written: str) -> ArtifactDraft | None:
    """Read a call that changes an artifact in a way that is shown when it has run."""
    artifact_id = _text(_read(written).known, *ARTIFACT_ID)
    return ArtifactDraft(artifact_id, parts=None, extends=True) if artifact_id else None


def text_parts(content: str, media_type: str = "") -> tuple[Part, ...]:
    """Return the part that holds a text; none where nothing is said of it."""
    return (TextPart(text=content, media_type=media_type),) if content or media_type else ()


def written_part(fields: Values) -> Part:
    """Return the part that a model has written.

    Raises:
        ValueError: it holds none of text, data, raw and url, or several of them.
    """
    named = _named(fields)
    match content_field(fields):
        case "text":
            return TextPart(text=_text(fields, "text"), **named)
        case "data":
            return DataPart(data=fields.get("data"), **named)
        case "url":
            return FilePart(url=_text(fields, "url"), **_of_file(named))
        case _:
            return FilePart(content=_text(fields, "raw"), **_of_file(named))


def content_field(fields: Values) -> str:
    """Return which field holds the content: models like to send the others too, empty.

    Raises:
        ValueError: none does, or several do.
    """
    given = [name for name in CONTENT_FIELDS if name in fields]
    filled = [name for name in given if fields[name] not in (None, "")]
    if len(filled) > 1:
        raise ValueError(f"a part has one of text, data, raw and url, not {' and '.join(filled)}")
    if not given:
        raise ValueError("a part has one of text, data, raw and url")
    return (filled or given)[0]


def joined_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts as subscribers see them: a text that is not named in any way continues the one before.

    Where there is none to continue, an empty one is left out, unless it is all there is.
    """
    joined: list[Part] = []
    for part in parts:
        before = joined[-1] if joined else None
        if before is None or not isinstance(part, TextPart) or part.media_type or part.filename:
            joined.append(part)
        elif isinstance(before, TextPart):
            joined[-1] = before.model_copy(update={"text": before.text + part.text})
        elif part.text:
            joined.append(part)
    return tuple(joined)


def _parts(known: JsonValue, open_: JsonValue, *, is_whole: bool) -> tuple[Part, ...] | None:
    """Return the parts as far as they are written; of the last one only a text is read before its end."""
    if not isinstance(known, list) or not isinstance(open_, list):
        return ()
    written = [_fields(part) for part in open_]
    if any(part.get("raw") or part.get("url") for part in written):
        return None
    parts = [_closed_part(part) for part in written]
    if written and not is_whole:
        parts[-1] = _open_part(_fields(known[-1]) if len(known) == len(open_) else {}, written[-1])
    return joined_parts(_to_show([part for part in parts if part]))


def _to_show(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Leave out parts whose names the store will refuse: nobody gets to see those."""
    return tuple(p for p in parts if not (media_type_flaw(p.media_type) or filename_flaw(p.filename)))


def _open_part(known: Values, open_: Values) -> Part | None:
    text = _text(open_, "text")
    return TextPart(text=text, **_named(known)) if text else None


def _closed_part(fields: Values) -> Part | None:
    try:
        return written_part(fields)
    except ValueError:
        return None


def _read(written: str) -> _Read:
    try:
        whole = _fields(from_json(written))
    except ValueError:
        return _Read(_partial(written, True), _partial(written, "trailing-strings"), is_whole=False)
    return _Read(whole, whole, is_whole=True)


def _partial(written: str, strings: Literal[True, "trailing-strings"]) -> Values:
    try:
        return _fields(from_json(written, allow_partial=strings))
    except ValueError:  # not begun yet, or no JSON
        return {}


def _fields(value: JsonValue) -> Values:
    return value if isinstance(value, dict) else {}


def _text(fields: Values, *names: str) -> str:
    return next((value for name in names if isinstance(value := fields.get(name), str)), "")


def _named(fields: Values) -> _Named:
    return {"media_type": _text(fields, *MEDIA_TYPE), "filename": _text(fields, "filename")}


def _of_file(named: _Named) -> _Named:
    """Return how a file is called; one of which the model says no type is just bytes."""
    return {**named, "media_type": named["media_type"] or "application/octet-stream"}
