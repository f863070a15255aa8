"""What a scripted model replies, and how OpenAI's Chat Completions say it: whole, or in chunks."""

import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
from pydantic import JsonValue

from everloop.deploy.demo_model.chat_request import ChatRequest

FRAGMENT = 12
"""Characters of tool arguments in one chunk."""


@dataclass(frozen=True)
class Call:
    """A tool that the model wants to be run; `arguments` may be a text, be it no JSON, as models write it."""

    name: str
    arguments: Mapping[str, JsonValue] | str = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)
class Reply:
    """What the model answers: text, and tools to call, if any.

    `thought` is reasoning before it. `finish_reason` is by default what the reply suggests. `usage` is
    (input, output) tokens; by default four characters count as one. `is_cut`: the connection is lost in the
    middle.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    finish_reason: str = ""
    usage: tuple[int, int] | None = None
    is_cut: bool = False

    @property
    def reason(self) -> str:
        """Why the reply ends, as the provider says it."""
        return self.finish_reason or ("tool_calls" if self.calls else "stop")


@dataclass(frozen=True)
class Refusal:
    """An HTTP error in place of a reply. `retry_after`: seconds."""

    status: int
    message: str = "refused by the script"
    code: str | None = None
    retry_after: int | None = None


@dataclass(frozen=True)
class Completion:
    """One completion: its head (id, time and model), and what is said under it."""

    head: Mapping[str, Any]
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
        if self.reply.thought:
            message.reasoning_content = self.reply.thought  # pyright: ignore[reportAttributeAccessIssue] -- others add it
        choice = Choice(index=0, message=message, finish_reason=self._reason)
        return ChatCompletion(**self.head, object="chat.completion", choices=[choice], usage=self.usage)

    def chunks(self, *, include_usage: bool) -> Iterator[ChatCompletionChunk]:
        """Yield the answer word by word; each call in several pieces, as real models send them."""
        yield self._chunk(ChoiceDelta(role="assistant", content=""))
        for word in _words(self.reply.thought):
            yield self._chunk(ChoiceDelta.model_validate({"reasoning_content": word}))
        for word in _words(self.reply.text):
            yield self._chunk(ChoiceDelta(content=word))
        for index, call in enumerate(self.reply.calls):
            for piece in _pieces(index, call):
                yield self._chunk(ChoiceDelta(tool_calls=[piece]))
        yield self._chunk(ChoiceDelta(), self._reason)
        if include_usage:
            yield ChatCompletionChunk(
                **self.head, object="chat.completion.chunk", choices=[], usage=self.usage
            )

    @property
    def _reason(self) -> Any:  # noqa: ANN401 -- providers have more reasons than the SDK knows
        return self.reply.reason

    def _chunk(self, delta: ChoiceDelta, reason: Any = None) -> ChatCompletionChunk:  # noqa: ANN401 -- as above
        choice = ChunkChoice(index=0, delta=delta, finish_reason=reason)
        return ChatCompletionChunk(**self.head, object="chat.completion.chunk", choices=[choice], usage=None)


def complete(request: ChatRequest, reply: Reply) -> Completion:
    """Put a reply under a new id; four characters are a token, unless the reply says how many there are."""
    asked = math.ceil(len(request.model_dump_json(exclude_defaults=True)) / 4)
    said = [reply.thought, reply.text, *(f"{call.name} {arguments_text(call)}" for call in reply.calls)]
    sent, written = reply.usage or (asked, math.ceil(len("".join(said)) / 4))
    usage = CompletionUsage(prompt_tokens=sent, completion_tokens=written, total_tokens=sent + written)
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": request.model}
    return Completion(head, reply, usage)


def arguments_text(call: Call) -> str:
    """Return the arguments as a model writes them: JSON text."""
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


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
