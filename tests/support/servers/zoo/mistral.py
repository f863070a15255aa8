"""Mistral: strict in its requests, and with thoughts as parts of the content."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar, NoReturn

from pydantic import JsonValue

from tests.support.servers.zoo.provider import (
    Fault,
    Given,
    Object,
    Played,
    Provider,
    Quirk,
    asking_messages,
    calls_of,
    faulty,
    in_pieces,
    lost_result,
    messages_of,
    pieces_of,
    refuse,
    unanswered_calls,
    usage_of,
)

_FIXTURES = "https://github.com/vercel/ai/tree/main/packages/mistral/src/__fixtures__"
_FIELDS = frozenset(
    [
        "frequency_penalty",
        "max_tokens",
        "messages",
        "model",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_mode",
        "random_seed",
        "reasoning_effort",
        "response_format",
        "safe_prompt",
        "stop",
        "stream",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
    ]
)
_ID = re.compile(r"[a-zA-Z0-9]{9}")


def _error(message: JsonValue, kind: str, code: str | None) -> Object:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def _bad(message: str, source: str, kind: str = "invalid_request_error", code: str | None = None) -> NoReturn:
    refuse(400, _error(message, kind, code), source)


class Mistral(Provider):
    """api.mistral.ai/v1/chat/completions."""

    name = "mistral"
    model = "mistral-medium-3-5"
    quirks = (
        Quirk(
            "whole calls without index and type, with the finish reason",
            f"{_FIXTURES}/mistral-tool-call.chunks.txt",
        ),
        Quirk("both parallel calls in one delta", f"{_FIXTURES}/mistral-tool-call.chunks.txt", "assumed"),
        Quirk(
            "usage with the finish reason, unasked; padding in `p`",
            f"{_FIXTURES}/mistral-usage-raw-live.chunks.txt",
        ),
        Quirk(
            "a chunk in the middle without choices",
            f"{_FIXTURES}/mistral-empty-choices.chunks.txt",
            "reported",
        ),
        Quirk(
            "thought: delta.content is a list of parts, then one of thought and text, then texts",
            "https://github.com/vercel/ai issue-13703-mistral-thinking.chunks.txt",
        ),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "busy": faulty("busy", "pydantic-ai#1885", 429, {"message": "Requests rate limit exceeded"}),
        "busy with a code": faulty(
            "busy", "raycast#31107", 429, _error("Rate limit exceeded", "rate_limited", "1300")
        ),
        "tier is full": faulty(
            "busy",
            "cline#9085",
            429,
            _error(
                "Service tier capacity exceeded for this model.", "service_tier_capacity_exceeded", "3505"
            ),
        ),
        "too long": faulty(
            "too long",
            "tests of three clients",
            400,
            _error(
                "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 "
                "maximum context length",
                "invalid_request_message_error",
                None,
            ),
            evidence="reported",
        ),
        # The body is from memory.
        "wrong key": faulty("refused", "memory", 401, {"detail": "Unauthorized"}, evidence="assumed"),
    }

    def prepare(self, played: Played) -> Given:
        number = len(self.given)
        ids = tuple(f"gSIMJi{number:02}{call}" for call in range(len(played.calls)))
        return Given(played, ids, {"content": _parts(played)} if played.thought else {})

    def judge(self, body: Object) -> None:
        self._judge_fields(body)
        messages = messages_of(body)
        self._judge_order([str(message["role"]) for message in messages])
        for message in messages:
            if message["role"] == "assistant" and not (message.get("content") or message.get("tool_calls")):
                _bad(
                    "Assistant message must have either content or tool_calls, but not none.",
                    "three clients' reports",
                )
            for call in calls_of(message):
                self._judge_id(str(call.get("id")))
        if unanswered_calls(body) or lost_result(body) is not None:
            _bad("Not the same number of function calls and responses", "camel#1467")
        for number, (_, message) in enumerate(asking_messages(body)):
            if (
                number < len(self.given)
                and self.given[number].reply.thought
                and message.get("content") != self.given[number].opaque["content"]
            ):
                self.regrets.append("the thinking parts did not come back")

    @staticmethod
    def _judge_fields(body: Object) -> None:
        details: list[JsonValue] = [
            {
                "type": "extra_forbidden",
                "loc": ["body", name],
                "msg": "Extra inputs are not permitted",
                "input": body[name],
            }
            for name in sorted(body.keys() - _FIELDS)
        ]
        if details:
            # `stream_options`: reported in anon-kode#53, and by the tests of a client in 2026.
            refuse(422, _error({"detail": details}, "invalid_request_error", None), "eca#231; anon-kode#53")

    @staticmethod
    def _judge_order(roles: list[str]) -> None:
        for before, role in pairwise(roles):
            if (before, role) in {("tool", "user"), ("user", "tool")}:
                _bad(
                    f"Unexpected role '{role}' after role '{before}'",
                    "datapizza-ai#98",
                    "invalid_request_message_order",
                    "3230",
                )
        if roles[-1] == "assistant":
            _bad(
                "Expected last role User or Tool (or Assistant with prefix True) for serving but got "
                "assistant",
                "AiNiee#641",
            )

    @staticmethod
    def _judge_id(id_: str) -> None:
        if not _ID.fullmatch(id_):
            _bad(
                f"Tool call id was {id_} but must be a-z, A-Z, 0-9, with a length of 9.",
                "ironclaw#1241",
                "invalid_function_call",
                "3280",
            )

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        deltas: list[Object] = [{"role": "assistant", "content": ""}]
        thought, text = pieces_of(reply.thought), pieces_of(reply.words)
        joint: list[Object] = []
        if thought and text:
            joint = [_content(_thinking(thought.pop()), {"type": "text", "text": text.pop(0)})]
        deltas += [_content(_thinking(piece)) for piece in thought]
        deltas += [*joint, *(_text(piece) for piece in text)]
        events: list[Object | str] = [_chunk(body, delta) for delta in deltas]
        events.insert(1, {**_chunk(body, {}), "choices": [], "usage": None})
        if not reply.cut:
            last: Object = {"content": ""}
            if reply.calls:
                last = {"content": None, "tool_calls": _calls(given)}
            events.append({**_chunk(body, last, reply.ending), "usage": usage_of(reply)})
        return events


class HostedGlm(Mistral):
    """A third-party model at Mistral: calls come in pieces, each with an empty name but the first."""

    model = "zai-glm-5-2"
    quirks = (
        Quirk(
            'name: "" in the later fragments, no id in them, a stray index in delta',
            f"{_FIXTURES}/mistral-incremental-tool-call.chunks.txt",
        ),
    )

    def cast(self, played: Played, body: Object) -> Played:
        return replace(played, thought="")

    def play(self, given: Given, body: Object) -> list[Object | str]:
        deltas: list[Object] = [{"role": "assistant", "content": ""}]
        deltas += in_pieces("content", given.reply.words)
        for index, (id_, (name, arguments)) in enumerate(zip(given.ids, given.reply.calls, strict=True)):
            call: Object = {"type": "function", "index": index}
            opening: Object = {**call, "id": id_, "function": {"name": name, "arguments": ""}}
            deltas.append({"tool_calls": [opening], "index": 0, "content": ""})
            for piece in pieces_of(arguments):
                more: Object = {**call, "function": {"name": "", "arguments": piece}}
                deltas.append({"tool_calls": [more], "index": 0, "content": ""})
        last: Object = {
            **_chunk(body, {"index": 0, "content": ""}, given.reply.ending),
            "usage": usage_of(given.reply),
        }
        return [*(_chunk(body, delta) for delta in deltas), last]


def _thinking(text: str) -> Object:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}], "closed": True}


def _content(*parts: Object) -> Object:
    return {"content": [*parts]}


def _text(piece: str) -> Object:
    return {"content": piece}


def _parts(reply: Played) -> list[JsonValue]:
    text: list[JsonValue] = [{"type": "text", "text": reply.text}] if reply.text else []
    return [_thinking(reply.thought), *text]


def _calls(given: Given) -> list[JsonValue]:
    return [
        {"id": id_, "function": {"name": name, "arguments": arguments}}
        for id_, (name, arguments) in zip(given.ids, given.reply.calls, strict=True)
    ]


def _chunk(body: Object, delta: Object, reason: str | None = None) -> Object:
    choice: Object = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return {
        "id": "b3999b8c93e04e11bcbff7bcab829667",
        "object": "chat.completion.chunk",
        "created": 1769088854,
        "model": body["model"],
        "choices": [choice],
        "p": "abcdefghijklm",
    }
