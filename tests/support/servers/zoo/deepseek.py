"""DeepSeek: thinks unless switched off, and requires its reasoning back."""

from collections.abc import Mapping
from typing import ClassVar, NoReturn

from tests.support.servers.zoo.provider import (
    Fault,
    Framing,
    Given,
    Object,
    Played,
    Provider,
    Quirk,
    asking_messages,
    calls_in_pieces,
    faulty,
    in_pieces,
    is_forced,
    openai_error,
    refuse,
    unanswered_calls,
    usage_of,
)

_BAD = "invalid_request_error"
_FIXTURE = "https://github.com/vercel/ai/tree/main/packages/deepseek/src/chat/__fixtures__/deepseek-tool-call.chunks.txt"


def _error(message: str, kind: str = _BAD) -> Object:
    return openai_error(message, kind, None, _BAD)


def _bad(message: str, source: str) -> NoReturn:
    refuse(400, _error(message), source)


class DeepSeek(Provider):
    """api.deepseek.com/chat/completions, V4."""

    name = "deepseek"
    model = "deepseek-v4-flash"
    # Documented on api-docs.deepseek.com/quick_start/rate_limit; the bytes of the comment are from memory.
    framing = Framing(comment=": keep-alive")
    quirks = (
        Quirk("content: null while reasoning_content grows", _FIXTURE),
        Quirk("ids such as call_00_…, call_01_…", _FIXTURE),
        Quirk("usage in the chunk of the finish reason, unasked", _FIXTURE),
        Quirk(
            "keep-alive comments between events",
            "https://api-docs.deepseek.com/quick_start/rate_limit",
            "assumed",
        ),
        Quirk(
            "the whole budget spent on thought: length, and an empty answer",
            "https://github.com/vercel/ai issue-19789-live-usage.chunks.txt",
        ),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "no balance": faulty(
            "refused",
            "https://api-docs.deepseek.com/quick_start/error_codes",
            402,
            _error("Insufficient Balance", "unknown_error"),
        ),
        "too long": faulty(
            "too long",
            "fast-agent#621",
            400,
            _error(
                "This model's maximum context length is 131072 tokens. However, you requested 131134 "
                "tokens (122942 in the messages, 8192 in the completion). Please reduce the length of the "
                "messages or completion."
            ),
        ),
        "an error as bytes": faulty(
            "refused",
            "https://github.com/SaladDay/cc-switch-cli/issues/170",
            400,
            _error("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
            headers={"content-type": "application/octet-stream"},
        ),
    }

    def prepare(self, played: Played) -> Given:
        ids = tuple(
            f"call_{number:02}_IhCAliIHtM9gKpgf{len(self.given)}" for number in range(len(played.calls))
        )
        return Given(played, ids, {"reasoning_content": played.thought} if played.calls else {})

    def judge(self, body: Object) -> None:
        thinking = body.get("thinking")
        thinks = not (isinstance(thinking, dict) and thinking.get("type") == "disabled")
        if thinks and is_forced(body):
            _bad("Thinking mode does not support this tool_choice", "DeepSeek-V3#1376")
        if thinks and str(body["model"]) == "deepseek-chat":
            thinks = False
        for _, message in asking_messages(body):
            if thinks and "reasoning_content" not in message:
                _bad(
                    "The `reasoning_content` in the thinking mode must be passed back to the API.",
                    "opencode#24083; https://api-docs.deepseek.com/guides/thinking_mode",
                )
            self._compare(message)
        kind = body.get("response_format")
        if isinstance(kind, dict) and kind.get("type") == "json_schema":
            _bad("This response_format type is unavailable now", "llm-exe#662")
        if (
            isinstance(kind, dict)
            and kind.get("type") == "json_object"
            and "json" not in str(body["messages"]).lower()
        ):
            _bad(
                "Prompt must contain the word 'json' in some form to use 'response_format' of type "
                "'json_object'.",
                "stagehand#1204",
            )
        if unanswered_calls(body):
            _bad(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to "
                "each 'tool_call_id'. (insufficient tool messages following tool_calls message)",
                "vscode-unify-chat-provider#248",
            )

    def _compare(self, message: Object) -> None:
        thoughts = [given.reply.thought for given in self.given]
        if message.get("reasoning_content") not in thoughts:
            self.regrets.append("reasoning_content is not word for word what it was")

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        deltas: list[Object] = [{"role": "assistant", "content": None, "reasoning_content": ""}]
        deltas += [{"content": None, **delta} for delta in in_pieces("reasoning_content", reply.thought)]
        deltas += [{**delta, "reasoning_content": None} for delta in in_pieces("content", reply.words)]
        deltas += calls_in_pieces(given)
        events: list[Object | str] = [_chunk(body, delta) for delta in deltas]
        if not reply.cut:
            last = _chunk(body, {"content": "", "reasoning_content": None}, reply.ending)
            usage: Object = {"prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": reply.usage[0]}
            events.append({**last, "usage": {**usage_of(reply), **usage}})
        return events


def _chunk(body: Object, delta: Object, reason: str | None = None) -> Object:
    choice: Object = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {
        "id": "6e77be01",
        "object": "chat.completion.chunk",
        "created": 1786782779,
        "model": body["model"],
        "system_fingerprint": "a26a7955944dc5c60445bff77fac9c8e",
        "choices": [choice],
        "usage": None,
    }
