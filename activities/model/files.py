"""Files in a message of the client, as a model gets them.

Source: OpenAI Chat Completions, content parts of a user message (image_url, input_audio, file).
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from openai.types.chat import ChatCompletionContentPartParam
from temporalio.exceptions import ApplicationError

from everloop.activities.retries import AWAY
from everloop.runtime.blobs import BlobCorruptError, BlobMissingError
from everloop.stores.artifacts.errors import ArtifactError
from everloop.stores.artifacts.store import Artifacts
from everloop.workflows.contract.failures import FILES_UNAVAILABLE
from everloop.workflows.contract.messages import FilePart, StoredPart, TranscriptMessage, UserMessage
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.parts import essence, is_named, is_text
from everloop.workflows.contract.tasks import TaskRef

MAX_TEXT_FILE = 100_000
"""Bytes of a text file that a model reads in the prompt; of a larger one it only gets a line."""

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


Place = tuple[str, int]
"""Artifact and index of a part."""


@dataclass(frozen=True)
class ReadFiles:
    """What was read of the files of a conversation.

    `takes` are the media types of files that the model gets as they are. `contents` holds None for a file
    that is gone; one that was not read, because it is too large or of no use, is not in it.
    """

    takes: Sequence[str] = ()
    contents: Mapping[Place, bytes | None] = field(default_factory=dict[Place, bytes | None])


def place_of(stored: StoredPart) -> Place:
    """Return where a file is stored."""
    return stored.artifact_id, stored.index


def is_wanted(part: FilePart, takes: Sequence[str]) -> bool:
    """Whether the model gets the content of a file, if that is not too large."""
    is_short = part.size is None or part.size <= MAX_TEXT_FILE
    return is_named(part.media_type, takes) or (is_text(part.media_type) and is_short)


def file_content(part: FilePart, files: ReadFiles) -> list[ChatCompletionContentPartParam]:
    """Return what the model gets of a file: a line that describes it, and the content where it takes it."""
    content = _content(part, files)
    line = _text(describe(part, is_gone=_is_gone(part, files)))
    if is_named(part.media_type, files.takes):
        if content is not None:
            return [line, _as_it_is(part, content)]
        if part.url and essence(part.media_type).startswith("image/"):
            return [{"type": "image_url", "image_url": {"url": part.url}}]
    if content is not None and is_text(part.media_type) and len(content) <= MAX_TEXT_FILE:
        return [_text(f"{describe(part)}\n{text}")] if (text := _decoded(content)) is not None else [line]
    return [line]


def describe(part: FilePart, *, is_gone: bool = False) -> str:
    """Return the line that describes a file."""
    name = f"file {part.filename}" if part.filename else "file"
    if part.url:
        return f"[{name}, {part.media_type}: {part.url}]"
    size = f", {part.size} bytes" if part.size is not None else ""
    artifact = f"; artifact {part.stored.artifact_id}" if part.stored else ""
    gone = " (no longer available)" if is_gone else ""
    return f"[{name}, {part.media_type}{size}{artifact}{gone}]"


def _as_it_is(part: FilePart, content: bytes) -> ChatCompletionContentPartParam:
    media_type, encoded = essence(part.media_type), b64encode(content).decode()
    if media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{encoded}"}}
    if media_type in _AUDIO:
        audio_format = "wav" if _AUDIO[media_type] == "wav" else "mp3"
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": audio_format}}
    data = f"data:{media_type};base64,{encoded}"
    return {"type": "file", "file": {"filename": part.filename or "file", "file_data": data}}


def _content(part: FilePart, files: ReadFiles) -> bytes | None:
    if part.stored:
        return files.contents.get(place_of(part.stored))
    return b64decode(part.content) if part.content else None


def _is_gone(part: FilePart, files: ReadFiles) -> bool:
    return part.stored is not None and files.contents.get(place_of(part.stored), b"") is None


def _decoded(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _text(text: str) -> ChatCompletionContentPartParam:
    return {"type": "text", "text": text}


# Reads the files that clients sent along, for the model.

MAX_MESSAGE_BYTES = 20_000_000
"""How much of the files of one message the model gets; of those beyond it, it only gets a line."""

MAX_REQUEST_BYTES = 50_000_000
"""How much of all files one request carries, those of the newest messages first."""

_UNAVAILABLE = "the files that the client sent cannot be read now"

_log = structlog.get_logger()


class FileReader:
    """Reads from the context of a task what a model that takes some media types gets of its files."""

    def __init__(self, artifacts: Artifacts, task: TaskRef, takes: Sequence[str]) -> None:
        self._artifacts = artifacts
        self._context = context_key(task.owner, task.context_id)
        self._takes = takes
        self._contents: dict[Place, bytes | None] = {}

    async def read(self, messages: Sequence[TranscriptMessage]) -> ReadFiles:
        """Return what was read; a file that is gone is known to be gone.

        Raises:
            ApplicationError: of type FILES_UNAVAILABLE; a store does not answer.
        """
        room = MAX_REQUEST_BYTES
        try:
            for message in reversed(messages):
                if isinstance(message, UserMessage):
                    room -= await self._read_message(message, min(room, MAX_MESSAGE_BYTES))
        except AWAY as error:
            _log.warning("files not read", error_type=type(error).__name__)
            # The error's own text would write into the history of the workflow where the store is.
            raise ApplicationError(_UNAVAILABLE, type=FILES_UNAVAILABLE) from None
        return ReadFiles(self._takes, self._contents)

    async def _read_message(self, message: UserMessage, room: int) -> int:
        """Read what there is room for; return how much that is."""
        left = room
        for part in message.parts:
            if isinstance(part, FilePart) and part.stored and is_wanted(part, self._takes):
                most = left if is_named(part.media_type, self._takes) else min(left, MAX_TEXT_FILE)
                left -= await self._read_file(part.stored, most)
        return room - left

    async def _read_file(self, stored: StoredPart, most: int) -> int:
        place = place_of(stored)
        if place not in self._contents:  # it may have been sent twice
            try:
                content = await self._content(stored, most)
            except (ArtifactError, BlobMissingError, BlobCorruptError):
                self._contents[place] = None
            else:
                if content is not None:
                    self._contents[place] = content
        return len(self._contents.get(place) or b"")

    async def _content(self, stored: StoredPart, most: int) -> bytes | None:
        """Return the content, None if it is too large."""
        content = bytearray()
        pieces = self._artifacts.read_part(self._context, stored.artifact_id, stored.index, end=most + 1)
        async for piece in pieces:
            content += piece
        return bytes(content) if len(content) <= most else None
