"""Groq: refuses each unknown property, also those that it sent itself."""

from collections.abc import Mapping
from typing import ClassVar, NoReturn

from tests.support.servers.zoo.provider import (
    Fault,
    Given,
    Object,
    Played,
    Provider,
    Quirk,
    broken_stream,
    faulty,
    in_pieces,
    is_asked_for_usage,
    messages_of,
    refuse,
    usage_of,
)

_FIXTURES = "https://github.com/vercel/ai/tree/main/packages/groq/src/__fixtures__"
_BAD = "invalid_request_error"
_FIELDS = frozenset(
    [
        "frequency_penalty",
        "include_reasoning",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "reasoning_format",
        "response_format",
        "seed",
        "service_tier",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
        "user",
    ]
)
_OF_MESSAGES = frozenset(["role", "content", "tool_calls", "tool_call_id", "name"])


def _bad(message: str, source: str, param: str | None = None) -> NoReturn:
    error: Object = {"message": message, "type": _BAD}
    refuse(400, {"error": {**error, "param": param} if param else error}, source)


class Groq(Provider):
    """api.groq.com/openai/v1."""

    name = "groq"
    model = "qwen/qwen3-32b"
    quirks = (
        Quirk(
            "a call is whole in one chunk, with a short id and its index last",
            f"{_FIXTURES}/groq-tool-call.chunks.txt",
        ),
        Quirk(
            "usage unasked, with the finish reason, twice: also in x_groq",
            f"{_FIXTURES}/groq-tool-call.chunks.txt",
        ),
        Quirk(
            "when asked, usage once more without choices",
            "https://github.com/Portkey-AI/gateway/issues/1338",
            "reported",
        ),
        Quirk("reasoning in `reasoning`", f"{_FIXTURES}/groq-reasoning.chunks.txt"),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        # The model wrote it: a retry may succeed (pydantic-ai PR 4354).
        "error in stream": broken_stream(
            "unreadable",
            "https://github.com/sst/opencode/issues/1018",
            'event: error\ndata: {"error":{"message":"Failed to call a function. Please adjust your '
            "prompt. See 'failed_generation' for more "
            'details.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"Tool '
            'use failed: JSON does not match the expected schema for tool calls","status_code":400}}\n\n',
        ),
        "larger than the rate": faulty(
            "too long",
            "gpt-researcher#985",
            413,
            {
                "error": {
                    "message": "Request too large for model `llama-3.1-8b-instant` in organization "
                    "`org_1` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested "
                    "12328, please reduce your message size and try again.",
                    "type": "tokens",
                    "code": "rate_limit_exceeded",
                }
            },
            evidence="reported",
        ),
        "too long": faulty(
            "too long",
            "letta#1963",
            400,
            {
                "error": {
                    "message": "Please reduce the length of the messages or completion.",
                    "type": _BAD,
                    "param": "messages",
                    "code": "context_length_exceeded",
                }
            },
        ),
    }

    def prepare(self, played: Played) -> Given:
        return Given(played, tuple(f"tk85n{len(self.given)}k4{call}" for call in range(len(played.calls))))

    def judge(self, body: Object) -> None:
        for name in sorted(body.keys() - _FIELDS):
            _bad(f"property '{name}' is unsupported", "fanenr/chatbot#21")
        takes_reasoning = "gpt-oss" in str(body["model"])
        for place, message in enumerate(messages_of(body)):
            for name in sorted(message.keys() - _OF_MESSAGES):
                if name == "reasoning" and takes_reasoning:
                    continue
                _bad(
                    f"'messages.{place}' : for 'role:{message['role']}' the following must be "
                    f"satisfied[('messages.{place}' : property '{name}' is unsupported)]",
                    "karthink/gptel#774",
                )
        kind = body.get("response_format")
        if isinstance(kind, dict) and kind.get("type") != "text" and body.get("tools"):
            _bad(
                "json mode cannot be combined with tool/function calling",
                f"{_FIXTURES}/issue-10023-output-with-tools-error.json",
                "response_format",
            )

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        first: Object = {"role": "assistant", "content": None if reply.calls else ""}
        deltas: list[Object] = [first]
        deltas += in_pieces("reasoning", reply.thought)
        deltas += in_pieces("content", reply.words)
        for index, (id_, (name, arguments)) in enumerate(zip(given.ids, reply.calls, strict=True)):
            function: Object = {"name": name, "arguments": arguments}
            deltas.append(
                {"tool_calls": [{"id": id_, "type": "function", "function": function, "index": index}]}
            )
        events: list[Object | str] = [_chunk(body, delta) for delta in deltas]
        if not reply.cut:
            usage: Object = {"queue_time": 0.04, **usage_of(reply), "total_time": 0.06}
            last = _chunk(body, {}, reply.ending)
            events.append({**last, "x_groq": {"id": "req_01kh", "usage": usage}, "usage": usage})
            if is_asked_for_usage(body):
                events.append({**_chunk(body, {}), "choices": [], "usage": usage})
        return events


def _chunk(body: Object, delta: Object, reason: str | None = None) -> Object:
    choice: Object = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {
        "id": "chatcmpl-b610",
        "object": "chat.completion.chunk",
        "created": 1770770843,
        "model": body["model"],
        "system_fingerprint": "fp_f8b414701e",
        "choices": [choice],
        "x_groq": {"id": "req_01kh", "seed": 689520654},
    }
