"""Common parts of self-hosted servers; Ollama and LM Studio."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tests.support.servers.zoo.provider import (
    Fault,
    Given,
    Object,
    Played,
    Provider,
    Quirk,
    broken_stream,
    calling,
    calls_of,
    faulty,
    function_of,
    in_pieces,
    is_asked_for_usage,
    is_json_object,
    is_text,
    messages_of,
    openai_error,
    refuse,
    usage_of,
)

_BAD = "invalid_request_error"


class LocalServer(Provider):
    """The common base of the four: reasoning in a field, or inline, and usage only on request."""

    reasoning: ClassVar[str] = ""
    """The field of a delta; empty: the thought is in the content, within <think>."""

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        if reply.thought and not self.reasoning:
            reply = replace(reply, text=f"<think>\n{reply.thought}\n</think>\n\n{reply.text}")
        deltas = self.opening()
        if self.reasoning:
            deltas += in_pieces(self.reasoning, reply.thought)
        deltas += in_pieces("content", reply.words)
        for index, (id_, (name, arguments)) in enumerate(zip(given.ids, reply.calls, strict=True)):
            fragments = self.fragments(index, id_, name, arguments)
            deltas += [calling(fragment) for fragment in fragments]
        events: list[Object | str] = [self.chunk(body, delta) for delta in deltas]
        if not reply.cut:
            events.append(self.chunk(body, {}, reply.ending))
            if is_asked_for_usage(body):
                events.append({**self.chunk(body, {}), "choices": [], "usage": usage_of(reply)})
        return events

    def opening(self) -> list[Object]:
        """Return the deltas before the first word."""
        return [{"role": "assistant", "content": ""}]

    def fragments(self, index: int, id_: str, name: str, arguments: str) -> list[Object]:
        """Return a call in pieces."""
        opening: Object = {"name": name, "arguments": ""}
        more: list[Object] = in_pieces("arguments", arguments)
        return [
            {"index": index, "id": id_, "type": "function", "function": opening},
            *({"index": index, "function": function} for function in more),
        ]

    @abstractmethod
    def chunk(self, body: Object, delta: Object, reason: str | None = None) -> Object:
        """Return a chunk with one choice."""


_OPENAI_GO = "https://github.com/ollama/ollama openai/openai.go"


def _ollama_error(message: str) -> Object:
    return openai_error(message, "api_error")


class Ollama(LocalServer):
    """Ollama's /v1."""

    name = "ollama"
    model = "qwen3:8b"
    reasoning = "reasoning"
    quirks = (
        Quirk("role and content in each delta", _OPENAI_GO, "source"),
        Quirk("parallel calls all have index 0", "https://github.com/ollama/ollama/issues/15457", "reported"),
        Quirk("a call is whole in one chunk", _OPENAI_GO, "source"),
        Quirk("usage only when asked for, without choices", _OPENAI_GO, "source"),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "no tools": faulty(
            "refused",
            "pydantic-ai#703",
            400,
            _ollama_error("registry.ollama.ai/library/gemma3:4b does not support tools"),
        ),
        "unknown model": faulty(
            "refused",
            "a user's curl",
            404,
            _ollama_error('model "gemma3:12b" not found, try pulling it first'),
        ),
        "an image by its address": faulty(
            "refused", _OPENAI_GO, 400, openai_error("invalid image input", _BAD), evidence="source"
        ),
        "error swallowed": broken_stream(
            "down",
            "follows from server/routes.go and middleware/openai.go",
            "data: "
            '{"id":"chatcmpl-123","object":"chat.completion.chunk","created":-62135596800,"model":"","sy'
            'stem_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"'
            '"},"finish_reason":null}]}\n\n',
            evidence="assumed",
        ),
    }

    def prepare(self, played: Played) -> Given:
        number = len(self.given)
        return Given(played, tuple(f"call_i9r{number:02}nx{call}" for call in range(len(played.calls))))

    def judge(self, body: Object) -> None:
        for message in messages_of(body):
            if message.get("content") is None and not calls_of(message):
                refuse(400, openai_error("invalid message content type: <nil>", _BAD), _OPENAI_GO)
            for call in calls_of(message):
                if not is_json_object(function_of(call).get("arguments")):
                    refuse(400, openai_error("invalid tool call arguments", _BAD), _OPENAI_GO)
        effort = body.get("reasoning_effort")
        if effort not in {None, "high", "medium", "low", "none"}:
            text = f'invalid reasoning value: \'{effort}\' (must be "high", "medium", "low", or "none")'
            refuse(400, openai_error(text, _BAD), _OPENAI_GO)

    def fragments(self, index: int, id_: str, name: str, arguments: str) -> list[Object]:
        function: Object = {"name": name, "arguments": arguments}
        return [{"id": id_, "index": 0, "type": "function", "function": function}]

    def chunk(self, body: Object, delta: Object, reason: str | None = None) -> Object:
        whole: Object = {"role": "assistant", "content": "", **delta}
        return {
            "id": "chatcmpl-123",
            "object": "chat.completion.chunk",
            "created": 1777477438,
            "model": body["model"],
            "system_fingerprint": "fp_ollama",
            "choices": [{"index": 0, "delta": whole, "finish_reason": reason}],
        }


class OldOllama(Ollama):
    """Ollama before 0.4.7: no index, and stop where there are calls."""

    quirks = (
        Quirk("index is absent", "https://github.com/ollama/ollama/issues/7881", "reported"),
        Quirk(
            "finish_reason is stop where there are calls",
            "https://github.com/ollama/ollama/pull/7963",
            "reported",
        ),
        Quirk('finish_reason: "" in each chunk', "https://github.com/ollama/ollama/issues/4357"),
    )

    def fragments(self, index: int, id_: str, name: str, arguments: str) -> list[Object]:
        return [{"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}]

    def chunk(self, body: Object, delta: Object, reason: str | None = None) -> Object:
        return super().chunk(body, delta, "stop" if reason == "tool_calls" else reason or "")


_TRACKER = "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues"


class LMStudio(LocalServer):
    """LM Studio, whose developer setting for reasoning is off: the thought is in the content."""

    name = "lmstudio"
    model = "qwen3-30b-a3b-128k"
    quirks = (
        Quirk("role in each delta, <think> inline", f"{_TRACKER}/649"),
        Quirk("ids of nine digits", f"{_TRACKER}/830"),
        Quirk('name: "" in the later fragments of a call', f"{_TRACKER}/649", "reported"),
        Quirk("no usage in a stream, even when asked", f"{_TRACKER}/676", "reported"),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "too long, in stream": broken_stream(
            "too long",
            "aaif-goose/goose#11318",
            'event: error\ndata: {"error":{"message":"Input does not fit in context length. The input has '
            '31430 tokens, but the context length only supports 30000 tokens."},"message":"Input does not '
            "fit in context length. The input has 31430 tokens, but the context length only supports "
            '30000 tokens."}\n\n',
        ),
        "too long": faulty(
            "too long",
            "openclaude#353",
            400,
            {
                "error": "The number of tokens to keep from the initial prompt is greater than the "
                "context length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger "
                "context length, or provide a shorter input."
            },
        ),
        "a text for an error, in stream": broken_stream(
            "down",
            "opencode#2259",
            'event: error\ndata: {"error":"Error in iterating prediction stream: ValueError: \'type\' '
            'must be a string"}\n\n',
            evidence="reported",
        ),
        "no images": faulty(
            "refused",
            "a user's log",
            400,
            {
                "error": "Error in iterating prediction stream: ValueError: Vision add-on is not loaded, but "
                "images were provided for processing"
            },
            evidence="reported",
        ),
        "a call of nothing": broken_stream(
            "unreadable",
            f"{_TRACKER}/830",
            'data: {"id":"chatcmpl-8cy","choices":[{"index":0,"delta":{"role":'
            '"assistant","tool_calls":[{"index":0,"id":"","type":"function"}]},"finish_reason":null}]}\n\n',
            'data: {"id":"chatcmpl-8cy","choices":[{"index":0,"delta":{},'
            '"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n',
            evidence="reported",
        ),
        "unknown endpoint": faulty(
            "unreadable",
            f"{_TRACKER}/618",
            200,
            {"error": "Unexpected endpoint or method. (POST /chat/completions)"},
        ),
        "crashed": faulty(
            "refused",
            f"{_TRACKER}/1050",
            400,
            {"error": "The model has crashed without additional information. (Exit code: null)"},
        ),
    }

    def prepare(self, played: Played) -> Given:
        number = len(self.given)
        return Given(played, tuple(f"1936{number:03}{call:02}" for call in range(len(played.calls))))

    def judge(self, body: Object) -> None:
        choice = body.get("tool_choice")
        if not is_text(choice):
            text = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
            refuse(400, {"error": text}, f"{_TRACKER}/670")
        kind = body.get("response_format")
        if isinstance(kind, dict) and kind.get("type") == "json_object":
            refuse(
                400, {"error": "'response_format.type' must be 'json_schema' or 'text'"}, f"{_TRACKER}/307"
            )
        if any(not call.get("id") for message in messages_of(body) for call in calls_of(message)):
            text = (
                "Invalid 'messages' in payload. Please check the structure of your 'messages' and try again"
            )
            refuse(400, {"error": text}, f"{_TRACKER}/830")

    def play(self, given: Given, body: Object) -> list[Object | str]:
        return super().play(given, {**body, "stream_options": None})

    def fragments(self, index: int, id_: str, name: str, arguments: str) -> list[Object]:
        opening, *rest = super().fragments(index, id_, name, arguments)
        return [
            opening,
            *({**one, "type": "function", "function": {"name": "", **function_of(one)}} for one in rest),
        ]

    def chunk(self, body: Object, delta: Object, reason: str | None = None) -> Object:
        whole: Object = {} if reason else {"role": "assistant", **delta}
        choice: Object = {"index": 0, "delta": whole, "logprobs": None, "finish_reason": reason}
        return {
            "id": "chatcmpl-8cybkqa7743exgha66o2hg",
            "object": "chat.completion.chunk",
            "created": 1746707722,
            "model": body["model"],
            "system_fingerprint": body["model"],
            "choices": [choice],
        }
