"""Puts the chunks of a Chat Completions stream together into one reply.

Providers differ. What is accepted beyond the letter of the API: chunks without choices or delta; usage in its
own chunk, in the last one or in every one (the last stands); reasoning as `reasoning_content` or `reasoning`;
tool calls whole or in fragments, with an id on each fragment, on the first or on none; parallel calls that
all have index 0 but ids of their own. The client does not validate chunks: what a provider leaves out is
None, even where the types say otherwise.
"""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, count

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

from activities.deltas import ArgumentsDelta, Delta, TextDelta, ThoughtDelta
from activities.surrogates import SurrogateJoiner, mend
from activities.thinking import ThinkingSplitter
from workflows.contract.messages import AssistantMessage, ToolCall, Usage

_USABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Ids of calls become parts of others: of a question, which adds a dot and a number, and of a child workflow,
which may have 1,000 characters."""


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

    `position` is that of the reply in the transcript; `taken_ids` are the ids of earlier tool calls of the
    task. Tool outcomes are recorded by call id, so each call of a task needs its own. `drafted` names the
    tools whose arguments are wanted while they are written.
    """

    def __init__(
        self, position: int, taken_ids: AbstractSet[str], drafted: AbstractSet[str] = frozenset()
    ) -> None:
        self._position = position
        self._taken_ids = taken_ids
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
        if not self._finish_reason:
            raise IncompleteReplyError("the stream ended before the reply was finished")
        if any(not call.name for call in self._calls):
            raise IncompleteReplyError("the reply holds a tool call without a name")
        rest = self._splitter.feed(self._content.close()) + self._splitter.close()
        if thought := self._thinking.close():
            rest.insert(0, ThoughtDelta(thought))
        return self._keep(rest)

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
        deltas += self._splitter.feed(self._content.feed((delta.content or "") + (delta.refusal or "")))
        return self._keep(deltas)

    def _keep(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            if isinstance(delta, TextDelta):
                self._text.append(delta.text)
            elif isinstance(delta, ThoughtDelta):
                self._reasoning.append(delta.text)
        return deltas

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
        used = set(self._taken_ids)
        calls: list[ToolCall] = []
        for number, call in enumerate(self._calls):
            call_id = unique_call_id(call.id, used, self._position, number)
            used.add(call_id)
            arguments = mend("".join(call.arguments))
            calls.append(ToolCall(id=call_id, name=mend(call.name), arguments=arguments))
        return tuple(calls)


def unique_call_id(proposed: str, used: AbstractSet[str], position: int, number: int) -> str:
    """Return the provider's id; one made from it and the place of the call if it is used.

    An id that is missing, or no `_USABLE_ID`, gives way to one that is made from the place alone.
    """
    is_usable = bool(_USABLE_ID.fullmatch(proposed))
    stem = f"{proposed if is_usable else 'call'}-{position}"
    preferred = (proposed, stem) if is_usable else ()
    candidates = chain(preferred, (f"{stem}-{n}" for n in count(number)))
    return next(candidate for candidate in candidates if candidate not in used)


def _reasoning_of(delta: ChoiceDelta) -> str:
    """Return the reasoning, which providers put into fields that the API does not name."""
    extra = delta.model_extra or {}
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := extra.get(name), str) and text:
            return text
    return ""


def _usage(usage: CompletionUsage) -> Usage:
    return Usage(input_tokens=usage.prompt_tokens or 0, output_tokens=usage.completion_tokens or 0)
