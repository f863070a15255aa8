"""Counts the tokens of messages.

They are counted with OpenAI's encoding if its data is installed, and estimated otherwise. The data is never
downloaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from pydantic import Field

from everloop.runtime.environment import Settings
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    FilePart,
    Part,
    TextPart,
    UserMessage,
)
from everloop.workflows.contract.parts import is_named, is_text

if TYPE_CHECKING:
    from tiktoken import Encoding

CHARACTERS_PER_TOKEN = 4
"""For the estimate: OpenAI's figure for English text."""

MESSAGE_TOKENS = 4
"""Overhead of a message: its role, its begin and its end."""

FILE_TOKENS = 1000
"""Estimate for the content of a file that a model gets: about a page, or a medium-sized image."""

_AS_THEY_ARE = ("image/*", "audio/*", "application/pdf")
"""Media types of files whose content models get, unless their agents say otherwise."""

CountTokens = Callable[[ConversationMessage], int]

_log = structlog.get_logger()


@dataclass(frozen=True)
class EncodingData:
    """The data of an encoding: its name in tiktoken's cache, and the digest of its content."""

    encoding: str
    file: str
    sha256: str


KNOWN_DATA = (
    EncodingData(
        "o200k_base",
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    EncodingData(
        "cl100k_base",
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
)
"""Newest first."""


class TokenSettings(Settings):
    """Counting of the tokens of conversations."""

    tiktoken_cache_dir: Path | None = Field(default=None, validation_alias="TIKTOKEN_CACHE_DIR")
    """A folder with the data of tiktoken's `o200k_base` or `cl100k_base`, with which the tokens of
    conversations are counted. Unset: tokens are estimated, four characters each. See
    docs/agents/conversations.md#how-tokens-are-counted."""


def token_counter(settings: TokenSettings) -> CountTokens:
    """Return a counter, or an estimator if there is no data, and log which one.

    Loading the data takes a second: do it when a process starts.
    """
    encoding = _find_encoding(settings.tiktoken_cache_dir)
    if encoding is None:
        _log.info("tokens are estimated: TIKTOKEN_CACHE_DIR has no data of tiktoken's o200k_base")
        return estimate_tokens
    _log.info("tokens are counted", encoding=encoding.name)
    return counting(encoding)


def _find_encoding(folder: Path | None) -> "Encoding | None":
    """Return the first known encoding with undamaged data in tiktoken's cache, or None.

    The data is checked first, because tiktoken would download missing or damaged data.
    """
    for data in KNOWN_DATA:
        if folder and _is_intact(folder / data.file, data):
            from tiktoken import get_encoding  # noqa: PLC0415 -- only who has its data needs it

            return get_encoding(data.encoding)
    return None


def counting(encoding: "Encoding") -> CountTokens:
    """Return a counter of the tokens of a message in an encoding."""

    def count(message: ConversationMessage) -> int:
        texts, files = _content(message)
        return MESSAGE_TOKENS + sum(len(encoding.encode_ordinary(t)) for t in texts) + FILE_TOKENS * files

    return count


def estimate_tokens(message: ConversationMessage) -> int:
    """Estimate the tokens of a message: its characters divided by four, rounded up."""
    texts, files = _content(message)
    return MESSAGE_TOKENS - sum(map(len, texts)) // -CHARACTERS_PER_TOKEN + FILE_TOKENS * files


def _is_intact(path: Path, data: EncodingData) -> bool:
    try:
        return sha256(path.read_bytes()).hexdigest() == data.sha256
    except OSError:
        return False


def _content(message: ConversationMessage) -> tuple[list[str], int]:
    """Return the texts of a message for the model, and the number of files whose content it gets."""
    if isinstance(message, UserMessage):
        files = [part for part in message.parts if isinstance(part, FilePart)]
        return [_text(part) for part in message.parts], sum(map(_is_sent, files))
    if isinstance(message, AssistantMessage):
        calls = (text for call in message.tool_calls for text in (call.name, call.arguments))
        return [message.text, *calls], 0
    return [message.content], 0


def _text(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case DataPart():
            return dumps(part.data, ensure_ascii=False)
        case FilePart():
            return f"[file {part.filename}, {part.media_type}: {part.url}]"  # about as long as the real line


def _is_sent(file: FilePart) -> bool:
    """True if a model is likely to get the content. Other files, and most URLs, are only a line."""
    if file.url:
        return is_named(file.media_type, ("image/*",))
    return is_text(file.media_type) or is_named(file.media_type, _AS_THEY_ARE)
