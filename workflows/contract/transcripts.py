"""What workflow and activities know of a transcript without sending it: its digest, and its size.

A later version may add optional fields to messages: neither changes for messages that do not use them.
"""

import json
from collections.abc import Iterable
from hashlib import sha256

from pydantic import JsonValue

from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    DataPart,
    FilePart,
    Message,
    Part,
    SummaryMessage,
    TextPart,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)

ENVELOPE = 200
"""Bytes of a message besides what it says: ids and names of fields, about."""

BYTES_PER_TOKEN = 4
"""A rule of thumb, for what the provider has not counted yet."""

_NOT_IN_CACHE = {"is_published"}
"""What an activity finds out once its message is cached. No model reads it."""


def extend_digest(digest: str, messages: Iterable[TranscriptMessage]) -> str:
    """Return the digest of a transcript, of which `digest` is that so far (empty at first), with these added.

    It is the same on both sides of a payload, whatever JSON has made of a message in between.
    """
    for message in messages:
        said = message.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_IN_CACHE)
        text = json.dumps([digest, message.role, said], sort_keys=True, separators=(",", ":"))
        digest = sha256(text.encode()).hexdigest()
    return digest


def measure(message: TranscriptMessage | AgentMessage) -> int:
    """Return about how many bytes a message has in JSON.

    Decisions of workflows depend on it, so it must not change: what is added to messages does not count.
    """
    return ENVELOPE + sum(map(_size, _content(message)))


def estimate_tokens(message: TranscriptMessage) -> int:
    """Return about how many tokens a message adds to a prompt."""
    return measure(message) // BYTES_PER_TOKEN


def _content(message: Message | TranscriptMessage) -> Iterable[JsonValue]:
    match message:
        case UserMessage():
            yield message.metadata
            yield [reference.text for reference in message.references]
            for part in message.parts:
                yield from _content_of_part(part)
        case AgentMessage():
            yield message.metadata
            for part in message.parts:
                yield from _content_of_part(part)
        case AssistantMessage():
            yield [message.text, message.reasoning, message.refused, message.closing]
            yield [[call.id, call.name, call.arguments] for call in message.tool_calls]
        case ToolMessage():
            yield [message.call_id, message.name, message.content]
            yield list(message.artifacts)
        case SummaryMessage():
            yield message.text
        case _:
            yield [[tool.name, tool.description, tool.parameters] for tool in message.tools]


def _content_of_part(part: Part) -> Iterable[JsonValue]:
    yield [part.media_type, part.filename, part.metadata]
    match part:
        case TextPart():
            yield part.text
        case DataPart():
            yield part.data
        case FilePart():
            yield [part.content, part.url]


def _size(content: JsonValue) -> int:
    return len(json.dumps(content, ensure_ascii=False).encode(errors="surrogatepass"))
