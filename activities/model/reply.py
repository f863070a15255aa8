"""Puts the chunks of a Chat Completions stream together into one reply.

Providers differ. What is accepted beyond the letter of the API: chunks without choices or delta; usage in its
own chunk, in the last one or in every one (the last stands); reasoning as `reasoning_content` or `reasoning`;
tool calls whole or in fragments, with an id on each fragment, on the first or on none; parallel calls that
all have index 0 but ids of their own; "[DONE]" without a finish reason. The client does not validate chunks:
what a provider leaves out is None, even where the types say otherwise.
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import groupby

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage
from everloop.workflows.contract.names import name_calls

# Mends characters that a provider cut in two.
#
# JSON escapes a character beyond U+FFFF as two halves (RFC 8259 §7); a provider that cuts its stream between
# them sends text that no encoder takes.


class SurrogateJoiner:
    """Joins halves across pieces of a text; a half that stays alone becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-16-le")("replace")

    def feed(self, text: str) -> str:
        """Return the text that is whole now."""
        return self._decoder.decode(text.encode("utf-16-le", "surrogatepass"))

    def close(self) -> str:
        """Return what is left; the text ends here."""
        return self._decoder.decode(b"", final=True)


def mend(text: str) -> str:
    """Join the halves in a whole text."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# Pieces of a reply, as they come off the stream.


@dataclass(frozen=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class ThoughtDelta:
    """A piece of the reasoning. `thought_id` is the id of an inline <thinking> tag, or empty.

    `last`: the thought ends here, and this piece is empty.
    """

    text: str
    thought_id: str = ""
    last: bool = False


@dataclass(frozen=True)
class ArgumentsDelta:
    """A piece of the arguments of a tool call. `call` counts the calls of the reply from 0."""

    text: str
    call: int
    tool: str


Delta = TextDelta | ThoughtDelta | ArgumentsDelta


def coalesce(deltas: Iterable[Delta]) -> list[Delta]:
    """Join neighbours that continue each other; the order stays."""
    runs = (list(run) for _, run in groupby(deltas, key=_voice))
    return [replace(run[0], text="".join(delta.text for delta in run)) for run in runs]


def text_of_deltas(deltas: Iterable[Delta]) -> str:
    """Return what belongs to the answer."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def _voice(delta: Delta) -> tuple[type, str | int, bool]:
    match delta:
        case TextDelta():
            return TextDelta, "", False
        case ThoughtDelta():
            return ThoughtDelta, delta.thought_id, delta.last
        case ArgumentsDelta():
            return ArgumentsDelta, delta.call, False


# Splits inline <thinking id="…">…</thinking> tags out of a text that comes in pieces.
#
# The result does not depend on where the text is cut. The rules:
#
# - An opening tag is `<thinking>`, or has an id in quotes: `<thinking id="plan">`. It ends at the first `>`
# and has at most `MAX_TAG_LENGTH` characters. Whatever else begins like one (`<thinkingcap>`) is text.
# - Tags do not nest: inside a thought an opening tag is part of the thought, and the first `</thinking>` ends
# it. A model that only mentions the tag cannot swallow its own answer this way.
# - A closing tag outside of a thought is text. A thought that is never closed goes to the end.

MAX_TAG_LENGTH = 200
_OPENING = re.compile(r"""<thinking(?:\s+id\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'))?\s*>""")
_NAME = "<thinking"
_CLOSING = "</thinking>"


class ThinkingSplitter:
    """Takes text, gives deltas. Holds back only what may still turn out to be a tag."""

    def __init__(self) -> None:
        self._held = ""
        self._thought_id: str | None = None

    def feed(self, text: str) -> list[Delta]:
        """Return what is certain now."""
        self._held += text
        return list(self._split())

    def close(self) -> list[Delta]:
        """Return what was held back; the text ends here."""
        rest, self._held = self._held, ""
        return self._delta(rest)

    def _split(self) -> Iterator[Delta]:
        """Cut off one certain piece after the other, until none is left."""
        while self._held:
            before = len(self._held)
            yield from self._split_text() if self._thought_id is None else self._split_thought()
            if len(self._held) == before:
                return

    def _split_text(self) -> list[Delta]:
        plain, bracket, _ = self._held.partition("<")
        if plain or not bracket:
            return self._take(len(plain))
        length = tag_length(self._held)
        if length is None:
            return []
        tag = _OPENING.fullmatch(self._held, 0, length)
        if tag is None:
            return self._take(1)
        self._held = self._held[length:]
        self._thought_id = tag["double"] or tag["single"] or ""
        return []

    def _split_thought(self) -> list[Delta]:
        thought, closing, rest = self._held.partition(_CLOSING)
        if not closing:
            return self._take(len(self._held) - overlap(self._held, _CLOSING))
        deltas = self._delta(thought)
        self._held, self._thought_id = rest, None
        return deltas

    def _take(self, length: int) -> list[Delta]:
        taken, self._held = self._held[:length], self._held[length:]
        return self._delta(taken)

    def _delta(self, text: str) -> list[Delta]:
        if not text:
            return []
        return [TextDelta(text) if self._thought_id is None else ThoughtDelta(text, self._thought_id)]


def tag_length(text: str) -> int | None:
    """Return how long the tag at the head of the text is, 0 if there is none, None while that is open."""
    head = text[: len(_NAME)]
    if not _NAME.startswith(head):
        return 0
    end = text.find(">", 0, MAX_TAG_LENGTH)
    if "<" in text[1 : end if end >= 0 else MAX_TAG_LENGTH]:
        return 0
    if end >= 0:
        return end + 1
    if len(text) >= MAX_TAG_LENGTH or not (text[len(_NAME) :] or " ")[0].isspace():
        return 0
    return None


def overlap(text: str, word: str) -> int:
    """Return how many characters at the end of the text may begin the word, which is not in it."""
    return next((n for n in range(len(word) - 1, 0, -1) if text.endswith(word[:n])), 0)


class IncompleteReplyError(Exception):
    """The stream ended before the reply was finished."""


class UnreadableStreamError(Exception):
    """What came is no Chat Completions stream."""


@dataclass
class _Call:
    """`waiting` is what has come before the name, and so before it is known whether it is drafted."""

    number: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    waiting: list[str] = field(default_factory=list[str])
    characters: SurrogateJoiner = field(default_factory=SurrogateJoiner)


class ReplyAssembler:
    """Takes chunks, gives deltas, and at the end the whole reply.

    `position` is that of the reply in the transcript, from which its calls get their ids: those of the
    provider only tell fragments apart. `drafted` names the tools whose arguments are wanted while they are
    written.
    """

    def __init__(self, position: int, drafted: AbstractSet[str] = frozenset()) -> None:
        self._position = position
        self._drafted = drafted
        self._splitter = ThinkingSplitter()
        self._content = SurrogateJoiner()
        self._thinking = SurrogateJoiner()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._call_at_index: dict[int | None, _Call] = {}
        self._usage = Usage()
        self._model = ""
        self._finish_reason = ""
        self.response_id = ""
        self._open_thought: str | None = None
        self.is_done = False
        """Whether the provider has said that the reply is over, if not why ("[DONE]")."""

    def feed(self, chunk: ChatCompletionChunk) -> list[Delta]:
        """Take the next chunk; return what it adds."""
        self.response_id = chunk.id or self.response_id
        self._model = chunk.model or self._model
        if chunk.usage:
            self._usage = _usage(chunk.usage)
        deltas: list[Delta] = []
        for choice in chunk.choices or ():
            if choice.delta:
                deltas += self._add(choice.delta)
            self._finish_reason = choice.finish_reason or self._finish_reason
        return deltas

    def close(self) -> list[Delta]:
        """Return the last deltas; the stream is over.

        Raises:
            IncompleteReplyError: it was cut: no finish reason came, or a tool call has no name.
        """
        rest = self._splitter.feed(self._content.close()) + self._splitter.close()
        if thought := self._thinking.close():
            rest.insert(0, ThoughtDelta(thought))
        rest = [*self._keep(rest), *self._end_thought()]
        self._finish_reason = self._finish_reason or self._reason_of_done()
        if any(not call.name for call in self._calls):
            raise IncompleteReplyError("the reply holds a tool call without a name")
        return rest

    def _reason_of_done(self) -> str:
        """Return why a reply without a finish reason is finished."""
        if not self.is_done:
            raise IncompleteReplyError("the stream ended before the reply was finished")
        if self._calls:
            return "tool_calls"
        if not self._text:
            raise UnreadableStreamError(
                "the stream ended with [DONE], without a reply: check OPENAI_BASE_URL and the model"
            )
        return "stop"

    @property
    def reply(self) -> AssistantMessage:
        """The reply as far as it came."""
        return AssistantMessage(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=self._tool_calls(),
            model=self._model,
            finish_reason=self._finish_reason,
            usage=self._usage,
        )

    def _add(self, delta: ChoiceDelta) -> list[Delta]:
        deltas: list[Delta] = []
        for fragment in delta.tool_calls or ():
            deltas += self._add_fragment(fragment)
        if thought := self._thinking.feed(_reasoning_of(delta)):
            deltas.append(ThoughtDelta(thought))
        elif delta.tool_calls:
            deltas[:0] = self._end_thought()
        deltas += self._splitter.feed(self._content.feed((delta.content or "") + (delta.refusal or "")))
        return self._keep(deltas)

    def _keep(self, deltas: list[Delta]) -> list[Delta]:
        """Return deltas that belong to the reply, with the ends of the thoughts that they do not continue."""
        kept: list[Delta] = []
        for delta in deltas:
            thought_id = delta.thought_id if isinstance(delta, ThoughtDelta) else None
            if thought_id != self._open_thought:
                kept += self._end_thought()
            self._open_thought = thought_id
            if isinstance(delta, TextDelta):
                self._text.append(delta.text)
            elif isinstance(delta, ThoughtDelta):
                self._reasoning.append(delta.text)
            kept.append(delta)
        return kept

    def _end_thought(self) -> list[Delta]:
        thought_id, self._open_thought = self._open_thought, None
        return [] if thought_id is None else [ThoughtDelta("", thought_id, last=True)]

    def _add_fragment(self, fragment: ChoiceDeltaToolCall) -> list[ArgumentsDelta]:
        call = self._call_at_index.get(fragment.index)
        if call is None or (fragment.id and call.id and fragment.id != call.id):
            call = self._call_at_index[fragment.index] = _Call(len(self._calls))
            self._calls.append(call)
        call.id = fragment.id or call.id
        if not fragment.function:
            return []
        call.name = fragment.function.name or call.name
        call.arguments.append(fragment.function.arguments or "")
        call.waiting.append(call.arguments[-1])
        return self._take_waiting(call) if call.name else []

    def _take_waiting(self, call: _Call) -> list[ArgumentsDelta]:
        """Return what has come of the arguments, if they are wanted; half a character waits for the other."""
        written = "".join(call.waiting)
        call.waiting.clear()
        if call.name not in self._drafted:
            return []
        text = call.characters.feed(written)
        return [ArgumentsDelta(text, call.number, call.name)] if text else []

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        written = (
            ToolCall(id="", name=mend(c.name), arguments=mend("".join(c.arguments))) for c in self._calls
        )
        return name_calls(written, self._position)


def _reasoning_of(delta: ChoiceDelta) -> str:
    """Return the reasoning, which providers put into fields that the API does not name."""
    extra = delta.model_extra or {}
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := extra.get(name), str) and text:
            return text
    return ""


def _usage(usage: CompletionUsage) -> Usage:
    return Usage(input_tokens=usage.prompt_tokens or 0, output_tokens=usage.completion_tokens or 0)
