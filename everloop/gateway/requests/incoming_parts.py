"""Parts of messages, validated and in our own terms, and the media types of agent and client. Pure.

Source: A2A 1.0 §4.1.6 (Part). Bytes from a client are stored as an artifact of the context. A URL stays
a URL: this server fetches none, as a client could make it read internal addresses.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value
from pydantic import JsonValue

from everloop.agents.agent import Agent
from everloop.gateway.requests.fields import MAX_PARTS
from everloop.stores.artifacts.changes import NewPart
from everloop.workflows.contract.messages import (
    DataPart,
    FilePart,
    Part,
    StoredPartRef,
    TextPart,
    UserMessage,
)
from everloop.workflows.contract.parts import (
    essence,
    filename_problem,
    is_text,
    media_type_problem,
    url_problem,
)

MAX_FILES = 100
"""Maximum files of a message, including copies and URLs: they are stored one by one before the task
starts."""

MAX_EXACT_INTEGER = 2**53
"""Protobuf carries JSON numbers as doubles; whole numbers are exact up to this one."""

BYTES = "application/octet-stream"
"""Default media type."""


@dataclass(frozen=True)
class InputFile:
    """File from a client, and the id of its artifact: the same id for the same file."""

    artifact_id: str
    part: NewPart


def read_parts(parts: Sequence[pb.Part]) -> tuple[tuple[Part, ...], tuple[InputFile, ...]]:
    """Return the parts of a message, and its files with content, without duplicates.

    Raises:
        InvalidParamsError: there are no parts, or too many, or one is invalid; the text names it.
    """
    if not parts:
        raise InvalidParamsError("message.parts is empty; send at least one part with text, data or a file")
    if len(parts) > MAX_PARTS:
        raise InvalidParamsError(f"message.parts has {len(parts)} parts; one message may have {MAX_PARTS}")
    count = sum(part.WhichOneof("content") in {"raw", "url"} for part in parts)
    if count > MAX_FILES:
        raise InvalidParamsError(f"message.parts has {count} files; one message may have {MAX_FILES}")
    files: dict[str, InputFile] = {}
    read = tuple(_read_part(part, f"message.parts[{index}]", files) for index, part in enumerate(parts))
    if not any(isinstance(part, DataPart | FilePart) or part.text.strip() for part in read):
        raise InvalidParamsError("message.parts has no content: all its texts are empty")
    return read, tuple(files.values())


def _read_part(part: pb.Part, field: str, files: dict[str, InputFile]) -> Part:
    if problem := media_type_problem(part.media_type):
        raise InvalidParamsError(f"{field}.mediaType {problem}")
    if problem := filename_problem(part.filename):
        raise InvalidParamsError(f"{field}.filename {problem}")
    name, semicolon, parameters = part.media_type.partition(";")
    media_type = f"{name.lower()}{semicolon}{parameters}"
    metadata = read_struct(part.metadata, f"{field}.metadata")
    named: dict[str, Any] = {"filename": part.filename, "metadata": metadata}
    match part.WhichOneof("content"):
        case "text":
            return TextPart(text=part.text, media_type=media_type, **named)
        case "data":
            return DataPart(data=_read_value(part.data, field), media_type=media_type, **named)
        case "url":
            if problem := url_problem(part.url):
                raise InvalidParamsError(f"{field}.url {problem}")
            return FilePart(url=part.url, media_type=media_type or BYTES, **named)
        case "raw":
            file = _file(part.raw, media_type or BYTES, part.filename)
            files[file.artifact_id] = file
            return _file_part(file, metadata)
        case _:
            raise InvalidParamsError(f"{field} is empty; give it text, data, or a file as raw bytes or url")


def _file(content: bytes, media_type: str, filename: str) -> InputFile:
    digest = hashlib.sha256(f"{media_type}\x1f{filename}\x1f".encode())
    digest.update(content)
    return InputFile(
        artifact_id=f"input-{digest.hexdigest()[:24]}",
        part=NewPart(kind="file", content=content, media_type=media_type, filename=filename),
    )


def _file_part(file: InputFile, metadata: dict[str, JsonValue]) -> FilePart:
    return FilePart(
        media_type=file.part.media_type,
        filename=file.part.filename,
        size=len(file.part.content),
        stored=StoredPartRef(artifact_id=file.artifact_id),
        metadata=metadata,
    )


# Messages that are large. A task works on all its content in one thread, so it gets large parts as files.

MAX_INLINE_BYTES = 1_000_000
"""Size of a message (`size_of`) up to which all its texts and data stay in it."""

VALUE_BYTES = 20
"""Size of each value in data and metadata, beside its JSON: a task takes about as long for it."""


def size_of(message: UserMessage) -> int:
    """Return the size of a message by the work that it makes: its bytes of JSON, and more for values."""
    values = _of_values(message.metadata, *map(_values, message.parts))
    return len(message.model_dump_json().encode()) + values


def with_files(message: UserMessage) -> tuple[UserMessage, tuple[InputFile, ...]]:
    """Return a message with files in place of the largest texts and data, until it is small; and these files.

    The same message has the same files.

    Raises:
        InvalidParamsError: its files are too many, or it is large without its texts and data.
    """
    size = size_of(message)
    if size <= MAX_INLINE_BYTES:
        return message, ()
    parts, files = list(message.parts), dict[str, InputFile]()
    sizes = [_part_size(part) for part in parts]
    for index in sorted(range(len(parts)), key=lambda index: -sizes[index]):
        part = parts[index]
        if size <= MAX_INLINE_BYTES:
            break
        if not isinstance(part, FilePart):
            file, parts[index] = _as_file(part)
            files[file.artifact_id] = file
            size += _part_size(parts[index]) - sizes[index]
    if size > MAX_INLINE_BYTES:
        raise InvalidParamsError(
            f"the message has more than {MAX_INLINE_BYTES} bytes beside its texts, data and files; send less "
            "metadata"
        )
    if sum(isinstance(part, FilePart) for part in parts) > MAX_FILES:
        raise InvalidParamsError(
            f"of a message with more than {MAX_INLINE_BYTES} bytes the largest texts and data become files; "
            f"this one would have more than {MAX_FILES} files: send fewer parts"
        )
    return message.model_copy(update={"parts": tuple(parts)}), tuple(files.values())


def _part_size(part: Part) -> int:
    return len(part.model_dump_json().encode()) + _of_values(_values(part))


def _values(part: Part) -> JsonValue:
    return [part.metadata, part.data] if isinstance(part, DataPart) else part.metadata


def _of_values(*values: JsonValue) -> int:
    return VALUE_BYTES * sum(map(_count, values))


def _count(value: JsonValue) -> int:
    match value:
        case list():
            return 1 + sum(map(_count, value))
        case dict():
            return 1 + sum(map(_count, value.values()))
        case _:
            return 1


def _as_file(part: TextPart | DataPart) -> tuple[InputFile, FilePart]:
    if isinstance(part, TextPart):
        content, media_type = part.text.encode(), _UNNAMED["text"]
    else:
        content, media_type = orjson.dumps(part.data, option=orjson.OPT_SORT_KEYS), _UNNAMED["data"]
    if is_text(part.media_type):  # a model reads it; its charset was that of other bytes
        media_type = essence(part.media_type)
    file = _file(content, media_type, part.filename)
    return file, _file_part(file, part.metadata)


def read_struct(struct: Struct, field: str) -> dict[str, JsonValue]:
    """Return metadata; errors call it `field`."""
    return {key: _read_value(value, field) for key, value in struct.fields.items()}


def _read_value(value: Value, field: str) -> JsonValue:
    try:
        return _with_integers(MessageToDict(value))
    except ValueError:
        raise InvalidParamsError(
            f"{field} has a number that is infinite, or none, which JSON cannot hold; send another, or a text"
        ) from None


def _with_integers(value: JsonValue) -> JsonValue:
    """Restore whole numbers after their conversion to doubles: 3 arrives as 3.0."""
    match value:
        case float() if value.is_integer() and abs(value) <= MAX_EXACT_INTEGER:
            return int(value)
        case list():
            return [_with_integers(item) for item in value]
        case dict():
            return {key: _with_integers(item) for key, item in value.items()}
        case _:
            return value


# Whether an agent accepts the parts of a message, and returns types that its client accepts.
#
# Source: A2A 1.0 §3.1.1 and §3.3.2 (ContentTypeNotSupportedError), §3.2.2 (acceptedOutputModes).

_UNNAMED = {"text": "text/plain", "data": "application/json", "raw": BYTES, "url": BYTES}
"""Default media types of parts."""


def check_content_types(params: pb.SendMessageRequest, agent: Agent) -> None:
    """Check that the agent accepts every part of the message, and returns a type that the client accepts.

    An agent without declared modes accepts and returns any type.

    Raises:
        ContentTypeNotSupportedError: names the part or the modes, and the accepted ones.
    """
    for index, part in enumerate(params.message.parts):
        media_type = part.media_type or _UNNAMED.get(part.WhichOneof("content") or "", "text/plain")
        if agent.input_modes and not _fits_any(media_type, agent.input_modes):
            raise ContentTypeNotSupportedError(
                f"message.parts[{index}] is {media_type[:100]!r}; agent {agent.id!r} takes "
                f"{', '.join(agent.input_modes)}"
            )
    accepted = params.configuration.accepted_output_modes
    if accepted and agent.output_modes and not any(_meet(mode, agent.output_modes) for mode in accepted):
        raise ContentTypeNotSupportedError(
            f"configuration.acceptedOutputModes has nothing that agent {agent.id!r} gives: "
            f"{', '.join(agent.output_modes)}; accept one of these, or leave it out"
        )


def _meet(accepted: str, given: Sequence[str]) -> bool:
    """Whether a mode that a client accepts, which may be a range, matches one that an agent returns."""
    return _fits_any(accepted, given) or any(_fits(mode, accepted) for mode in given)


def _fits_any(media_type: str, modes: Sequence[str]) -> bool:
    return any(_fits(media_type, mode) for mode in modes)


def _fits(media_type: str, mode: str) -> bool:
    """Whether a type matches a mode. Modes may be ranges (`image/*`), and, as in 0.3, `text`."""
    kind, _, subtype = media_type.partition(";")[0].strip().lower().partition("/")
    accepted, _, accepted_subtype = mode.partition(";")[0].strip().lower().partition("/")
    return accepted in {"*", kind} and (accepted_subtype in {"", "*", subtype} or not subtype)
