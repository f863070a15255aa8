"""Files of clients and of tools, as a model gets them.

Source: OpenAI Chat Completions, content parts of a user message (image_url, input_audio, file).
"""

from base64 import b64decode, b64encode
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from everloop.activities.store_retries import AWAY
from everloop.runtime.blobs import BlobCorruptError, BlobMissingError
from everloop.stores.artifacts.artifact_errors import ArtifactError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.workflows.contract.failures import FILES_UNAVAILABLE
from everloop.workflows.contract.messages import (
    FilePart,
    StoredPartRef,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.parts import TEXT_BEGINNING, encoding_of, essence, is_named, is_text
from everloop.workflows.contract.tasks import TaskRef

MAX_TEXT_FILE = TEXT_BEGINNING
"""Bytes of a text file that a model reads in the prompt; it reads the rest of a larger one with a tool."""

_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)
"""The first bytes of pictures. Providers refuse a conversation with a picture of a wrong or unknown type."""

_PICTURE_TYPES = frozenset({*(kind for _, kind in _PICTURES), "image/jpg", "image/pjpeg", "image/x-png"})
"""Picture types that providers accept. Others are sent only if the agent names their type."""

_NOT_SHOWN = "not shown to you"
_UNSUPPORTED_PICTURE = f"{_NOT_SHOWN}: models see PNG, JPEG, GIF and WebP"
_NO_TEXT = f"{_NOT_SHOWN}: it is no text in UTF-8, UTF-16, Windows-1252 or the charset of its type"

_DRAWING = "image/svg+xml"
"""A picture type that providers do not accept as a picture; models read it as text."""

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


Place = tuple[str, int]
"""Artifact and index of a part."""

Content = dict[str, JsonValue]
"""A part of the content of a message."""


@dataclass(frozen=True)
class AcceptedTypes:
    """The media types of files that a model gets unchanged.

    These are the types that its agent names and that the model accepts, as far as they are known: with
    `by_model` None they are unknown. SVG is excluded, and `image/*` covers only the pictures that providers
    accept.
    """

    by_agent: Sequence[str] = ()
    by_model: Sequence[str] | None = None

    def __contains__(self, media_type: str) -> bool:
        kind = essence(media_type)
        if kind == _DRAWING or not self.names(media_type):
            return False
        is_accepted = kind in _PICTURE_TYPES or kind in map(essence, self.by_agent)
        return is_accepted or not kind.startswith("image/")

    def names(self, media_type: str) -> bool:
        """True if agent and model name the type, or a range that contains it."""
        is_taken = self.by_model is None or is_named(media_type, self.by_model)
        return is_taken and is_named(media_type, self.by_agent)


@dataclass(frozen=True)
class ReadFiles:
    """The contents of the files of a conversation.

    `contents` holds None for a file that no longer exists, and the beginning of a long text. It lacks files
    that were not read because they are too large or of no use.
    """

    takes: AcceptedTypes = field(default_factory=AcceptedTypes)
    contents: Mapping[Place, bytes | None] = field(default_factory=dict[Place, bytes | None])


def place_of(stored: StoredPartRef) -> Place:
    """Return where a file is stored."""
    return stored.artifact_id, stored.index


def files_of(message: TranscriptMessage) -> Sequence[FilePart]:
    """Return the files that a message shows the model."""
    if isinstance(message, ToolMessage):
        return message.files
    parts = message.parts if isinstance(message, UserMessage) else ()
    return [part for part in parts if isinstance(part, FilePart)]


def is_read_on(part: FilePart, files: ReadFiles) -> bool:
    """True if the model gets the beginning of a stored text, and can read the rest."""
    content = _content(part, files)
    if not part.stored or content is None or not _is_given_as_text(part, files):
        return False
    return _is_beginning(part, content) and _decoded(part, content) is not None


def file_content(part: FilePart, files: ReadFiles) -> list[Content]:
    """Return a file for the model: a line that describes it, and the content if the model accepts it."""
    content = _content(part, files)
    line = text_content(describe(part, _why_not(part, files)))
    if part.media_type in files.takes:
        if content is not None:
            given = _as_it_is(part, content)
            return [line, given] if given else [text_content(describe(part, "it is no such picture"))]
        if part.url and essence(part.media_type).startswith("image/"):
            return [{"type": "image_url", "image_url": {"url": part.url}}]
    if content is not None and _is_given_as_text(part, files):
        text = _decoded(part, content)
        if text is None:
            return [text_content(describe(part, _NO_TEXT))]
        return [text_content(f"{describe(part)}\n{text}{_rest(part, content, text)}")]
    return [line]


def describe(part: FilePart, why_not: str = "") -> str:
    """Return the line that describes a file; `why_not` is the reason for missing content."""
    name = f"file {part.filename}" if part.filename else "file"
    if part.url:
        return f"[{name}, {part.media_type}: {part.url}]"
    size = f", {part.size} bytes" if part.size is not None else ""
    artifact = f"; artifact {part.stored.artifact_id}" if part.stored else ""
    reason = f" ({why_not})" if why_not else ""
    return f"[{name}, {part.media_type}{size}{artifact}{reason}]"


def _why_not(part: FilePart, files: ReadFiles) -> str:
    if part.stored and files.contents.get(place_of(part.stored), b"") is None:
        return "no longer available"
    if part.media_type in files.takes or is_text(part.media_type):
        return ""
    is_picture = essence(part.media_type).startswith("image/")
    return _UNSUPPORTED_PICTURE if is_picture and files.takes.names(part.media_type) else _NOT_SHOWN


def _as_it_is(part: FilePart, content: bytes) -> Content | None:
    """Return a file in the form for the model, or None if a file with a picture's type is not a picture."""
    media_type, encoded = essence(part.media_type), b64encode(content).decode()
    if media_type.startswith("image/"):
        found = next((kind for beginning, kind in _PICTURES if content.startswith(beginning)), None)
        if not found and media_type in _PICTURE_TYPES:
            return None
        media_type = found or media_type
        return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{encoded}"}}
    if media_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO[media_type]}}
    data = f"data:{media_type};base64,{encoded}"
    return {"type": "file", "file": {"filename": part.filename or "file", "file_data": data}}


def _content(part: FilePart, files: ReadFiles) -> bytes | None:
    if part.stored:
        return files.contents.get(place_of(part.stored))
    if not part.content:
        return None
    content = b64decode(part.content)
    return content[:MAX_TEXT_FILE] if _is_given_as_text(part, files) else content


def _is_given_as_text(part: FilePart, files: ReadFiles) -> bool:
    return is_text(part.media_type) and part.media_type not in files.takes


def _is_beginning(part: FilePart, content: bytes) -> bool:
    """True if the file continues after this content; one of unknown size may."""
    return len(content) >= MAX_TEXT_FILE if part.size is None else len(content) < part.size


def _decoded(part: FilePart, content: bytes) -> str | None:
    """Return a text, up to its last complete character, or None if the content is not text."""
    is_complete = not _is_beginning(part, content)
    encoding = encoding_of(part.media_type, content, is_complete=is_complete)
    return getincrementaldecoder(encoding)().decode(content, final=is_complete) if encoding else None


def _rest(part: FilePart, content: bytes, text: str) -> str:
    """Return the note after the beginning of a long text."""
    if not _is_beginning(part, content):
        return ""
    size = "" if part.size is None else f" of {part.size:,}"
    rest = "the rest cannot be read"
    if part.stored:
        where = f'"{part.stored.artifact_id}", {part.stored.index}, start={len(text)}'
        rest = f"read on with read_attachment({where})"
    return f"\n[{len(content):,}{size} bytes; {rest}]"


def text_content(text: str) -> Content:
    """Return a text as a part of the content of a message."""
    return {"type": "text", "text": text}


# Reads these files for the model.

MAX_MESSAGE_BYTES = 20_000_000
"""Limit of the bytes of files of one message; of files beyond it the model gets only a line."""

MAX_REQUEST_BYTES = 50_000_000
"""Limit of the bytes of all files in one request. Those of the newest messages come first."""

_UNAVAILABLE = "the files of the conversation cannot be read now"

_log = structlog.get_logger()


class FileReader:
    """Reads from the context of a task the files that a model with some media types gets."""

    def __init__(self, artifacts: Artifacts, task: TaskRef, takes: AcceptedTypes) -> None:
        self._artifacts = artifacts
        self._context = context_key(task.owner, task.context_id)
        self._takes = takes
        self._contents: dict[Place, bytes | None] = {}

    async def read(self, messages: Sequence[TranscriptMessage]) -> ReadFiles:
        """Return the contents; a file that no longer exists has None.

        Raises:
            ApplicationError: `FilesUnavailable`: a store does not answer.
        """
        room = MAX_REQUEST_BYTES
        try:
            for message in reversed(messages):
                room -= await self._read_files(files_of(message), min(room, MAX_MESSAGE_BYTES))
        except AWAY as error:
            _log.warning("files not read", error_type=type(error).__name__)
            # The error's own text would write the store's address into the history of the workflow.
            raise ApplicationError(_UNAVAILABLE, type=FILES_UNAVAILABLE) from None
        return ReadFiles(self._takes, self._contents)

    async def _read_files(self, files: Sequence[FilePart], room: int) -> int:
        """Read files up to a limit of bytes; return how many were read."""
        left = room
        for part in files:
            if part.stored and part.media_type in self._takes:
                left -= await self._read_file(part.stored, left)
            elif part.stored and left and is_text(part.media_type):
                left -= await self._read_file(part.stored, min(left, MAX_TEXT_FILE), is_cut=True)
        return room - left

    async def _read_file(self, stored: StoredPartRef, most: int, *, is_cut: bool = False) -> int:
        place = place_of(stored)
        if place not in self._contents:  # it may have been sent twice
            try:
                content = await self._content(stored, most, is_cut=is_cut)
            except (ArtifactError, BlobMissingError, BlobCorruptError):
                self._contents[place] = None
            else:
                if content is not None:
                    self._contents[place] = content
        return len(self._contents.get(place) or b"")

    async def _content(self, stored: StoredPartRef, most: int, *, is_cut: bool) -> bytes | None:
        """Return the content; of a larger one its beginning if it `is_cut`, else None."""
        content = bytearray()
        pieces = self._artifacts.read_part(self._context, stored.artifact_id, stored.index, end=most + 1)
        async for piece in pieces:
            content += piece
        return bytes(content[:most]) if is_cut or len(content) <= most else None
