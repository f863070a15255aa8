"""Puts the chunks of a Chat Completions stream together into one reply.

Providers differ. What is accepted beyond the letter of the API: chunks without choices or delta; usage in its
own chunk, in the last one or in every one (the last stands); reasoning as `reasoning_content` or `reasoning`;
tool calls whole or in fragments, with an id on each fragment, on the first or on none; parallel calls that
all have index 0 but ids of their own; "[DONE]" without a finish reason. The client does not validate chunks:
what a provider leaves out is None, even where the types say otherwise.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

from everloop.activities.deltas import ArgumentsDelta, Delta, TextDelta, ThoughtDelta
from everloop.activities.surrogates import SurrogateJoiner, mend
from everloop.activities.thinking import ThinkingSplitter
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage
from everloop.workflows.contract.names import name_calls


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
        told: list[Delta] = []
        for delta in deltas:
            thought_id = delta.thought_id if isinstance(delta, ThoughtDelta) else None
            if thought_id != self._open_thought:
                told += self._end_thought()
            self._open_thought = thought_id
            if isinstance(delta, TextDelta):
                self._text.append(delta.text)
            elif isinstance(delta, ThoughtDelta):
                self._reasoning.append(delta.text)
            told.append(delta)
        return told

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
