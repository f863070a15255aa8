"""File parts of requests, checked and in our own terms. Pure.

Source: A2A 1.0 §4.1.6 (Part). What a client sends as bytes is kept as an artifact of the context; what it
names by a URL stays a URL: this server fetches nothing, for it could be made to read what only it can reach.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from everloop.stores.artifacts.changes import NewPart
from everloop.workflows.contract.messages import FilePart, Part, StoredPart
from everloop.workflows.contract.parts import filename_flaw, media_type_flaw, url_flaw

MAX_FILES = 100
"""Files in one message, copies and URLs too: bytes are stored one by one before the task starts."""

BYTES = "application/octet-stream"
"""The media type of what nobody has named."""


@dataclass(frozen=True)
class InputFile:
    """A file that a client sent, and the id of the artifact that it becomes: the same for the same file."""

    artifact_id: str
    part: NewPart


def input_files(parts: Sequence[pb.Part]) -> tuple[InputFile, ...]:
    """Return the files that come with their bytes, each once.

    Raises:
        InvalidParamsError: there are too many files.
    """
    count = sum(part.WhichOneof("content") in {"raw", "url"} for part in parts)
    if count > MAX_FILES:
        raise InvalidParamsError(f"message.parts has {count} files; one message may have {MAX_FILES}")
    files = {file.artifact_id: file for part in parts if part.HasField("raw") and (file := _file(part))}
    return tuple(files.values())


def read_file_part(part: pb.Part, field: str) -> FilePart:
    """Return a part with bytes or a URL; bytes stand where `input_files` are stored.

    Raises:
        InvalidParamsError: its URL cannot be one of a file, or its media type or file name is none.
    """
    media_type, filename = read_media_type(part, field), read_filename(part, field)
    if part.WhichOneof("content") == "url":
        url = _read_url(part.url, field)
        return FilePart(media_type=media_type or BYTES, filename=filename, url=url)
    file = _file(part)
    return FilePart(
        media_type=file.part.media_type,
        filename=file.part.filename,
        size=len(file.part.content),
        stored=StoredPart(artifact_id=file.artifact_id),
    )


def read_media_type(part: pb.Part, field: str) -> str:
    """Return the media type of a part, its type and subtype in small letters; empty if it has none.

    Raises:
        InvalidParamsError: it is none.
    """
    if flaw := media_type_flaw(part.media_type):
        raise InvalidParamsError(f"{field}.mediaType {flaw}")
    name, semicolon, parameters = part.media_type.partition(";")
    return f"{name.lower()}{semicolon}{parameters}"


def read_filename(part: pb.Part, field: str) -> str:
    """Return the file name of a part; empty if it has none.

    Raises:
        InvalidParamsError: it is too long, or more than the name of one file.
    """
    if flaw := filename_flaw(part.filename):
        raise InvalidParamsError(f"{field}.filename {flaw}")
    return part.filename


def holds_file(parts: Sequence[Part]) -> bool:
    """Whether any of the parts is a file."""
    return any(isinstance(part, FilePart) for part in parts)


def _file(part: pb.Part) -> InputFile:
    media_type, filename = read_media_type(part, "message.parts") or BYTES, part.filename
    digest = hashlib.sha256(f"{media_type}\x1f{filename}\x1f".encode())
    digest.update(part.raw)
    return InputFile(
        artifact_id=f"input-{digest.hexdigest()[:24]}",
        part=NewPart(kind="file", content=part.raw, media_type=media_type, filename=filename),
    )


def _read_url(url: str, field: str) -> str:
    if flaw := url_flaw(url):
        raise InvalidParamsError(f"{field}.url {flaw}")
    return url
