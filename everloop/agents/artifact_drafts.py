"""Drafts of artifacts, from complete or partial arguments of a model's call."""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, Field, JsonValue, ValidationError, model_validator
from pydantic_core import from_json

from everloop.workflows.contract.messages import DataPart, FilePart, Part, TextPart, join_texts
from everloop.workflows.contract.parts import filename_problem, media_type_problem, url_problem

Values = Mapping[str, JsonValue]

MediaType = Annotated[
    str,
    Field(
        validation_alias=AliasChoices("media_type", "mediaType"),
        description="MIME type, say text/markdown. Give it before the content.",
    ),
]


class WrittenPart(BaseModel):
    """A part: one of text, data, raw and url."""

    media_type: MediaType = ""
    filename: str = Field(default="", description="File name, if it is a file. Give it before the content.")
    text: str | None = Field(default=None, description="The content, if it is text.")
    data: JsonValue = Field(default=None, description="The content, if it is a JSON value.")
    raw: str | None = Field(default=None, description="The content in base64, if it is binary.")
    url: str | None = Field(default=None, description="http(s) address of the content, if it lies elsewhere.")

    @model_validator(mode="after")
    def _holds_one_content(self) -> "WrittenPart":
        if self._content == "url" and (problem := url_problem(self.url or "")):
            raise ValueError(f"url {problem}")
        _ = self.part
        return self

    @property
    def part(self) -> Part:
        """The part in the form of the artifact store."""
        media_type, filename = self.media_type, self.filename
        match self._content:
            case "text":
                return TextPart(text=self.text or "", media_type=media_type, filename=filename)
            case "data":
                return DataPart(data=self.data, media_type=media_type, filename=filename)
            case _:  # without a type it is just bytes
                media_type, raw = media_type or "application/octet-stream", self.raw or ""
                size = _size_of(raw) if raw else None
                url = self.url or ""
                return FilePart(content=raw, url=url, size=size, media_type=media_type, filename=filename)

    @property
    def _content(self) -> str:
        """The field with the content: models often send the others too, empty."""
        given = [name for name in ("text", "data", "raw", "url") if name in self.model_fields_set]
        filled = [name for name in given if getattr(self, name) not in (None, "")]
        if len(filled) > 1:
            raise ValueError(f"a part has one of text, data, raw and url, not {' and '.join(filled)}")
        if not given:
            raise ValueError("a part has one of text, data, raw and url")
        return (filled or given)[0]


def _size_of(content: str) -> int:
    try:
        return len(b64decode(content, validate=True))
    except ValueError:
        raise ValueError("raw is no base64; send text as text") from None


@dataclass(frozen=True)
class _Read:
    """Arguments without, and with, the unfinished string; they are the same when complete."""

    complete: Values
    open: Values
    is_finished: bool


@dataclass(frozen=True)
class ArtifactDraft:
    """The artifact after a call, from the arguments received until now.

    `extends`: the parts are appended to those of the artifact. `parts` is None if the content cannot be
    shown before the call has run: it is a file, or it changes existing content.
    """

    artifact_id: str
    name: str = ""
    description: str = ""
    parts: tuple[Part, ...] | None = ()
    extends: bool = False


DraftReader = Callable[[str], ArtifactDraft | None]
"""Reads the arguments of a call, complete or partial; None until the draft can be determined."""


def read_update(written: str) -> ArtifactDraft | None:
    """Read a call of `artifact_update`."""
    read = _read(written)
    append, artifact = read.complete.get("append"), _fields(read.complete.get("artifact"))
    if not isinstance(append, bool):
        return None
    open_parts = _fields(read.open.get("artifact")).get("parts")
    return _draft(
        artifact, _parts(artifact.get("parts"), open_parts, is_finished=read.is_finished), extends=append
    )


def read_creation(written: str) -> ArtifactDraft | None:
    """Read a call of `create_artifact`."""
    read = _read(written)
    parts = _to_show(text_parts(_text(read.open, "content"), _media_type(read.complete)))
    return _draft(read.complete, parts)


def read_text_append(written: str) -> ArtifactDraft | None:
    """Read a call of `append_artifact`."""
    read = _read(written)
    return _draft(read.complete, text_parts(_text(read.open, "content")), extends=True)


def read_data_append(written: str) -> ArtifactDraft | None:
    """Read a call of `append_artifact_data`; data are shown when they are complete."""
    read = _read(written)
    return _draft(
        read.complete, (DataPart(data=read.complete.get("data")),) if read.is_finished else (), extends=True
    )


def read_claim(written: str) -> ArtifactDraft | None:
    """Read a call whose change of an artifact is shown after it has run."""
    return _draft(_read(written).complete, None, extends=True)


def _draft(fields: Values, parts: tuple[Part, ...] | None, *, extends: bool = False) -> ArtifactDraft | None:
    """Return the draft of these arguments; None until they have the id of the artifact."""
    if not (artifact_id := _text(fields, "artifact_id", "artifactId")):
        return None
    return ArtifactDraft(artifact_id, _text(fields, "name"), _text(fields, "description"), parts, extends)


def text_parts(content: str, media_type: str = "") -> tuple[Part, ...]:
    """Return the part of a text; empty without content."""
    return (TextPart(text=content, media_type=media_type),) if content or media_type else ()


def _parts(complete: JsonValue, open_: JsonValue, *, is_finished: bool) -> tuple[Part, ...] | None:
    """Return the parts received until now; of an unfinished last part only a text is read."""
    if not isinstance(complete, list) or not isinstance(open_, list):
        return ()
    written = [_fields(part) for part in open_]
    if any(part.get("raw") or part.get("url") for part in written):
        return None
    parts = [_closed_part(part) for part in written]
    if written and not is_finished:
        parts[-1] = _open_part(_fields(complete[-1]) if len(complete) == len(open_) else {}, written[-1])
    return join_texts(_to_show([part for part in parts if part]))


def _to_show(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Leave out parts with names that the store will reject: they are never shown."""
    return tuple(p for p in parts if not (media_type_problem(p.media_type) or filename_problem(p.filename)))


def _open_part(fields: Values, open_: Values) -> Part | None:
    media_type, filename = _media_type(fields), _text(fields, "filename")
    text = _text(open_, "text")
    return TextPart(text=text, media_type=media_type, filename=filename) if text else None


def _closed_part(fields: Values) -> Part | None:
    try:
        return WrittenPart.model_validate(fields).part
    except ValidationError:
        return None


def _read(written: str) -> _Read:
    try:
        values = _fields(from_json(written))
    except ValueError:
        return _Read(_partial(written, True), _partial(written, "trailing-strings"), is_finished=False)
    return _Read(values, values, is_finished=True)


def _partial(written: str, strings: Literal[True, "trailing-strings"]) -> Values:
    try:
        return _fields(from_json(written, allow_partial=strings))
    except ValueError:  # not begun yet, or not JSON
        return {}


def _fields(value: JsonValue) -> Values:
    return value if isinstance(value, dict) else {}


def _text(fields: Values, *names: str) -> str:
    return next((value for name in names if isinstance(value := fields.get(name), str)), "")


def _media_type(fields: Values) -> str:
    return _text(fields, "media_type", "mediaType")
