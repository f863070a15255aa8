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
    StoredPart,
    TextPart,
    UserMessage,
)
from everloop.workflows.contract.parts import filename_problem, media_type_problem, url_problem

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
            stored = StoredPart(artifact_id=file.artifact_id)
            return FilePart(media_type=media_type or BYTES, size=len(part.raw), stored=stored, **named)
        case _:
            raise InvalidParamsError(f"{field} is empty; give it text, data, or a file as raw bytes or url")


def _file(content: bytes, media_type: str, filename: str) -> InputFile:
    digest = hashlib.sha256(f"{media_type}\x1f{filename}\x1f".encode())
    digest.update(content)
    return InputFile(
        artifact_id=f"input-{digest.hexdigest()[:24]}",
        part=NewPart(kind="file", content=content, media_type=media_type, filename=filename),
    )


# What is too large for a task, which works on all that it gets in one thread: it gets such parts as files.

MAX_INLINE_BYTES = 1_000_000
"""Of a message as JSON that its task gets."""


def with_large_as_files(message: UserMessage) -> tuple[UserMessage, tuple[InputFile, ...]]:
    """Return a message whose largest texts and data are files, until it is small, and these files.

    The same message has the same files.

    Raises:
        InvalidParamsError: it is large all the same, or would have too many files.
    """
    parts, files = list(message.parts), dict[str, InputFile]()
    sizes = [len(part.model_dump_json().encode()) for part in parts]
    size = len(message.model_dump_json().encode())
    for index in sorted(range(len(parts)), key=lambda index: -sizes[index]):
        part = parts[index]
        if size <= MAX_INLINE_BYTES:
            break
        if not isinstance(part, FilePart):
            file, parts[index] = _as_file(part)
            files[file.artifact_id] = file
            size += len(parts[index].model_dump_json().encode()) - sizes[index]
    if sum(isinstance(part, FilePart) for part in parts) > MAX_FILES:
        raise InvalidParamsError(
            f"the message would have more than {MAX_FILES} files: of one with more than {MAX_INLINE_BYTES} "
            "bytes the largest texts and data become files; send fewer and larger ones"
        )
    if size > MAX_INLINE_BYTES:
        raise InvalidParamsError(
            f"metadata and addresses of the message have more than {MAX_INLINE_BYTES} bytes; send what is "
            "large as text, data or files"
        )
    return message.model_copy(update={"parts": tuple(parts)}), tuple(files.values())


def _as_file(part: TextPart | DataPart) -> tuple[InputFile, FilePart]:
    if isinstance(part, TextPart):
        content, media_type = part.text.encode(), part.media_type or _UNNAMED["text"]
    else:
        content, media_type = orjson.dumps(part.data), part.media_type or _UNNAMED["data"]
    file = _file(content, media_type, part.filename)
    return file, FilePart(
        media_type=media_type,
        filename=part.filename,
        size=len(content),
        stored=StoredPart(artifact_id=file.artifact_id),
        metadata=part.metadata,
    )


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
    wanted, _, wanted_subtype = mode.partition(";")[0].strip().lower().partition("/")
    return wanted in {"*", kind} and (wanted_subtype in {"", "*", subtype} or not subtype)
