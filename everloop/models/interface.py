"""Requests to providers of models, and their replies. Nothing in here knows tasks, or loads a client.

ModelError                     a call without a reply
├── ModelBusyError             rate limit: retry later (429)
├── ModelDownError             unavailable: 5xx, no connection, silence, a cut stream
├── UnreadableReplyError       an unreadable reply
└── ModelRefusedError          the request, the key or the model is wrong; not retried
    ├── PromptTooLongError     it exceeds the context window
    └── OutputUnsupportedError it does not support `ModelRequest.output` in this way
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from pydantic import JsonValue

from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import ListedTool, Usage

# Requests.

SILENCE = timedelta(minutes=5)
"""Timeout between tokens, and until the first one, unless settings have another."""


@dataclass(frozen=True)
class OutputSchema:
    """Schema of the answer, which is JSON. `by` is how it is enforced."""

    name: str
    schema: Mapping[str, JsonValue]
    by: Literal["json_schema", "json_object", "tool", "prompt"] = "json_schema"


@dataclass(frozen=True)
class ModelRequest:
    """A model call.

    `messages` are in the form of Chat Completions, system prompts included; an assistant message, and a
    call in it, may have `opaque`, see `Opaque`. `tools` are those offered to the model. `settings` are
    those of this call; others are the provider's defaults.
    """

    model: str
    messages: tuple[Mapping[str, JsonValue], ...]
    tools: tuple[ListedTool, ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    output: OutputSchema | None = None


# Replies: deltas, of which `Ended` is the last one.


@dataclass(frozen=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class ThoughtDelta:
    """A piece of reasoning; the one with `last`, which may be empty, ends the thought."""

    text: str
    thought_id: str = ""
    last: bool = False


@dataclass(frozen=True)
class RefusalDelta:
    """A piece of a refusal."""

    text: str


@dataclass(frozen=True)
class CallDelta:
    """A piece of a tool call.

    `call` numbers the calls of the reply from 0, whatever indexes and ids the provider uses. Names and
    arguments of one number are joined in their order of arrival.
    """

    call: int
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class ProviderToolDelta:
    """Progress of a tool that the provider runs; subscribers get it as an event."""

    id: str
    name: str
    status: Literal["started", "completed", "failed"]
    detail: JsonValue = None


MAX_OPAQUE = 256 * 1024
"""Maximum bytes of the opaque fields of one reply; if there are more, none of them is stored."""


@dataclass(frozen=True)
class Opaque:
    """Fields that the provider requires back with this reply, and that are not read otherwise.

    `fields` are those of the message, `calls` those of its tool calls by their numbers.
    `reasoning_field` is the name under which the reasoning is sent back unchanged, instead of a copy of
    it in `fields`.
    """

    fields: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    calls: Mapping[int, Mapping[str, JsonValue]] = field(default_factory=dict[int, Mapping[str, JsonValue]])
    reasoning_field: str = ""


EndReason = Literal["stop", "length", "content_filter", "refusal", "tool_calls", "malformed"]
"""How a reply ended. "length": at the limit of tokens. "malformed": the provider could not read a call."""


@dataclass(frozen=True)
class Ended:
    """The reply is complete. It is the last delta of each reply: a stream without it was cut.

    `model` is the name in the provider's reply. `usage` None: it did not count.
    """

    reason: EndReason
    model: str = ""
    response_id: str = ""
    usage: Usage | None = None
    opaque: Opaque = field(default_factory=Opaque)


Delta = TextDelta | ThoughtDelta | RefusalDelta | CallDelta | ProviderToolDelta | Ended


class Model(ABC):
    """A provider of models. One object serves a process; calls run concurrently.

    It does not retry, and keeps no state of a conversation.
    """

    @abstractmethod
    def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        """Yield the reply in pieces. `model` is the provider's own name. Closing the generator disconnects.

        Raises:
            ModelError: see the tree above. Operators and clients read the texts: they quote neither prompt
                nor key.
        """

    async def close(self) -> None:  # noqa: B027 -- not every model has connections
        """Close connections. Called when the worker stops."""


# Errors.


class ModelError(Exception):
    """A call without a reply. `codes` are the provider's error codes, for logs."""

    def __init__(self, message: str, *, codes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.codes = codes


class _AgainError(ModelError):
    """A retryable failure. `retry_after` is the provider's delay, if known."""

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, codes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, codes=codes)
        self.retry_after = retry_after


class ModelBusyError(_AgainError):
    """The provider limits the rate: retry later (429)."""


class ModelDownError(_AgainError):
    """The provider is unavailable: 5xx, 529, no connection, silence, or a stream that was cut."""


class UnreadableReplyError(ModelError):
    """The reply is unreadable."""


class ModelRefusedError(ModelError):
    """The request, the key or the model is wrong; it is not retried."""


class PromptTooLongError(ModelRefusedError):
    """The prompt exceeds the context window."""


class OutputUnsupportedError(ModelRefusedError):
    """The provider does not support `ModelRequest.output` in this way; others are tried."""
