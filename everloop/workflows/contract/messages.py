"""Messages as A2A knows them and as the transcript of a task keeps them.

Source: A2A 1.0 §4.1.4 (Message), §4.1.6 (Part); OpenAI Chat Completions for roles and tool calls.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from everloop.workflows.contract.payloads import Wire


class TextPart(Wire):
    """Text. `media_type` and `filename` are empty unless somebody named them."""

    kind: Literal["text"] = "text"
    text: str
    media_type: str = ""
    filename: str = ""
    metadata: dict[str, JsonValue] = {}


EMPTY = TextPart(text="")
"""Adds nothing to a part."""


class DataPart(Wire):
    """Structured content: any JSON value."""

    kind: Literal["data"] = "data"
    data: JsonValue
    media_type: str = ""
    filename: str = ""
    metadata: dict[str, JsonValue] = {}


class StoredPart(Wire):
    """Where the artifact store keeps a file: part `index` of an artifact in the context of the task."""

    artifact_id: str
    index: int = 0


class FilePart(Wire):
    """A file. Its content is in one of three places: here in base64, behind a `url`, or `stored`.

    `size` is in bytes, None where nobody knows it (a URL, or a file that is still being written).
    """

    kind: Literal["file"] = "file"
    media_type: str = "application/octet-stream"
    filename: str = ""
    size: int | None = None
    content: str = ""
    url: str = ""
    stored: StoredPart | None = None
    metadata: dict[str, JsonValue] = {}


Part = Annotated[TextPart | DataPart | FilePart, Field(discriminator="kind")]


class TaskReference(Wire):
    """Another task that a message refers to, and in words what came of it, for the model.

    `answer` is what its agent answered, `text` everything else.
    """

    task_id: str
    state: str
    text: str
    answer: str = ""


class UserMessage(Wire):
    """A message of the client. `message_id` is unique within its task (`names.view_message_id`).

    `answers` is the id of the open question that it answers. The gateway sets it, and nobody else, by what
    clients could see of the task when the message arrived; empty: it is no answer, whatever it says.
    `references` are the tasks that A2A's referenceTaskIds name, `extensions` URIs of what it makes use of.
    """

    role: Literal["user"] = "user"
    message_id: str
    parts: tuple[Part, ...]
    metadata: dict[str, JsonValue] = {}
    answers: str = ""
    references: tuple[TaskReference, ...] = ()
    extensions: tuple[str, ...] = ()


class AgentMessage(Wire):
    """A message of the agent to the client in a status, outside of the answer itself."""

    role: Literal["agent"] = "agent"
    message_id: str
    parts: tuple[Part, ...]
    metadata: dict[str, JsonValue] = {}


Message = Annotated[UserMessage | AgentMessage, Field(discriminator="role")]


class ToolCall(Wire):
    """A call the model asked for. `arguments` is the JSON text as the model wrote it.

    `id` is our own, made of its place (`everloop.workflows.contract.names.name_calls`). `repeat` counts the
    calls before it in its reply that say exactly the same. `opaque` is as in `AssistantMessage`.
    """

    id: str
    name: str
    arguments: str
    repeat: int = 0
    opaque: str = ""

    def result(
        self, content: str, outcome: "ToolOutcome" = "ok", artifacts: tuple[str, ...] = ()
    ) -> "ToolMessage":
        """Return the message that says what the call came to."""
        return ToolMessage(
            call_id=self.id, name=self.name, content=content, outcome=outcome, artifacts=artifacts
        )


class Usage(Wire):
    """Tokens, as the provider counted them, and what they cost in US dollars; None where nobody knows it.

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
        """Return it under names as A2A writes them."""
        return {"inputTokens": self.input_tokens, "outputTokens": self.output_tokens, "cost": self.cost}

    def __add__(self, other: "Usage") -> "Usage":
        """Return both together; a cost of which a part is not known is not known."""
        is_known = self.cost is not None and other.cost is not None
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.known_cost + other.known_cost if is_known else None,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def known_cost(self) -> float:
        """The cost as limits count it: 0 where nobody knows it."""
        return self.cost or 0


class AssistantMessage(Wire):
    """One whole reply of the model. Without `tool_calls` its text is an answer."""

    role: Literal["assistant"] = "assistant"
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    model: str = ""
    """As the provider named it; see `answered_by`."""
    finish_reason: str = ""
    """Why it ended; see `ended_with`."""
    usage: Usage = Usage()
    is_published: bool = True
    """False if the end of the reply could not be published; the workflow then does it."""
    closing: str = ""
    """What goes into the last status, beside an answer or in its place."""
    rejects: bool = False
    """Whether the task ends as rejected."""
    refused: str = ""
    """Why the reply does not stand: the model reads it and replies again."""
    is_invalid: bool = False
    """Whether it was refused because it is not the data that the agent has to give."""
    source: str = ""
    """The model that was asked, as `provider/model`."""
    opaque: str = ""
    """A JSON object: fields that the provider wants back with the reply. Nobody else reads them; they go to
    the `source` alone, and to no client."""
    reasoning_field: str = ""
    """The field under which `reasoning` goes back word for word, where the provider wants that."""
    reason: str = ""
    """Why the reply is no ordinary end: a name of `failures`."""
    fails: bool = False
    """Whether the task fails for that reason."""

    @property
    def answered_by(self) -> str:
        """The model as the provider named it, which most name as it was asked for."""
        return self.model or self.source.partition("/")[2]

    @property
    def ended_with(self) -> str:
        """Why the provider says that it ended."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "")

    def to_keep(self) -> "AssistantMessage":
        """Return it without what the rest of it says: a history has many replies."""
        rest = self.model_copy(update={"model": "", "finish_reason": ""})
        model = "" if rest.answered_by == self.model else self.model
        reason = "" if rest.ended_with == self.finish_reason else self.finish_reason
        return rest.model_copy(update={"model": model, "finish_reason": reason})


ToolOutcome = Literal["ok", "error", "invalid", "unknown", "rejected"]
"""How a tool call ended.

"error": the tool failed. "invalid": there is no such tool, or the arguments do not fit. "unknown": it was
started but its end was lost, and it was not run again because it is not idempotent. "rejected": a person
said no, or nobody answered in time.
"""


class ToolMessage(Wire):
    """What one tool call came to; unless all went well, `content` says what did not.

    `artifacts` are the ids of those that it wrote. `raised_at` is the line of the tool's author where it
    raised, such as `tools.py:12 pay`; the model does not read it. `files` are for the model to look at, by
    reference. `whole`: how many bytes the result has of which `content` is the beginning; 0: it is all. It is
    `kept` under this name (`names.result_artifact`); empty: the rest is lost.
    """

    role: Literal["tool"] = "tool"
    call_id: str
    name: str
    content: str
    outcome: ToolOutcome = "ok"
    artifacts: tuple[str, ...] = ()
    raised_at: str = ""
    files: tuple[FilePart, ...] = ()
    whole: int = 0
    kept: str = ""
    cached: bool = False
    """It is what an earlier call with the same arguments was answered; this one did not run."""


class SummaryMessage(Wire):
    """From here on, model calls read `text` in place of the transcript's messages up to `end` (exclusive).

    The task's first message, at position `first`, stays, and so do those from `end` on. An empty text means
    that they are left out. An earlier summary is covered by a later one. `usage` is what writing it took.
    """

    role: Literal["summary"] = "summary"
    first: int = 0
    end: int
    text: str = ""
    usage: Usage = Usage()


class ListedTool(Wire):
    """A tool as the model reads of it; in a transcript one that a plugin has listed for the task.

    `parameters` is the JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: dict[str, JsonValue]


class ToolsMessage(Wire):
    """The tools that plugins have listed for the task.

    From here on model calls offer these, beside the agent's own, whatever their servers say later. The last
    list counts. No model reads it as a message.
    """

    role: Literal["tools"] = "tools"
    tools: tuple[ListedTool, ...]


SpokenMessage = UserMessage | AssistantMessage | ToolMessage
"""The messages of a conversation; everything else in a transcript is about it."""

TranscriptMessage = Annotated[
    UserMessage | AssistantMessage | ToolMessage | SummaryMessage | ToolsMessage, Field(discriminator="role")
]


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the text of the text parts, one paragraph each; data and files are left out."""
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))


def is_plain(part: Part) -> bool:
    """Whether it is a text with neither media type nor file name."""
    return isinstance(part, TextPart) and not (part.media_type or part.filename)


def join_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts as views show them: a plain text continues the text before it.

    Where there is none to continue, an empty one is left out, unless it is all there is.
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
    """Return an answer as clients get it; one that was stored before the agent gave data is a text."""
    try:
        return DataPart(data=json.loads(text)) if is_data else TextPart(text=text)
    except ValueError:
        return TextPart(text=text)


def describe_parts(parts: Sequence[Part]) -> list[JsonValue]:
    """Return parts as JSON that a new field changes only where it is used.

    The id under which a file is stored stands for its bytes.
    """
    return [part.model_dump(mode="json", exclude=_unused(part)) for part in parts]


def content_digest(message: UserMessage) -> str:
    """Return what tells what this message says from what another one says, whatever is noted beside it."""
    content = json.dumps(describe_parts(message.parts), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _unused(part: Part) -> set[str]:
    return {name for name in ("media_type", "filename", "metadata") if not getattr(part, name)}


# What workflow and activities know of a transcript without sending it: its digest, and its size.

ENVELOPE = 200
"""Bytes of a message besides what it says: ids and names of fields, about."""

BYTES_PER_TOKEN = 4
"""A rule of thumb, for what the provider has not counted yet."""

DIGEST_LENGTH = 16
"""Characters, of four bits each: every call about a transcript has its digest."""

_NOT_IN_CACHE = {"is_published"}
"""What an activity finds out once its message is cached. No model reads it."""


def extend_digest(digest: str, messages: Iterable[TranscriptMessage]) -> str:
    """Return the digest of a transcript, of which `digest` is that so far (empty at first), with these added.

    It is the same on both sides of a payload, whatever JSON has made of a message in between.
    """
    for message in messages:
        content = message.model_dump_json(exclude_defaults=True, exclude=_NOT_IN_CACHE)
        digest = sha256(f"{digest}{content}".encode()).hexdigest()[:DIGEST_LENGTH]
    return digest


def measure(message: TranscriptMessage | AgentMessage) -> int:
    """Return about how many bytes a message has in JSON.

    Decisions of workflows depend on it, so it must not change: what was added to messages later counts only
    where there is some.
    """
    return ENVELOPE + sum(map(_size, _content(message)))


def estimate_tokens(message: TranscriptMessage) -> int:
    """Return about how many tokens a message adds to a prompt."""
    return measure(message) // BYTES_PER_TOKEN


def prompt_tokens_of(messages: Iterable[TranscriptMessage]) -> int:
    """Return about how long a prompt of these messages is; 0 behind a summary, until a reply tells."""
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
