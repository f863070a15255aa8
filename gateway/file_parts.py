"""File parts of requests, checked and in our own terms. Pure.

Source: A2A 1.0 §4.1.6 (Part). What a client sends as bytes is kept as an artifact of the context; what it
names by a URL stays a URL: this server fetches nothing, for it could be made to read what only it can reach.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from stores.artifacts import NewPart
from workflows.contract.messages import FilePart, Part, StoredPart

MAX_URL = 2_000
"""Characters of the URL of a file."""

MAX_FILENAME_BYTES = 255
"""Of the name of a file: as long as file systems take."""

MAX_MEDIA_TYPE = 255
"""Characters of a media type with its parameters."""

MAX_FILES = 100
"""Files in one message: each is stored by itself before the task starts."""

BYTES = "application/octet-stream"
"""The media type of what nobody has named."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"  # RFC 6838 §4.2
_WORD = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_QUOTED = r'"[ !#-\[\]-~]*"'
_MEDIA_TYPE = re.compile(rf"({_NAME}/{_NAME})((?:\s*;\s*{_WORD}=(?:{_WORD}|{_QUOTED}))*)", re.ASCII)

_UNPRINTABLE = frozenset({"Cc", "Zl", "Zp"})


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
    files = {file.artifact_id: file for part in parts if part.HasField("raw") and (file := _file(part))}
    if len(files) > MAX_FILES:
        raise InvalidParamsError(f"message.parts has {len(files)} files; one message may have {MAX_FILES}")
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
    written = part.media_type
    found = _MEDIA_TYPE.fullmatch(written) if len(written) <= MAX_MEDIA_TYPE else None
    if written and not found:
        raise InvalidParamsError(
            f"{field}.mediaType is no media type; give a type and a subtype, such as image/png, in at most "
            f"{MAX_MEDIA_TYPE} characters"
        )
    return found[1].lower() + found[2] if found else ""


def read_filename(part: pb.Part, field: str) -> str:
    """Return the file name of a part; empty if it has none.

    Raises:
        InvalidParamsError: it is too long, or more than the name of one file.
    """
    name = part.filename
    if len(name.encode()) > MAX_FILENAME_BYTES:
        raise InvalidParamsError(
            f"{field}.filename is too long; a file name may have {MAX_FILENAME_BYTES} bytes"
        )
    if "/" in name or "\\" in name or name in {".", ".."}:
        raise InvalidParamsError(f"{field}.filename is a path; give the name of the file alone")
    if any(unicodedata.category(character) in _UNPRINTABLE for character in name):
        raise InvalidParamsError(
            f"{field}.filename has control characters; use letters, digits and punctuation"
        )
    return name


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
    if len(url) > MAX_URL:
        raise InvalidParamsError(f"{field}.url has {len(url)} characters; a URL may have {MAX_URL}")
    if not _is_web_address(url):
        raise InvalidParamsError(
            f"{field}.url is no address of a file; give one with http:// or https:// and a host"
        )
    return url


def _is_web_address(url: str) -> bool:
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
