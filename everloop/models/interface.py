"""What a provider of models is asked, and what it answers. Nothing in here knows of tasks, or loads a client.

ModelError                     what a call came to instead of a reply
├── ModelBusyError             it works, and wants to be asked later (429)
├── ModelDownError             it does not work: 5xx, no connection, silence, a cut stream
├── UnreadableReplyError       what came is no reply
└── ModelRefusedError          the request, the key or the model is wrong; not tried again
    ├── PromptTooLongError     it does not fit the context window
    └── OutputUnsupportedError it does not take `ModelRequest.output` by these means
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from pydantic import JsonValue

from everloop.workflows.contract.messages import ListedTool, Usage
from everloop.workflows.contract.settings import ModelSettings

# What is asked.

SILENCE = timedelta(minutes=5)
"""How long a provider may be silent, before its reply and within it, unless settings say otherwise."""


@dataclass(frozen=True)
class OutputSchema:
    """What the answer has to be: JSON that fits a schema. `by` is how the model is held to it."""

    name: str
    schema: Mapping[str, JsonValue]
    by: Literal["json_schema", "json_object", "tool", "prompt"] = "json_schema"


@dataclass(frozen=True)
class ModelRequest:
    """A model call that is about to be made.

    `messages` are in the form of Chat Completions, system prompts included; an assistant message, and a call
    in it, may have `opaque`, see `Opaque`. `tools` are those that the model is offered. `settings` are those
    of this call; what is not set is as the provider has it.
    """

    model: str
    messages: tuple[Mapping[str, JsonValue], ...]
    tools: tuple[ListedTool, ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    output: OutputSchema | None = None


# What is answered: deltas, of which `Ended` is the last one.


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
    """A piece of why the model declines."""

    text: str


@dataclass(frozen=True)
class CallDelta:
    """A piece of a tool call.

    `call` numbers the calls of the reply from 0, whatever indexes and ids the provider uses. Names and
    arguments of one number are put together in the order in which they come.
    """

    call: int
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class ProviderToolDelta:
    """What became of a tool that the provider runs itself; subscribers get it as an event."""

    id: str
    name: str
    status: Literal["started", "completed", "failed"]
    detail: JsonValue = None


MAX_OPAQUE = 256 * 1024
"""Bytes of all that goes back with one reply and that nobody reads; of more than that nothing is kept."""


@dataclass(frozen=True)
class Opaque:
    """Fields that the provider wants back with this reply, and that nobody else reads.

    `fields` are those of the message, `calls` those of its tool calls by their numbers. `reasoning_field` is
    the name under which the reasoning goes back word for word, instead of a copy of it in `fields`.
    """

    fields: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    calls: Mapping[int, Mapping[str, JsonValue]] = field(default_factory=dict[int, Mapping[str, JsonValue]])
    reasoning_field: str = ""


EndReason = Literal["stop", "length", "content_filter", "refusal", "tool_calls", "malformed"]
"""Why a reply ended. "length": at the limit of tokens. "malformed": the provider could not read a call."""


@dataclass(frozen=True)
class Ended:
    """The reply is whole; always the last delta, and never missing: a stream without it was cut.

    `model` is what the provider says that answered. `usage` None: it did not count.
    """

    reason: EndReason
    model: str = ""
    response_id: str = ""
    usage: Usage | None = None
    opaque: Opaque = field(default_factory=Opaque)


Delta = TextDelta | ThoughtDelta | RefusalDelta | CallDelta | ProviderToolDelta | Ended


class Model(ABC):
    """A provider of models. One object serves a process; calls run side by side.

    It does not try again, and keeps no state of a conversation.
    """

    @abstractmethod
    def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        """Yield the reply as it comes. `model` is the provider's own name. Closing the generator hangs up.

        Raises:
            ModelError: see the tree above. Texts are read by operators and clients: they quote neither prompt
                nor key.
        """

    async def close(self) -> None:  # noqa: B027 -- not every model has something to let go of
        """Let go of connections; the worker stops."""


# What it raises.


class ModelError(Exception):
    """What a call came to instead of a reply. `codes` are the provider's words for it, for logs."""

    def __init__(self, message: str, *, codes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.codes = codes


class _AgainError(ModelError):
    """The same call may go better later. `retry_after` is when, as far as the provider says it."""

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, codes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, codes=codes)
        self.retry_after = retry_after


class ModelBusyError(_AgainError):
    """The provider works, and wants to be asked later (429)."""


class ModelDownError(_AgainError):
    """The provider does not work: 5xx, 529, no connection, silence, or a stream that was cut."""


class UnreadableReplyError(ModelError):
    """What came is no reply."""


class ModelRefusedError(ModelError):
    """The request, the key or the model is wrong; it is not tried again."""


class PromptTooLongError(ModelRefusedError):
    """The prompt does not fit the context window."""


class OutputUnsupportedError(ModelRefusedError):
    """The provider does not take `ModelRequest.output` by these means; others are tried."""
