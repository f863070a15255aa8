"""Servers between a client and the providers, each of which changes the traffic."""

from dataclasses import replace
from typing import ClassVar

from tests.support.servers.zoo.local import Ollama
from tests.support.servers.zoo.openai_chat import OpenAI
from tests.support.servers.zoo.provider import (
    Framing,
    Given,
    Object,
    Played,
    Quirk,
    calling,
    in_pieces,
    is_asked_for_usage,
    loaded,
    pieces_of,
    usage_of,
)

_LITELLM = "https://github.com/BerriAI/litellm"


class LiteLLM(OpenAI):
    """LiteLLM's proxy in front of a model of Anthropic."""

    name = "litellm"
    model = "claude-via-litellm"
    framing = Framing(comment=": ping")
    quirks = (
        Quirk("no key says null: finish_reason is absent until the end", f"{_LITELLM}/issues/11407"),
        Quirk("calls are numbered from 1 behind a text, with gaps", f"{_LITELLM}/issues/11407"),
        Quirk(
            "later fragments repeat role, content and type, and have no id",
            f"{_LITELLM}/issues/11407",
        ),
        Quirk(
            "numbers with gaps: they are those of the output items",
            "https://github.com/pipecat-ai/pipecat/issues/4987",
        ),
        Quirk(
            "the signature of a thought in thinking_blocks and once more in provider_specific_fields",
            "https://docs.litellm.ai/docs/reasoning_content",
            "documented",
        ),
        Quirk("comments: a ping", f"{_LITELLM} litellm/proxy/common_utils/sse_keepalive.py", "source"),
    )

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        deltas: list[Object] = [{"role": "assistant", "content": "", **delta} for delta in _thought(reply)]
        deltas += [{"role": "assistant", **delta} for delta in in_pieces("content", reply.words)]
        for number, (id_, (name, arguments)) in enumerate(zip(given.ids, reply.calls, strict=True)):
            index = 1 + 2 * number
            opening: Object = {"id": id_, "function": {"arguments": "", "name": name}}
            more: list[Object] = in_pieces("arguments", arguments)
            fragments: list[Object] = [opening, *({"function": function} for function in more)]
            for fragment in fragments:
                call: Object = {**fragment, "type": "function", "index": index}
                deltas.append({"content": "", "role": "assistant", **calling(call)})
        events: list[Object | str] = [_bare(body, {"index": 0, "delta": delta}) for delta in deltas]
        if not reply.cut:
            events.append(_bare(body, {"finish_reason": reply.ending, "index": 0, "delta": {}}))
            if is_asked_for_usage(body):
                events.append({**_bare(body, {"index": 0, "delta": {}}), "usage": usage_of(reply)})
        return events


def _thought(reply: Played) -> list[Object]:
    if not reply.thought:
        return []
    signed: Object = {"type": "thinking", "thinking": reply.thought, "signature": "Et0BCkgIChACGAIq"}
    deltas = in_pieces("reasoning_content", reply.thought)
    return [*deltas, {"thinking_blocks": [signed], "provider_specific_fields": {"thinking_blocks": [signed]}}]


def _bare(body: Object, choice: Object) -> Object:
    head: Object = {"id": "chatcmpl-ab2d6b3d", "created": 1749032296, "model": body["model"]}
    return {
        **head,
        "object": "chat.completion.chunk",
        "choices": [choice],
        "provider_specific_fields": {},
    }


class OllamaBehindLiteLLM(Ollama):
    """LiteLLM's proxy in front of Ollama's own API."""

    quirks = (
        Quirk(
            "the arguments of a call are an object, no text",
            f"{_LITELLM}/pull/37792",
            "reported",
        ),
        Quirk("finish_reason is stop where there are calls", f"{_LITELLM}/issues/12481", "reported"),
    )

    def fragments(self, index: int, id_: str, name: str, arguments: str) -> list[Object]:
        whole = super().fragments(index, id_, name, arguments)
        return [{**one, "function": {"name": name, "arguments": loaded(arguments)}} for one in whole]

    def chunk(self, body: Object, delta: Object, reason: str | None = None) -> Object:
        return super().chunk(body, delta, "stop" if reason == "tool_calls" else reason)


class FunctionCalls(OpenAI):
    """A gateway with function calls, OpenAI's form before tools: one call a reply."""

    name = "functions"
    model = "gemini-1.5-pro"
    quirks: ClassVar = (
        Quirk(
            "calls are delta.function_call, without id and index, and end with function_call",
            "https://github.com/TensorOpsAI/LLMstudio engine/providers (Vertex)",
            "source",
        ),
    )

    def cast(self, played: Played, body: Object) -> Played:
        return replace(played, calls=played.calls[:1])

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        deltas: list[Object] = in_pieces("content", reply.words)
        for name, arguments in reply.calls:
            deltas.append({"role": "assistant", "function_call": {"name": name, "arguments": ""}})
            for piece in pieces_of(arguments):
                more: Object = {"name": None, "arguments": piece}
                deltas.append({"function_call": more})
        events: list[Object | str] = [self.chunk(body, delta) for delta in deltas]
        ending = "function_call" if reply.calls else reply.ending
        return events if reply.cut else [*events, self.chunk(body, {}, ending)]
