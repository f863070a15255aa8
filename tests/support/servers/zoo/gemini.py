"""Gemini by its endpoint for OpenAI's clients: it requires the signature of each first call back."""

from collections.abc import Mapping
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
    broken_stream,
    calling,
    calls_of,
    faulty,
    function_of,
    in_pieces,
    pieces_of,
    refuse,
    usage_of,
)

_FIELDS = frozenset(
    [
        "extra_body",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "parallel_tool_calls",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
    ]
)
ANY_SIGNATURE = "skip_thought_signature_validator"
"""Accepted in the place of a signature (continue PR 8865)."""


def _error(code: int, message: str, status: str, details: JsonValue = None) -> JsonValue:
    """Return an error in this endpoint's form: in an array."""
    error: Object = {"code": code, "message": message, "status": status}
    return [{"error": {**error, "details": details} if details else error}]


def _bad(message: str, source: str, details: JsonValue = None) -> NoReturn:
    refuse(400, _error(400, message, "INVALID_ARGUMENT", details), source)


class Gemini(Provider):
    """generativelanguage.googleapis.com/v1beta/openai, Gemini 3."""

    name = "gemini"
    model = "gemini-3.7-flash"
    quirks = (
        Quirk("a call is whole, in one delta, without index", "https://github.com/noho/dayu-agent/issues/45"),
        Quirk("parallel calls come in chunks of their own", "dayu-agent PR 91", "reported"),
        Quirk("role in each delta", "https://github.com/noho/dayu-agent/issues/45", "assumed"),
        Quirk(
            "finish_reason is stop where there are calls",
            "https://github.com/googleapis/python-genai/issues/2868",
        ),
        Quirk("usage in each chunk, unasked, each with the sum so far", "ogx#5122", "reported"),
        Quirk(
            "only the first of parallel calls has a signature",
            "https://ai.google.dev/gemini-api/docs/thought-signatures",
        ),
        Quirk(
            "thoughts are content within <thought>…</thought>, marked in extra_content",
            "https://ai.google.dev/gemini-api/docs/openai",
        ),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "nothing": broken_stream(
            "unreadable",
            "litellm PR 40252 (seen behind a gateway)",
            'data: {"choices":[],"created":1752319190,"id":"1UR","model":"gemini-3.7-flash",'
            '"object":"chat.completion.chunk","usage":{"prompt_tokens":4241,"total_tokens":4241}}\n\n',
            "data: [DONE]\n\n",
            evidence="reported",
        ),
        "busy": faulty(
            "busy",
            "page-assist#406",
            429,
            _error(
                429,
                "You exceeded your current quota, please check your plan and billing details. Please "
                "retry in 53.016342224s.",
                "RESOURCE_EXHAUSTED",
                [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "53s"}],
            ),
        ),
        "overloaded": faulty(
            "down",
            "a client's tests",
            503,
            _error(503, "The model is overloaded. Please try again later.", "UNAVAILABLE"),
            evidence="reported",
        ),
        "too long": faulty(
            "too long",
            "tests of two clients",
            400,
            _error(
                400,
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                "INVALID_ARGUMENT",
            ),
            evidence="reported",
        ),
        "wrong key": faulty(
            "refused",
            "a client's tests",
            400,
            _error(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT"),
            evidence="reported",
        ),
    }

    def prepare(self, played: Played) -> Given:
        number = len(self.given)
        ids = tuple(f"jm4ow{number}{call}" for call in range(len(played.calls)))
        extra: Object = {"extra_content": {"google": {"thought_signature": f"EjQKMgEMOdbH{number}"}}}
        return Given(played, ids, {}, tuple({} if call else extra for call in range(len(ids))))

    def judge(self, body: Object) -> None:
        if unknown := sorted(body.keys() - _FIELDS):
            told = [f'Unknown name "{name}": Cannot find field.' for name in unknown]
            _bad(
                "\n".join(f"Invalid JSON payload received. {text}" for text in told),
                "ed-donner/agents#45",
                [
                    {
                        "@type": "type.googleapis.com/google.rpc.BadRequest",
                        "fieldViolations": [{"description": text} for text in told],
                    }
                ],
            )
        for place, message in asking_messages(body):
            self._judge_signature(place, calls_of(message)[0])

    def _judge_signature(self, place: int, call: Object) -> None:
        extra = call.get("extra_content")
        google = extra.get("google") if isinstance(extra, dict) else None
        signature = google.get("thought_signature") if isinstance(google, dict) else None
        if not signature:
            _bad(
                "Function call is missing a thought_signature in functionCall parts. This is required for "
                "tools to work correctly, and missing thought_signature may lead to degraded model "
                "performance. "
                f"Additional data, function call `default_api:{function_of(call).get('name')}` , position "
                f"{place}. "
                "Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
                "opensquilla#225",
            )
        known = [ANY_SIGNATURE, *(f"EjQKMgEMOdbH{number}" for number in range(len(self.given)))]
        if signature not in known:
            _bad("Corrupted thought signature.", "opencode#4832")

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        deltas: list[Object] = []
        thought: Object = {"extra_content": {"google": {"thought": True}}}
        if reply.thought:
            deltas += [{**delta, **thought} for delta in in_pieces("content", f"<thought>{reply.thought}")]
        text = f"</thought>{reply.words}" if reply.thought else reply.words
        deltas += in_pieces("content", text)
        deltas += [calling(call) for call in self._calls(given)]
        events: list[Object | str] = [_chunk(body, reply, delta) for delta in deltas]
        if not reply.cut:
            reason = reply.reason or "stop"
            events.append(_chunk(body, reply, {}, reason))
        return events

    def _calls(self, given: Given) -> list[Object]:
        return [
            {**extra, "function": {"arguments": arguments, "name": name}, "id": id_, "type": "function"}
            for id_, (name, arguments), extra in zip(
                given.ids, given.reply.calls, given.of_calls, strict=True
            )
        ]


class Gemini2(Gemini):
    """Gemini 2.5: no signature is required, and no call has an id."""

    model = "gemini-2.5-flash"
    quirks = (*Gemini.quirks, Quirk('id: "" in each call', "https://github.com/vercel/ai/issues/7834"))

    def prepare(self, played: Played) -> Given:
        return Given(
            played, ("",) * len(played.calls), {}, tuple(dict[str, JsonValue]() for _ in played.calls)
        )

    def _judge_signature(self, place: int, call: Object) -> None:
        pass


class Vertex(Gemini):
    """Vertex AI that streams arguments: indexes are wrong, names and ids are in each fragment."""

    model = "google/gemini-3.1-pro-preview"
    quirks = (
        *Gemini.quirks,
        Quirk(
            "the first delta of a call has the index of the other call; name and id are in each fragment",
            "https://docs.cloud.google.com call-gemini with the OpenAI library (examples)",
        ),
    )

    def _calls(self, given: Given) -> list[Object]:
        fragments: list[Object] = []
        whole = super()._calls(given)
        for number, call in enumerate(whole):
            function = function_of(call)
            other = len(whole) - 1 - number if len(whole) > 1 else 1
            fragments.append({**call, "function": {**function, "arguments": ""}, "index": other})
            rest = {key: value for key, value in call.items() if key != "extra_content"}
            for piece in pieces_of(str(function["arguments"])):
                more: Object = {**function, "arguments": piece}
                fragments.append({**rest, "function": more, "index": number})
        return fragments


def _chunk(body: Object, reply: Played, delta: Object, reason: str | None = None) -> Object:
    end: Object = {"finish_reason": reason} if reason else {}
    choice: Object = {"delta": {"role": "assistant", **delta}, **end, "index": 0}
    return {
        "choices": [choice],
        "created": 1752319190,
        "id": "1URyaLjuGKiqmtkPj86KuAI",
        "model": body["model"],
        "object": "chat.completion.chunk",
        "usage": usage_of(reply),
    }
