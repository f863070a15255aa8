"""Files in a message of the client, as a model gets them.

Source: OpenAI Chat Completions, content parts of a user message (image_url, input_audio, file).
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openai.types.chat import ChatCompletionContentPartParam

from everloop.workflows.contract.messages import FilePart, StoredPart
from everloop.workflows.contract.parts import essence, is_named, is_text

MAX_TEXT_FILE = 100_000
"""Bytes of a text file that a model reads in the prompt; of a larger one it is only told."""

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
    """Return what the model gets of a file: a line that tells of it, and the content where it takes it."""
    content = _content(part, files)
    told = _text(describe(part, is_gone=_is_gone(part, files)))
    if is_named(part.media_type, files.takes):
        if content is not None:
            return [told, _as_it_is(part, content)]
        if part.url and essence(part.media_type).startswith("image/"):
            return [{"type": "image_url", "image_url": {"url": part.url}}]
    if content is not None and is_text(part.media_type) and len(content) <= MAX_TEXT_FILE:
        return [_text(f"{describe(part)}\n{text}")] if (text := _decoded(content)) is not None else [told]
    return [told]


def describe(part: FilePart, *, is_gone: bool = False) -> str:
    """Return the line that tells of a file."""
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
