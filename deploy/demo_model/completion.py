"""A reply of the script as OpenAI's Chat Completions say it, whole or in chunks."""

import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice
from openai.types.chat.chat_completion_chunk import Choice as ChunkChoice
from openai.types.chat.chat_completion_chunk import (
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
)
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)

from everloop.deploy.demo_model.chat_request import ChatRequest
from everloop.deploy.demo_model.script import MODEL, Call, Reply, arguments_text

FRAGMENT = 12
"""Characters of tool arguments in one chunk."""


@dataclass(frozen=True)
class Completion:
    """One completion: an id, and what is said under it."""

    id: str
    created: int
    reply: Reply
    usage: CompletionUsage

    def whole(self) -> ChatCompletion:
        """Return the answer to a request that does not stream."""
        calls = [
            ChatCompletionMessageFunctionToolCall(
                id=_call_id(),
                type="function",
                function=Function(name=call.name, arguments=arguments_text(call)),
            )
            for call in self.reply.calls
        ]
        message = ChatCompletionMessage(
            role="assistant", content=self.reply.text, tool_calls=[*calls] if calls else None
        )
        choice = Choice(index=0, message=message, finish_reason="tool_calls" if calls else "stop")
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=MODEL,
            object="chat.completion",
            choices=[choice],
            usage=self.usage,
        )

    def chunks(self, *, include_usage: bool) -> Iterator[ChatCompletionChunk]:
        """Yield the answer word by word; each call in several pieces, as real models send them."""
        yield self._chunk(ChoiceDelta(role="assistant", content=""))
        for word in re.findall(r"\S+\s*|\s+", self.reply.text):
            yield self._chunk(ChoiceDelta(content=word))
        for index, call in enumerate(self.reply.calls):
            for piece in _pieces(index, call):
                yield self._chunk(ChoiceDelta(tool_calls=[piece]))
        last = ChunkChoice(
            index=0, delta=ChoiceDelta(), finish_reason="tool_calls" if self.reply.calls else "stop"
        )
        yield self._of(last)
        if include_usage:
            yield self._of(usage=self.usage)

    def _chunk(self, delta: ChoiceDelta) -> ChatCompletionChunk:
        return self._of(ChunkChoice(index=0, delta=delta, finish_reason=None))

    def _of(self, *choices: ChunkChoice, usage: CompletionUsage | None = None) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self.id,
            created=self.created,
            model=MODEL,
            object="chat.completion.chunk",
            choices=list(choices),
            usage=usage,
        )


def complete(request: ChatRequest, reply: Reply) -> Completion:
    """Put a reply under a new id; tokens are counted as words."""
    asked = len(request.model_dump_json().split())
    answered = len(reply.text.split()) + sum(len(arguments_text(call).split()) + 1 for call in reply.calls)
    usage = CompletionUsage(prompt_tokens=asked, completion_tokens=answered, total_tokens=asked + answered)
    return Completion(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), reply, usage)


def _pieces(index: int, call: Call) -> Iterator[ChoiceDeltaToolCall]:
    yield ChoiceDeltaToolCall(
        index=index,
        id=_call_id(),
        type="function",
        function=ChoiceDeltaToolCallFunction(name=call.name, arguments=""),
    )
    text = arguments_text(call)
    for start in range(0, len(text), FRAGMENT):
        fragment = ChoiceDeltaToolCallFunction(arguments=text[start : start + FRAGMENT])
        yield ChoiceDeltaToolCall(index=index, function=fragment)


def _call_id() -> str:
    """Return a new id; two requests never share one, as nothing may rely on a model repeating itself."""
    return f"call_{uuid.uuid4().hex[:24]}"
