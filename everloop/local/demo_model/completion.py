"""Replies of a scripted model, in the format of OpenAI's Chat Completions: complete, or in chunks."""

import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from everloop.local.demo_model.chat_request import ChatRequest

Object = dict[str, Any]
"""JSON in the provider's format."""

FRAGMENT = 12
"""Characters of tool arguments in one chunk."""


@dataclass(frozen=True)
class Call:
    """Tool call of the model; `arguments` may be a text, even invalid JSON, as real models write it."""

    name: str
    arguments: Mapping[str, JsonValue] | str = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)
class Reply:
    """Reply of the model: text, and tool calls, if any.

    `thought` is reasoning before it. The default `finish_reason` follows from the reply. `usage` is
    (input, output) tokens; by default four characters count as one. `is_cut`: the connection is lost in
    the middle.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    finish_reason: str = ""
    usage: tuple[int, int] | None = None
    is_cut: bool = False

    @property
    def reason(self) -> str:
        """The finish reason in the provider's terms."""
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
    """One completion: its head (id, time and model), and its reply."""

    head: Object
    reply: Reply
    usage: Mapping[str, int]

    def to_json(self) -> Object:
        """Return the response to a request without streaming."""
        message: Object = {"role": "assistant", "content": self.reply.text}
        if self.reply.calls:
            message["tool_calls"] = [_call(call.name, arguments_text(call)) for call in self.reply.calls]
        if self.reply.thought:
            message["reasoning_content"] = self.reply.thought
        choice = {"index": 0, "message": message, "finish_reason": self.reply.reason}
        return {**self.head, "object": "chat.completion", "choices": [choice], "usage": self.usage}

    def chunks(self, *, include_usage: bool) -> Iterator[Object]:
        """Yield the answer word by word, and each call in several pieces, as real models send them."""
        yield self._chunk({"role": "assistant", "content": ""})
        for word in _words(self.reply.thought):
            yield self._chunk({"reasoning_content": word})
        for word in _words(self.reply.text):
            yield self._chunk({"content": word})
        for index, call in enumerate(self.reply.calls):
            for piece in _pieces(call):
                yield self._chunk({"tool_calls": [{"index": index, **piece}]})
        yield self._chunk({}, self.reply.reason)
        if include_usage:
            yield {**self.head, "object": "chat.completion.chunk", "choices": [], "usage": self.usage}

    def _chunk(self, delta: Object, reason: str | None = None) -> Object:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**self.head, "object": "chat.completion.chunk", "choices": [choice], "usage": None}


def complete(request: ChatRequest, reply: Reply) -> Completion:
    """Complete a reply with a new id; four characters are a token, unless the reply has their number."""
    prompt_tokens = math.ceil(len(request.model_dump_json(exclude_defaults=True)) / 4)
    said = [reply.thought, reply.text, *(f"{call.name} {arguments_text(call)}" for call in reply.calls)]
    sent, written = reply.usage or (prompt_tokens, math.ceil(len("".join(said)) / 4))
    usage = {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written}
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": request.model}
    return Completion(head, reply, usage)


def arguments_text(call: Call) -> str:
    """Return the arguments in a model's format: JSON text."""
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def _pieces(call: Call) -> Iterator[Object]:
    yield _call(call.name, "")
    text = arguments_text(call)
    for start in range(0, len(text), FRAGMENT):
        yield {"function": {"arguments": text[start : start + FRAGMENT]}}


def _call(name: str, arguments: str) -> Object:
    """Return a call with a new id: no code may rely on a model that repeats itself."""
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}
