"""Anthropic by its endpoint for OpenAI's clients."""

from collections.abc import Mapping
from typing import ClassVar, NoReturn

from tests.support.servers.zoo.provider import (
    Fault,
    Given,
    Object,
    Played,
    Provider,
    Quirk,
    blank_message,
    broken_stream,
    calling,
    faulty,
    in_pieces,
    is_asked_for_usage,
    lost_result,
    messages_of,
    pieces_of,
    refuse,
    unanswered_calls,
    usage_of,
)

_FIXTURE = (
    "https://github.com/vercel/ai/tree/main/packages/openai-compatible/src/chat/__fixtures__/"
    "anthropic-fallback-tool-call.sse"
)
_MANUAL = "https://platform.claude.com/docs/en/api/openai-sdk"


def _error(message: str) -> Object:
    return {
        "error": {
            "code": "invalid_request_error",
            "message": message,
            "param": None,
            "type": "invalid_request_error",
        }
    }


def _bad(message: str, source: str) -> NoReturn:
    # The envelope is by analogy with anthropic-sdk-typescript#711.
    refuse(400, _error(message), source)


class Anthropic(Provider):
    """api.anthropic.com/v1/chat/completions. It ignores unknown fields, and returns no thoughts."""

    name = "anthropic"
    model = "claude-haiku-4-5-20251001"
    quirks = (
        Quirk("index of a call is that of its content block: 1 behind a text", _FIXTURE),
        Quirk("a fragment of empty arguments", _FIXTURE),
        Quirk("a first delta with nothing but a role", _FIXTURE),
        Quirk("usage only when asked for, without details", _MANUAL, "documented"),
        Quirk("thinking is not returned", _MANUAL, "documented"),
        Quirk(
            "a call without arguments has none, not even {}",
            "https://github.com/coder/coder streaming_injected_tool_nonzero_index.txtar",
        ),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "overloaded": faulty(
            "down",
            "a client's tests",
            529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            evidence="reported",
        ),
        "busy": faulty(
            "busy",
            "a client's tests",
            429,
            {
                "type": "error",
                "error": {
                    "type": "rate_limit_error",
                    "message": "This request would exceed the rate limit for your organization of 40,000 "
                    "input tokens per minute.",
                },
            },
            headers={"retry-after": "12"},
            evidence="reported",
        ),
        "no credit": faulty(
            "refused",
            "a client's tests",
            400,
            _error(
                "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing "
                "to upgrade or purchase credits."
            ),
            evidence="reported",
        ),
        "too long": faulty(
            "too long",
            "tests of two clients",
            400,
            _error("prompt is too long: 210000 tokens > 200000 maximum"),
            evidence="reported",
        ),
        "too long with the reply": faulty(
            "too long",
            "tests of two clients",
            400,
            _error(
                "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease "
                "input length or `max_tokens` and try again"
            ),
            evidence="reported",
        ),
        "error in stream": broken_stream(
            "down",
            "https://github.com/anthropics/anthropic-sdk-typescript/issues/711",
            'data: {"error":{"code":"api_error","message":"Internal server '
            'error","param":null,"type":"invalid_request_error"}}\n\n',
        ),
    }

    def prepare(self, played: Played) -> Given:
        number = len(self.given)
        return Given(played, tuple(f"toolu_01{number}{call}" for call in range(len(played.calls))))

    def judge(self, body: Object) -> None:
        if blank_message(body) is not None:
            _bad(
                "messages: text content blocks must contain non-whitespace text",
                "https://github.com/anomalyco/opencode/issues/31259",
            )
        if missing := unanswered_calls(body):
            place = len(messages_of(body)) - 1
            _bad(
                f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately "
                f"after: {', '.join(missing)}. Each `tool_use` block must have a corresponding "
                f"`tool_result` block in the next message.",
                "a client's tests",
            )
        if lost_result(body) is not None:
            refuse(
                400,
                {
                    "type": "error",
                    "error": {
                        "type": "invalid_request_error",
                        "message": 'messages: Unexpected role "tool". Allowed roles are "user" or '
                        '"assistant". For instructions on how to use tools, see '
                        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview.",
                    },
                    "request_id": "req_011C",
                },
                "NyarchAssistant#157",
            )

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        deltas: list[Object] = [{"role": "assistant"}]
        deltas += in_pieces("content", reply.words)
        first = 1 if reply.text else 0
        for index, (id_, (name, arguments)) in enumerate(zip(given.ids, reply.calls, strict=True), first):
            function: Object = {"name": name, "arguments": ""}
            deltas.append(
                {"tool_calls": [{"index": index, "id": id_, "type": "function", "function": function}]}
            )
            for piece in ("", *pieces_of("" if arguments == "{}" else arguments)):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        events: list[Object | str] = [_chunk(body, delta) for delta in deltas]
        if not reply.cut:
            events.append(_chunk(body, {}, reply.ending))
            if is_asked_for_usage(body):
                events.append({**_chunk(body, {}), "choices": [], "usage": usage_of(reply)})
        return events


class Copilot(Anthropic):
    """Claude behind GitHub Copilot: most keys are left out while they are empty."""

    model = "claude-haiku-4.5"
    quirks = (
        Quirk(
            "no object, no finish_reason until the end, content: null, no arguments in the first "
            "fragment of a call; usage with the finish reason",
            "https://github.com/coder/coder streaming_injected_tool_nonzero_index.txtar",
        ),
    )

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        deltas: list[Object] = [{"content": piece, "role": "assistant"} for piece in pieces_of(reply.words)]
        for index, (id_, (name, arguments)) in enumerate(zip(given.ids, reply.calls, strict=True), 1):
            function: Object = {"name": name}
            fragments: list[Object] = [{"function": function, "id": id_, "index": index, "type": "function"}]
            for piece in ("", *pieces_of(arguments)):
                more: Object = {"function": {"arguments": piece}, "index": index}
                fragments.append(more)
            deltas += [{"content": None, **calling(fragment)} for fragment in fragments]
        head: Object = {"created": 1769199774, "id": "msg_vrtx_01Fi", "model": body["model"]}
        events: list[Object | str] = [_bare(delta, head) for delta in deltas]
        end: Object = {"finish_reason": reply.ending, "index": 0, "delta": {"content": None}}
        last: Object = {"choices": [end], **head, "usage": usage_of(reply)}
        return events if reply.cut else [*events, last]


def _bare(delta: Object, head: Object) -> Object:
    return {"choices": [{"index": 0, "delta": delta}], **head}


def _chunk(body: Object, delta: Object, reason: str | None = None) -> Object:
    choice: Object = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "msg_01",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body["model"],
        "choices": [choice],
    }
