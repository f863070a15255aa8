"""Content of messages and artifacts."""

import asyncio
import json
import math
import mimetypes
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeAlias, TypeVar, cast
from uuid import uuid4

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from pydantic import JsonValue

from everloop.client.errors import InvalidError

MAX_FILE = 64 * 1024 * 1024
"""Maximum bytes of a file in a message; servers usually accept less."""

ANY_MEDIA_TYPE = "application/octet-stream"

QUESTION = "question"
"""Key in the metadata of a message that names the question it answers."""

NO_ANSWER: Mapping[str, JsonValue] = {QUESTION: None}
"""Metadata of a message that answers no question, even if the task asks one when it arrives."""

Json: TypeAlias = "str | int | float | bool | Mapping[str, Json] | Sequence[Json] | None"
"""A JSON value to send; received ones are `JsonValue`s."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a message or an artifact: exactly one of `text`, `data`, `raw` and `url` is set.

    >>> Part(data={"city": "Rome"}).is_data
    True
    """

    text: str | None = None
    data: JsonValue = None
    """A JSON value; None means null if no other content is set."""
    raw: bytes | None = field(default=None, repr=False)
    """The content of a file."""
    url: str | None = None
    """The address of a file's content (`Client.download` fetches it)."""
    media_type: str = ""
    filename: str = ""
    metadata: Mapping[str, JsonValue] | None = None

    @classmethod
    def from_file(cls, path: str | Path, media_type: str = "") -> Self:
        """Return a part with the content of a file. Its type is derived from its name unless it is given.

        Raises:
            InvalidError: it cannot be read, or is too large for a message (64 MiB; servers may accept less).
        """
        path = Path(path).expanduser()
        try:
            size = path.stat().st_size
            if size > MAX_FILE:
                raise InvalidError(
                    f"{path} has {size:,} bytes, more than the {MAX_FILE:,} that go with a message; put it "
                    "where the agent can fetch it, and send Part(url=…)"
                )
            raw = path.read_bytes()
        except OSError as error:
            raise InvalidError(f"{path} cannot be read: {error.strerror or error}") from None
        guessed = media_type or mimetypes.guess_type(path.name)[0] or ANY_MEDIA_TYPE
        return cls(raw=raw, media_type=guessed, filename=path.name)

    @classmethod
    def of(cls, proto: pb.Part) -> Self:
        """Convert a part of an A2A message."""
        kind = proto.WhichOneof("content")
        return cls(
            text=proto.text if kind in {"text", None} else None,
            data=plain(proto.data) if kind == "data" else None,
            raw=proto.raw if kind == "raw" else None,
            url=proto.url if kind == "url" else None,
            media_type=proto.media_type,
            filename=proto.filename,
            metadata=plain_struct(proto.metadata) or None,
        )

    def to_proto(self) -> pb.Part:
        """Convert the part to A2A.

        Raises:
            InvalidError: its data or metadata are not JSON.
        """
        if self.text is not None:
            part = pb.Part(text=self.text)
        elif self.raw is not None:
            part = pb.Part(raw=self.raw)
        elif self.url is not None:
            part = pb.Part(url=self.url)
        else:
            part = pb.Part(data=_parsed(self.data, Value(), "the data"))
        part.media_type, part.filename = self.media_type, self.filename
        if self.metadata:
            part.metadata.CopyFrom(struct(self.metadata))
        return part

    @property
    def is_data(self) -> bool:
        """Whether it holds a JSON value."""
        return self.text is None and self.raw is None and self.url is None

    @property
    def continues(self) -> bool:
        """Whether it is plain text, which continues the text before it."""
        is_plain = self.media_type.partition(";")[0].strip().lower() in {"", "text/plain"}
        return self.text is not None and is_plain and not (self.filename or self.metadata)


Content = str | Part
"""Content of a message."""

Files = Sequence[str | Path | Part]
"""Paths of files, or parts."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A result of a task that has a name of its own: a text, a file, data."""

    id: str
    name: str = ""
    description: str = ""
    parts: tuple[Part, ...] = ()
    context_id: str = ""
    task_id: str = ""
    is_complete: bool = False
    """No more content follows, as far as is known: in a running task it may be complete earlier."""
    is_failed: bool = False
    """Its task left it unfinished."""
    metadata: Mapping[str, JsonValue] | None = None

    @property
    def text(self) -> str:
        """All its texts; empty for data and files."""
        return "".join(part.text or "" for part in self.parts)

    @property
    def data(self) -> JsonValue:
        """Its first JSON value, or None."""
        return next((part.data for part in self.parts if part.is_data), None)


def joined(parts: Iterable[Part], *, to_named: bool = False) -> tuple[Part, ...]:
    """Return the parts, with consecutive plain texts joined.

    `to_named`: a plain text also continues one with a name or a type, as in Everloop's messages.
    """
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if part.continues and last and (last.continues or (to_named and last.text is not None)):
            merged[-1] = replace(last, text=f"{last.text}{part.text}")
        else:
            merged.append(part)
    return tuple(part for part in merged if part.text != "" or not part.continues)


def text_of(parts: Sequence[pb.Part]) -> str:
    """Return the texts of a message; without any, its data as JSON."""
    texts = [part.text for part in parts if part.text.strip()]
    if texts:
        return "\n".join(texts)
    data = (plain(part.data) for part in parts if part.HasField("data"))
    return "\n".join(json.dumps(each, ensure_ascii=False) for each in data)


def struct(values: Mapping[str, Json]) -> Struct:
    """Convert metadata to A2A.

    Raises:
        InvalidError: they are not JSON.
    """
    return _parsed(dict(values), Struct(), "the metadata")


_M = TypeVar("_M", Struct, Value)
_DEEPEST = 100
"""Maximum depth of nested lists and objects that protobuf reads."""


def _parsed(value: Json, into: _M, what: str) -> _M:
    if problem := _problem_of(value):
        raise InvalidError(f"{what} cannot be sent as JSON: {problem}")
    try:
        # ParseDict accepts any JSON value for a Value; its annotation has objects only.
        return ParseDict(cast("dict[str, JsonValue]", value), into)
    except Exception as error:  # noqa: BLE001 -- protobuf has no common class of its errors
        raise InvalidError(f"{what} cannot be sent as JSON: {error}") from None


def _problem_of(value: object, place: str = "$", depth: int = 0) -> str:
    """Return the reason why JSON cannot hold a value; empty if it can."""
    if depth > _DEEPEST:
        return f"it is nested deeper than {_DEEPEST} levels"
    inside: Iterable[tuple[object, object]] = ()
    match value:
        case Mapping():
            inside = cast("Mapping[object, object]", value).items()
            if others := [key for key, _ in inside if not isinstance(key, str)]:
                return f"{place} has the key {others[0]!r}; keys are texts"
        case list() | tuple():
            inside = enumerate(cast("Sequence[object]", value))
        case _:
            return _problem_of_scalar(value, place)
    found = (_problem_of(each, f"{place}.{name}", depth + 1) for name, each in inside)
    return next(filter(None, found), "")


def _problem_of_scalar(value: object, place: str) -> str:
    match value:
        case str() if not _is_text(value):
            return f"{place} has half a character"
        case float() if not math.isfinite(value):
            return f"{place} is {value}; give a number, or None"
        case int() if not (abs(value) <= _LARGEST and float(value) == value):  # A2A carries doubles
            return f"{place} is a number that no double is; send it as a text"
        case str() | int() | float() | None:
            return ""
        case _:
            return f"{place} is of type {type(value).__name__}; give a text, a number, a list or a dict"


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


_LARGEST = int(sys.float_info.max)


def plain_struct(values: Struct) -> dict[str, JsonValue]:
    """Convert metadata to Python values."""
    return cast("dict[str, JsonValue]", _whole_numbers(cast("JsonValue", MessageToDict(values))))


def plain(value: Value) -> JsonValue:
    """Convert a JSON value to Python. Protobuf has no integers; whole numbers become integers again."""
    return _whole_numbers(cast("JsonValue", MessageToDict(value)))


def _whole_numbers(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Messages to send.


async def parts_of(content: tuple[Content, ...], files: Files, data: Json) -> list[Part]:
    """Return the parts of a message.

    Raises:
        InvalidError: it is empty, a part is invalid, or a file cannot be read.
    """
    if others := [each for each in cast("tuple[object, ...]", content) if not isinstance(each, str | Part)]:
        kind = type(others[0]).__name__
        raise InvalidError(f"a message has texts and parts, and no {kind}; give it as data=")
    parts = [Part(text=each) if isinstance(each, str) else each for each in content]
    for each in files:
        part = each if isinstance(each, Part) else await asyncio.to_thread(Part.from_file, each)
        parts.append(part)
    if data is not None:
        parts.append(data_part(data))
    if not parts:
        raise InvalidError("the message is empty; give a text, parts, files= or data=")
    return parts


def data_part(value: Json) -> Part:
    """Return a part that holds a JSON value."""
    return Part(data=cast("JsonValue", value))


def message_of(
    parts: Sequence[Part], metadata: Mapping[str, Json] | None, *, message_id: str, **ids: str
) -> pb.Message:
    """Return a message of the user; `ids` are those of context and task. Without an id it gets a new one.

    Raises:
        InvalidError: it has content that is neither text nor JSON.
    """
    try:
        return pb.Message(
            message_id=message_id or str(uuid4()),
            role=pb.Role.ROLE_USER,
            parts=[part.to_proto() for part in parts],
            metadata=struct(metadata) if metadata else None,
            **ids,
        )
    except UnicodeEncodeError:
        raise InvalidError("a text of the message has half a character; see where it was decoded") from None


def message_json(message: pb.Message) -> dict[str, JsonValue]:
    """Return a message as JSON."""
    return cast("dict[str, JsonValue]", MessageToDict(message))
