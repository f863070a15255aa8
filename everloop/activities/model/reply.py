"""Assembles the deltas of a model into one reply, and separates thoughts from the answer."""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import groupby

import structlog
from pydantic import JsonValue
from pydantic_core import from_json

from everloop.models.interface import (
    MAX_OPAQUE,
    CallDelta,
    Delta,
    Ended,
    ModelDownError,
    ProviderToolDelta,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
)
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage
from everloop.workflows.contract.names import name_calls

_log = structlog.get_logger()

# Joins the halves of characters.
#
# JSON escapes a character beyond U+FFFF as two halves (RFC 8259 §7). A provider that cuts its stream between
# them sends text that cannot be encoded.


class SurrogateJoiner:
    """Joins halves across pieces of a text; a half without the other becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-16-le")("replace")

    def feed(self, text: str) -> str:
        """Return the text up to its last complete character."""
        return self._decoder.decode(text.encode("utf-16-le", "surrogatepass"))

    def close(self) -> str:
        """Return the rest at the end of the text. Another text may follow."""
        return self._decoder.decode(b"", final=True)


def mend(text: str) -> str:
    """Join the halves in a complete text."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# Visible pieces of a reply while it is written.


@dataclass(frozen=True)
class ArgumentsDelta:
    """A piece of the arguments of a tool call. `call` is the number of the call in the reply, from 0."""

    text: str
    call: int
    tool: str


VisibleDelta = TextDelta | ThoughtDelta | ArgumentsDelta | ProviderToolDelta


def coalesce(deltas: Iterable[VisibleDelta]) -> list[VisibleDelta]:
    """Join adjacent deltas that continue each other, in their order."""
    runs = (list(run) for _, run in groupby(deltas, key=_voice))
    return [_joined(run) for run in runs]


def _joined(run: Sequence[VisibleDelta]) -> VisibleDelta:
    first = run[0]
    if isinstance(first, ProviderToolDelta):
        return first
    return replace(first, text="".join(each.text for each in run if not isinstance(each, ProviderToolDelta)))


def text_of_deltas(deltas: Iterable[VisibleDelta]) -> str:
    """Return the text of the answer."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def _voice(delta: VisibleDelta) -> tuple[object, ...]:
    match delta:
        case TextDelta():
            return (TextDelta,)
        case ThoughtDelta():
            return ThoughtDelta, delta.thought_id, delta.last
        case ArgumentsDelta():
            return ArgumentsDelta, delta.call
        case ProviderToolDelta():
            return ProviderToolDelta, delta.id, delta.status


# Splits inline tags such as <think>…</think> out of a text that arrives in pieces.
#
# The result does not depend on the cuts between the pieces. The rules:
#
# - An opening tag is `<think>`, or has an id in quotes: `<think id="plan">`. It ends at the first `>` and has
# at most `MAX_TAG_LENGTH` characters. Text that only begins like a tag (`<thinker>`) is text.
# - Tags do not nest: inside a thought an opening tag is part of the thought, and the first closing tag of the
# same name ends it. A model that only mentions a tag cannot swallow its own answer this way.
# - A closing tag outside of a thought is text. A thought that is never closed extends to the end.
# - If the reply starts within a thought, any closing tag ends it, and an opening tag at its beginning is left
# out.

THINKING_TAGS = ("think", "thinking", "reasoning")
"""Default names of the tags."""

MAX_TAG_LENGTH = 200
_ID = r"""(?:\s+id\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'))?\s*>"""


class ThinkingSplitter:
    """Turns text into deltas. Holds back only text that may still become a tag.

    The delta that ends a thought is empty. `starts_thinking`: the text begins within a thought.
    """

    def __init__(self, tags: Sequence[str] = THINKING_TAGS, *, starts_thinking: bool = False) -> None:
        self._names = tuple(f"<{tag}" for tag in tags)
        self._opening = re.compile(rf"<(?P<tag>{'|'.join(map(re.escape, tags))}){_ID}")
        self._held = ""
        self._is_at_head = starts_thinking and bool(tags)
        self._thought_id: str | None = "" if self._is_at_head else None
        self._closings = tuple(f"</{tag}>" for tag in tags)

    def start_answering(self) -> None:
        """Treat the text as the answer from its beginning: the thoughts arrived separately."""
        if self._is_at_head and not self._held:
            self._is_at_head, self._thought_id = False, None

    def feed(self, text: str) -> list[TextDelta | ThoughtDelta]:
        """Return the certain deltas."""
        if not self._names:
            return [TextDelta(text)] if text else []
        self._held += text
        if self._is_at_head and not self._skip_tag():
            return []
        return list(self._split())

    def close(self) -> list[TextDelta | ThoughtDelta]:
        """Return the deltas of the text held back, at its end."""
        rest, self._held = self._held, ""
        return self._delta(rest)

    def _skip_tag(self) -> bool:
        """Leave out the tag at the beginning, if there is one; return True if that is certain."""
        length = self._tag_length() if self._held else None
        if length is None:
            return False
        if self._opening.fullmatch(self._held, 0, length):
            self._held = self._held[length:]
        self._is_at_head = False
        return True

    def _split(self) -> Iterator[TextDelta | ThoughtDelta]:
        """Cut off one certain piece after the other."""
        while self._held:
            before = len(self._held)
            yield from self._split_text() if self._thought_id is None else self._split_thought()
            if len(self._held) == before:
                return

    def _split_text(self) -> list[TextDelta | ThoughtDelta]:
        plain, bracket, _ = self._held.partition("<")
        if plain or not bracket:
            return self._take(len(plain))
        length = self._tag_length()
        if length is None:
            return []
        tag = self._opening.fullmatch(self._held, 0, length)
        if tag is None:
            return self._take(1)
        self._held = self._held[length:]
        self._thought_id = tag["double"] or tag["single"] or ""
        self._closings = (f"</{tag['tag']}>",)
        return []

    def _split_thought(self) -> list[TextDelta | ThoughtDelta]:
        found = [(at, closing) for closing in self._closings if (at := self._held.find(closing)) >= 0]
        if not found:
            return self._take(len(self._held) - max(overlap(self._held, word) for word in self._closings))
        at, closing = min(found)
        deltas = [*self._delta(self._held[:at]), ThoughtDelta("", self._thought_id or "", last=True)]
        self._held, self._thought_id = self._held[at + len(closing) :], None
        return deltas

    def _tag_length(self) -> int | None:
        """Return the length of the leading tag: 0 without a tag, None until more text decides."""
        text = self._held
        end = text.find(">", 0, MAX_TAG_LENGTH)
        if "<" in text[1 : end if end >= 0 else MAX_TAG_LENGTH]:
            return 0
        if end >= 0:
            return end + 1
        may_begin = any(
            name.startswith(text) or (text.startswith(name) and text[len(name)].isspace())
            for name in self._names
        )
        return None if may_begin and len(text) < MAX_TAG_LENGTH else 0

    def _take(self, length: int) -> list[TextDelta | ThoughtDelta]:
        taken, self._held = self._held[:length], self._held[length:]
        return self._delta(taken)

    def _delta(self, text: str) -> list[TextDelta | ThoughtDelta]:
        if not text:
            return []
        return [TextDelta(text) if self._thought_id is None else ThoughtDelta(text, self._thought_id)]


def overlap(text: str, word: str) -> int:
    """Return how many characters at the end of a text without the word may begin it."""
    return next((n for n in range(len(word) - 1, 0, -1) if text.endswith(word[:n])), 0)


@dataclass
class _StreamedCall:
    """A tool call while it is streamed.

    `waiting` is the part of the arguments before the name, which decides whether they are published.
    """

    number: int
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    waiting: list[str] = field(default_factory=list[str])
    characters: SurrogateJoiner = field(default_factory=SurrogateJoiner)


@dataclass(frozen=True)
class _OpenThought:
    """The current thought.

    `given_id` distinguishes it from other thoughts in the stream, `id` is the published one.
    """

    is_inline: bool
    given_id: str
    id: str


class ReplyAssembler:
    """Assembles the deltas of a model: returns the visible ones, and at the end the complete reply.

    `position` is that of the reply in the transcript, from which its calls and thoughts get their ids.
    `drafted` names the tools whose arguments are published while they are written. `tags` and
    `starts_thinking` are as for `ThinkingSplitter`.
    """

    def __init__(
        self,
        position: int,
        drafted: AbstractSet[str] = frozenset(),
        *,
        tags: Sequence[str] = THINKING_TAGS,
        starts_thinking: bool = False,
    ) -> None:
        self._position = position
        self._drafted = drafted
        self._splitter = ThinkingSplitter(tags, starts_thinking=starts_thinking)
        self._content = SurrogateJoiner()
        self._thinking = SurrogateJoiner()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _StreamedCall] = {}
        self._thought: _OpenThought | None = None
        self.thoughts = 0
        """Number of thoughts so far, from which the next one gets its id."""
        self._given_reasoning: list[str] = []
        self._has_inline_thoughts = False
        self._ended: Ended | None = None
        self._opaque = ""
        self._opaque_calls: Mapping[int, str] = {}
        self._reasoning_field = ""
        self.is_opaque_dropped = False
        """True if the fields that the provider needs back with the reply were dropped as too large."""

    @property
    def response_id(self) -> str:
        """The provider's id of the reply, empty until it is known."""
        return self._ended.response_id if self._ended else ""

    def feed(self, delta: Delta) -> list[VisibleDelta]:
        """Add the next delta; return the visible ones that it yields."""
        match delta:
            case TextDelta() | RefusalDelta():
                return self._keep(self._splitter.feed(self._content.feed(delta.text)))
            case ThoughtDelta():
                return self._add_thought(delta)
            case CallDelta():
                return [*self._end_thought(), *self._add_call(delta)]
            case ProviderToolDelta():
                return [*self._end_thought(), delta]
            case Ended():
                self._ended = delta
                return []

    def close(self) -> list[VisibleDelta]:
        """Return the last deltas, after the end of the stream.

        Raises:
            ModelDownError: It was cut: its end is missing, or a tool call has no name.
        """
        rest = self._splitter.feed(self._content.close()) + self._splitter.close()
        shown = [*self._keep(rest), *self._end_thought()]
        if self._ended is None:
            raise ModelDownError("the stream ended before the reply was finished")
        nameless = [number for number, call in self._calls.items() if not call.name]
        if nameless and self._ended.reason != "length":
            raise ModelDownError("the reply holds a tool call without a name")
        for number in nameless:  # its name was cut off
            del self._calls[number]
        self._keep_opaque(self._ended)
        return shown

    @property
    def reply(self) -> AssistantMessage:
        """The reply so far."""
        return AssistantMessage(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=self._tool_calls(),
            model=self._ended.model if self._ended else "",
            finish_reason=self._ended.reason if self._ended else "",
            usage=(self._ended and self._ended.usage) or Usage(),
            opaque=self._opaque,
            reasoning_field=self._reasoning_field,
        )

    def _keep(self, deltas: Iterable[TextDelta | ThoughtDelta]) -> list[VisibleDelta]:
        """Return deltas of the content, with the ends of the thoughts that they do not continue."""
        visible: list[VisibleDelta] = []
        for delta in deltas:
            if isinstance(delta, TextDelta):
                visible += self._end_thought()
                self._text.append(delta.text)
                visible.append(delta)
            elif not delta.last:
                self._has_inline_thoughts = True
                visible += self._think(delta.text, delta.thought_id, is_inline=True)
            elif self._thought and self._thought.is_inline:
                visible += self._end_thought()
        return visible

    def _add_thought(self, delta: ThoughtDelta) -> list[VisibleDelta]:
        self._splitter.start_answering()
        text = self._thinking.feed(delta.text)
        shown = self._think(text, delta.thought_id, is_inline=False) if delta.text else []
        self._given_reasoning.append(text)
        return [*shown, *self._end_thought()] if delta.last else shown

    def _think(self, text: str, given_id: str, *, is_inline: bool) -> list[VisibleDelta]:
        thought, ends = self._thought, list[VisibleDelta]()
        if thought and (thought.is_inline, thought.given_id) != (is_inline, given_id):
            thought, ends = None, self._end_thought()
        if thought is None:
            self.thoughts += 1
            made = given_id or f"r{self._position:05}t{self.thoughts:02}"
            thought = self._thought = _OpenThought(is_inline, given_id, made)
        self._reasoning.append(text)
        return [*ends, ThoughtDelta(text, thought.id)] if text else ends

    def _end_thought(self) -> list[VisibleDelta]:
        thought, self._thought = self._thought, None
        if thought is None:
            return []
        rest = "" if thought.is_inline else self._thinking.close()
        self._reasoning.append(rest)
        self._given_reasoning.append(rest)
        return [*([ThoughtDelta(rest, thought.id)] if rest else ()), ThoughtDelta("", thought.id, last=True)]

    def _add_call(self, delta: CallDelta) -> list[VisibleDelta]:
        call = self._calls.get(delta.call)
        if call is None:
            call = self._calls[delta.call] = _StreamedCall(delta.call)
        call.name += delta.name
        call.arguments.append(delta.arguments)
        call.waiting.append(delta.arguments)
        return self._take_waiting(call) if call.name else []

    def _take_waiting(self, call: _StreamedCall) -> list[VisibleDelta]:
        """Return the new part of published arguments. Half a character waits for the other half."""
        written = "".join(call.waiting)
        call.waiting.clear()
        if call.name not in self._drafted:
            return []
        text = call.characters.feed(written)
        return [ArgumentsDelta(text, call.number, call.name)] if text else []

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        written = (
            ToolCall(
                id="",
                name=mend(call.name),
                arguments=_as_object(mend("".join(call.arguments))),
                opaque=self._opaque_calls.get(number, ""),
            )
            for number, call in sorted(self._calls.items())
        )
        return name_calls(written, self._position)

    def _keep_opaque(self, ended: Ended) -> None:
        """Store the fields that the provider needs back: all of them, or none if they exceed the limit."""
        fields = dict(ended.opaque.fields)
        self._reasoning_field = ended.opaque.reasoning_field
        if self._reasoning_field and self._has_inline_thoughts:  # the reply has reasoning beside that
            fields[self._reasoning_field], self._reasoning_field = "".join(self._given_reasoning), ""
        opaque = _as_text(fields)
        calls = {number: _as_text(ended.opaque.calls.get(number, {})) for number in self._calls}
        size = sum(len(text.encode()) for text in (opaque, *calls.values()))
        self.is_opaque_dropped = size > MAX_OPAQUE
        if self.is_opaque_dropped:
            _log.warning("fields that the provider wants back dropped", size=size, most=MAX_OPAQUE)
            return
        self._opaque, self._opaque_calls = opaque, calls


def _as_object(written: str) -> str:
    """Unwrap arguments that some servers send as a JSON string, and return null as an empty text."""
    if written.strip() in {"null", '""'}:
        return ""
    if not written.lstrip().startswith('"'):
        return written
    try:
        inner: object = from_json(written)
    except ValueError:
        return written
    return inner if isinstance(inner, str) and inner.lstrip().startswith("{") else written


def _as_text(fields: Mapping[str, JsonValue]) -> str:
    """Return fields as JSON, or an empty string if there are none."""
    return mend(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))) if fields else ""
