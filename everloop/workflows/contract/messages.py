"""Messages of A2A and of the transcript of a task.

Source: A2A 1.0 §4.1.4 (Message), §4.1.6 (Part); OpenAI Chat Completions for roles and tool calls.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from everloop.workflows.contract.payloads import Wire


class TextPart(Wire):
    """Text. `media_type` and `filename` are empty unless the sender set them."""

    kind: Literal["text"] = "text"
    text: str
    media_type: str = ""
    filename: str = ""
    metadata: dict[str, JsonValue] = {}


EMPTY = TextPart(text="")
"""An empty text, which joins a part without a change."""


class DataPart(Wire):
    """Structured content: any JSON value."""

    kind: Literal["data"] = "data"
    data: JsonValue
    media_type: str = ""
    filename: str = ""
    metadata: dict[str, JsonValue] = {}


class StoredPartRef(Wire):
    """Location of a file in the artifact store: part `index` of an artifact in the context of the task."""

    artifact_id: str
    index: int = 0


class FilePart(Wire):
    """A file. Its content is here in base64, behind a `url`, or `stored`.

    `size` is in bytes, None if unknown (a URL, or a file that is still being written).
    """

    kind: Literal["file"] = "file"
    media_type: str = "application/octet-stream"
    filename: str = ""
    size: int | None = None
    content: str = ""
    url: str = ""
    stored: StoredPartRef | None = None
    metadata: dict[str, JsonValue] = {}


Part = Annotated[TextPart | DataPart | FilePart, Field(discriminator="kind")]


class TaskReference(Wire):
    """Another task that a message refers to, with its outcome as text for the model.

    `answer` is the answer of its agent, `text` everything else.
    """

    task_id: str
    state: str
    text: str
    answer: str = ""


class UserMessage(Wire):
    """A message of the client. `message_id` is unique within its task (`names.view_message_id`).

    `answers` is the id of the open question that it answers. Only the gateway sets it, from the view of
    the task when the message arrived; empty: the message is not an answer, whatever its text.
    `references` are the tasks in A2A's referenceTaskIds, `extensions` URIs of the A2A extensions in
    use. `size` is what it takes of the room for unread messages, in bytes. Only the gateway sets it, for
    messages to a running task.
    """

    role: Literal["user"] = "user"
    message_id: str
    parts: tuple[Part, ...]
    metadata: dict[str, JsonValue] = {}
    answers: str = ""
    references: tuple[TaskReference, ...] = ()
    extensions: tuple[str, ...] = ()
    size: int = 0


class AgentMessage(Wire):
    """A message of the agent to the client in a status, apart from the answer."""

    role: Literal["agent"] = "agent"
    message_id: str
    parts: tuple[Part, ...]
    metadata: dict[str, JsonValue] = {}


Message = Annotated[UserMessage | AgentMessage, Field(discriminator="role")]


class ToolCall(Wire):
    """A call by the model. `arguments` is the JSON text as the model wrote it.

    `id` is our own, derived from the position (`everloop.workflows.contract.names.name_calls`).
    `repeat` counts earlier identical calls of the reply. `opaque` is as in `AssistantMessage`.
    """

    id: str
    name: str
    arguments: str
    repeat: int = 0
    opaque: str = ""

    def result(
        self, content: str, outcome: "ToolOutcome" = "ok", artifacts: tuple[str, ...] = ()
    ) -> "ToolMessage":
        """Return the message with the result of the call."""
        return ToolMessage(
            call_id=self.id, name=self.name, content=content, outcome=outcome, artifacts=artifacts
        )


class Usage(Wire):
    """Tokens, as the provider counted them, and their cost in US dollars; None if unknown.

    `cached_tokens` and `cache_write_tokens` are among `input_tokens`, `reasoning_tokens` among
    `output_tokens`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def to_metadata(self) -> dict[str, JsonValue]:
        """Return the usage under A2A field names."""
        return {"inputTokens": self.input_tokens, "outputTokens": self.output_tokens, "cost": self.cost}

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum. The cost is unknown if that of a part is."""
        has_cost = self.cost is not None and other.cost is not None
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost_or_zero + other.cost_or_zero if has_cost else None,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def cost_or_zero(self) -> float:
        """The cost for limits: 0 if unknown."""
        return self.cost or 0


class AssistantMessage(Wire):
    """One complete reply of the model. Without `tool_calls` its text is an answer."""

    role: Literal["assistant"] = "assistant"
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    model: str = ""
    """Name of the model in the reply, if it differs from the requested one; see `answered_by`."""
    finish_reason: str = ""
    """Finish reason of the provider; see `ended_with`."""
    usage: Usage = Usage()
    is_published: bool = True
    """False if the end of the reply could not be published; the workflow then publishes it."""
    closing: str = ""
    """Text of the last status, beside an answer or in its place."""
    rejects: bool = False
    """Whether the task ends as rejected."""
    refused: str = ""
    """Why the reply is refused: the model gets this text and replies again."""
    is_invalid: bool = False
    """Whether it was refused because it does not match the agent's output model."""
    source: str = ""
    """The requested model, as `provider/model`."""
    opaque: str = ""
    """A JSON object: fields to send back to the provider with the reply. They go only to the `source`, and
    to no client."""
    reasoning_field: str = ""
    """The field that returns `reasoning` unchanged to a provider that requires it."""
    reason: str = ""
    """Why the reply did not end normally: a name of `failures`."""
    fails: bool = False
    """Whether the task fails for that reason."""

    @property
    def answered_by(self) -> str:
        """Name of the model in the reply; most providers return the requested name."""
        return self.model or self.source.partition("/")[2]

    @property
    def ended_with(self) -> str:
        """Finish reason of the provider."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "")

    def to_keep(self) -> "AssistantMessage":
        """Return the reply without derivable fields: a history has many replies."""
        rest = self.model_copy(update={"model": "", "finish_reason": ""})
        model = "" if rest.answered_by == self.model else self.model
        reason = "" if rest.ended_with == self.finish_reason else self.finish_reason
        return rest.model_copy(update={"model": model, "finish_reason": reason})


ToolOutcome = Literal["ok", "error", "invalid", "unknown", "rejected"]
"""Outcome of a tool call. "error": the tool failed. "invalid": unknown tool, or invalid arguments.
"unknown": it was started but its end was lost, and it was not run again because it is not idempotent.
"rejected": a person rejected it, or the question timed out."""


class ToolMessage(Wire):
    """Result of a tool call, or in `content` the error.

    `artifacts` are the ids of those that it wrote, `versions` their versions in the task's view. `raised_at`
    is the line of the tool's author that raised, such as `tools.py:12 pay`; the model does not get it.
    `files` are for the model to read, by reference. `whole`: size in bytes of a result truncated in
    `content`; 0: it is complete. `kept` is the name of the complete result (`names.result_artifact`); empty:
    the rest is lost.
    """

    role: Literal["tool"] = "tool"
    call_id: str
    name: str
    content: str
    outcome: ToolOutcome = "ok"
    artifacts: tuple[str, ...] = ()
    versions: dict[str, int] = {}
    raised_at: str = ""
    files: tuple[FilePart, ...] = ()
    whole: int = 0
    kept: str = ""
    cached: bool = False
    """The result is that of an earlier call with the same arguments; this call did not run."""


class SummaryMessage(Wire):
    """From here on, `text` replaces the transcript's messages up to `end` (exclusive) in model calls.

    The task's first message, at position `first`, stays, and so do those from `end` on. An empty text
    means that they are left out. An earlier summary is covered by a later one. `usage` is the cost of
    the summary.
    """

    role: Literal["summary"] = "summary"
    first: int = 0
    end: int
    text: str = ""
    usage: Usage = Usage()


class ListedTool(Wire):
    """A tool as described to the model; in a transcript one that a plugin has listed for the task.

    `parameters` is the JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: dict[str, JsonValue]


class ToolsMessage(Wire):
    """Tools listed by plugins for the task.

    From here on model calls offer these, beside the agent's own, whatever their servers list later. The
    last list counts. It is not sent to models as a message.
    """

    role: Literal["tools"] = "tools"
    tools: tuple[ListedTool, ...]


SpokenMessage = UserMessage | AssistantMessage | ToolMessage
"""Messages of a conversation; the other entries of a transcript are about it."""

TranscriptMessage = Annotated[
    UserMessage | AssistantMessage | ToolMessage | SummaryMessage | ToolsMessage, Field(discriminator="role")
]


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the text of the text parts, one paragraph each; data and files are left out."""
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))


def part_text(part: Part, line_of: Callable[[FilePart], str]) -> str:
    """Return a text as it is, data as JSON, and what `line_of` says of a file."""
    match part:
        case TextPart():
            return part.text
        case DataPart():
            return json.dumps(part.data, ensure_ascii=False)
        case FilePart():
            return line_of(part)


def is_plain(part: Part) -> bool:
    """Return True for a text with neither media type nor file name."""
    return isinstance(part, TextPart) and not (part.media_type or part.filename)


def join_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts as views show them: a plain text continues the text before it.

    An empty text without one before it is left out, unless it is the only part.
    """
    runs: list[list[Part]] = []
    for part in parts:
        if runs and is_plain(part) and isinstance(runs[-1][0], TextPart):
            runs[-1].append(part)
        elif not runs or part != EMPTY:
            runs.append([part])
    return tuple(map(_joined, runs))


def _joined(run: Sequence[Part]) -> Part:
    if len(run) == 1:
        return run[0]
    texts = [part.text for part in run if isinstance(part, TextPart)]
    return run[0].model_copy(update={"text": "".join(texts)})


def answer_part(text: str, *, is_data: bool) -> TextPart | DataPart:
    """Return an answer for clients; one that was stored before the agent had an output model is a text."""
    try:
        return DataPart(data=json.loads(text)) if is_data else TextPart(text=text)
    except ValueError:
        return TextPart(text=text)


def describe_parts(parts: Sequence[Part]) -> list[JsonValue]:
    """Return parts as JSON in which a new field appears only where it is set.

    The id of a stored file stands for its bytes.
    """
    return [part.model_dump(mode="json", exclude=_unused(part)) for part in parts]


def content_digest(message: UserMessage) -> str:
    """Return the digest of a message's content, without its annotations."""
    content = json.dumps(describe_parts(message.parts), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _unused(part: Part) -> set[str]:
    return {name for name in ("media_type", "filename", "metadata") if not getattr(part, name)}


# Digest and size of a transcript, by which workflow and activities compare it without sending it.

ENVELOPE = 200
"""Approximate bytes of a message besides its content: ids and field names."""

BYTES_PER_TOKEN = 4
"""Estimate for text without a token count of the provider."""

DIGEST_LENGTH = 16
"""Characters, of four bits each: every call about a transcript has its digest."""

_NOT_IN_CACHE = {"is_published"}
"""Fields that an activity sets after its message is cached. They are not sent to models."""


def extend_digest(digest: str, messages: Iterable[TranscriptMessage]) -> str:
    """Return the digest of a transcript whose digest was `digest` (empty at first), extended by messages.

    It is the same on both sides of a payload, whatever JSON round trips changed in a message.
    """
    for message in messages:
        content = message.model_dump_json(exclude_defaults=True, exclude=_NOT_IN_CACHE)
        digest = sha256(f"{digest}{content}".encode()).hexdigest()[:DIGEST_LENGTH]
    return digest


def measure(message: TranscriptMessage | AgentMessage) -> int:
    """Return the approximate size of a message in bytes of JSON.

    Decisions of workflows depend on it, so it must not change: fields that were added to messages later
    count only where they are set.
    """
    return ENVELOPE + sum(map(_size, _content(message)))


def estimate_tokens(message: TranscriptMessage) -> int:
    """Estimate the tokens that a message adds to a prompt."""
    return measure(message) // BYTES_PER_TOKEN


def prompt_tokens_of(messages: Iterable[TranscriptMessage]) -> int:
    """Estimate the tokens of a prompt of these messages; 0 after a summary, until the next reply."""
    tokens = 0
    for message in messages:
        usage = message.usage if isinstance(message, AssistantMessage) else Usage()
        counted = usage.input_tokens + usage.output_tokens
        is_summary = isinstance(message, SummaryMessage)
        tokens = 0 if is_summary else counted or tokens + estimate_tokens(message)
    return tokens


def _content(message: Message | TranscriptMessage) -> Iterable[JsonValue]:
    match message:
        case UserMessage():
            yield message.metadata
            yield [[reference.text, reference.answer] for reference in message.references]
            yield from _content_of_parts(message.parts)
        case AgentMessage():
            yield message.metadata
            yield from _content_of_parts(message.parts)
        case AssistantMessage():
            yield [message.text, message.reasoning, message.refused, message.closing]
            yield [[call.id, call.name, call.arguments] for call in message.tool_calls]
            yield from filter(None, (message.opaque, *(call.opaque for call in message.tool_calls)))
        case ToolMessage():
            yield [message.call_id, message.name, message.content]
            yield list(message.artifacts)
            yield from _content_of_parts(message.files)
        case SummaryMessage():
            yield message.text
        case _:
            yield [[tool.name, tool.description, tool.parameters] for tool in message.tools]


def _content_of_parts(parts: Iterable[Part]) -> Iterable[JsonValue]:
    for part in parts:
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
