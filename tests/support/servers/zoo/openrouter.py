"""OpenRouter: many providers behind one address; reasoning has details that should be sent back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tests.support.servers.zoo.provider import (
    Fault,
    Framing,
    Given,
    Object,
    Played,
    Provider,
    Quirk,
    asking_messages,
    broken_stream,
    calls_in_pieces,
    faulty,
    in_pieces,
    pieces_of,
    refuse,
    usage_of,
)

_CASSETTES = "https://github.com/pydantic/pydantic-ai/tree/main/tests/models/cassettes/test_openrouter"
_FORMAT = "anthropic-claude-v1"


def _error(code: int, message: str, **more: str) -> Object:
    return {"error": {"message": message, "code": code}, **more}


class OpenRouter(Provider):
    """openrouter.ai/api/v1/chat/completions, with a Claude behind it."""

    name = "openrouter"
    model = "anthropic/claude-sonnet-5"
    framing = Framing(comment=": OPENROUTER PROCESSING")
    quirks = (
        Quirk(
            "comments before the events and between them", f"{_CASSETTES}/test_openrouter_stream_error.yaml"
        ),
        Quirk(
            "role, content, reasoning and reasoning_details in each delta",
            f"{_CASSETTES} (streaming_reasoning)",
        ),
        Quirk(
            "the signature of a thought comes in a fragment without text",
            f"{_CASSETTES} (streaming_reasoning)",
        ),
        Quirk(
            "usage comes behind the finish reason, in a chunk with one choice whose finish_reason is null",
            f"{_CASSETTES} (streaming_reasoning)",
        ),
        Quirk("the finish reason is given twice", f"{_CASSETTES}/test_openrouter_stream_error.yaml"),
        Quirk(
            "reasoning_details should come back as they were; a request without them passes",
            "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens",
            "documented",
        ),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "error in stream": broken_stream(
            "refused",
            f"{_CASSETTES}/test_openrouter_stream_error.yaml",
            ": OPENROUTER PROCESSING\n\n",
            'data: {"id":"gen-1762179802","provider":"Minimax","error":{"code":400,"message":"Token limit '
            'reached"},"model":"minimax/minimax-m2:free","object":"chat.completion.chunk","created":1762'
            '179802,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null'
            ',"native_finish_reason":null,"logprobs":null}],"usage":{"prompt_tokens":43,"completion_toke'
            'ns":10,"total_tokens":53,"cost":0}}\n\n',
            "data: [DONE]\n\n",
        ),
        "error in stream, as documented": broken_stream(
            "down",
            "https://openrouter.ai/docs/api/reference/streaming",
            "data: "
            '{"id":"cmpl-abc123","object":"chat.completion.chunk","created":1234567890,"model":"gpt-3.5-'
            'turbo","provider":"openai","error":{"code":"server_error","message":"Provider disconnected '
            'unexpectedly"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}\n\n',
            evidence="documented",
        ),
        "error in stream without choices": broken_stream(
            "down",
            "a client's tests, marked as captured in 2026",
            "data: "
            '{"id":"gen-1","object":"chat.completion.chunk","created":1,"model":"stealth/space-bunny-alp'
            'ha","provider":"Stealth","choices":[],"error":{"code":502,"message":"JSON error injected '
            'into SSE stream","metadata":{"error_type":"provider_unavailable"}}}\n\n',
        ),
        "no tools there": faulty(
            "refused",
            "zed#36094",
            404,
            _error(404, 'No endpoints found that support tool use. Try disabling "question".'),
        ),
        "no credits": faulty(
            "refused",
            "https://openrouter.ai/docs/api/errors",
            402,
            _error(402, "Insufficient credits. Add more using https://openrouter.ai/credits"),
            evidence="documented",
        ),
        "busy": faulty(
            "busy",
            "openclaude#936",
            429,
            {
                "error": {
                    "message": "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 "
                    "free model requests per day",
                    "code": 429,
                    "metadata": {"headers": {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0"}},
                }
            },
        ),
        "too long": faulty(
            "too long",
            "Aider#3721",
            400,
            _error(
                400,
                "This endpoint's maximum context length is 131072 tokens. However, you requested about "
                "141607 tokens (10535 of text input, 131072 in the output). Please reduce the length of "
                'either one, or use the "middle-out" transform to compress your prompt automatically.',
            ),
        ),
        "too long behind it": faulty(
            "too long",
            "RA.Aid#41",
            502,
            _error(
                502, 'ConnectionError: {"message":"This model\'s maximum context length is 16000 tokens"}'
            ),
        ),
    }

    def prepare(self, played: Played) -> Given:
        number = len(self.given)
        ids = tuple(f"toolu_bdrk_{number}{call}" for call in range(len(played.calls)))
        whole: Object = {
            "type": "reasoning.text",
            "text": played.thought,
            "signature": f"Et0BCkgIChACGAIq{number}",
            "format": _FORMAT,
            "index": 0,
        }
        return Given(played, ids, {"reasoning_details": [whole]} if played.thought else {})

    def judge(self, body: Object) -> None:
        model = str(body["model"])
        if "/" not in model:
            refuse(400, _error(400, f"{model} is not a valid model ID"), "a client's tests")
        for number, (_, message) in enumerate(asking_messages(body)):
            if number < len(self.given):
                wanted = self.given[number].opaque.get("reasoning_details")
                if message.get("reasoning_details") != wanted:
                    self.regrets.append("reasoning_details did not come back as they were")

    def thinking(self, reply: Played) -> list[Object]:
        """Return the deltas of a thought."""
        if not reply.thought:
            return []
        signature = f"Et0BCkgIChACGAIq{len(self.given) - 1}"
        deltas = [_thought(piece) for piece in pieces_of(reply.thought)]
        return [*deltas, {"reasoning_details": [{**_detail(), "signature": signature}]}]

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        deltas: list[Object] = [{}, *self.thinking(reply)]
        deltas += in_pieces("content", reply.words)
        deltas += calls_in_pieces(given)
        events: list[Object | str] = [_chunk(body, delta) for delta in deltas]
        if not reply.cut:
            events += [_chunk(body, {}, reply.ending), _chunk(body, {}, reply.ending)]
            usage: Object = {**usage_of(reply), "cost": 0.000669, "is_byok": False}
            events.append({**_chunk(body, {}), "usage": usage})
        return events


class OpenRouterToOpenAI(OpenRouter):
    """The same, with a model of OpenAI behind it."""

    model = "openai/gpt-5.6-luna"
    quirks = (
        *OpenRouter.quirks,
        # Recorded without streaming; the same cut in a stream is a guess.
        Quirk(
            "a summary and an encrypted entry have the same index, and differ in type",
            f"{_CASSETTES} (preserve_reasoning_block)",
            "assumed",
        ),
    )

    def prepare(self, played: Played) -> Given:
        given = super().prepare(played)
        if not played.thought:
            return given
        summary: Object = {**_summary(), "summary": played.thought}
        return replace(given, opaque={"reasoning_details": [summary, _encrypted(len(self.given))]})

    def thinking(self, reply: Played) -> list[Object]:
        if not reply.thought:
            return []
        deltas: list[Object] = []
        for piece in pieces_of(reply.thought):
            detail: Object = {**_summary(), "summary": piece}
            deltas.append({"reasoning": piece, "reasoning_details": [detail]})
        return [*deltas, {"reasoning_details": [_encrypted(len(self.given) - 1)]}]


def _summary() -> Object:
    return {"format": "openai-responses-v1", "index": 0, "type": "reasoning.summary"}


def _encrypted(number: int) -> Object:
    entry: Object = {"data": f"gAAAAABpgLmIevBd{number}", "format": "openai-responses-v1"}
    return {**entry, "id": f"rs_{number}", "index": 0, "type": "reasoning.encrypted"}


def _thought(piece: str) -> Object:
    return {"reasoning": piece, "reasoning_details": [{**_detail(), "text": piece}]}


def _detail() -> Object:
    return {"type": "reasoning.text", "format": _FORMAT, "index": 0}


def _chunk(body: Object, delta: Object, reason: str | None = None) -> Object:
    common: Object = {"role": "assistant", "content": "", "reasoning": None, "reasoning_details": []}
    choice: Object = {
        "index": 0,
        "delta": {**common, **delta},
        "finish_reason": reason,
        "native_finish_reason": reason,
        "logprobs": None,
    }
    return {
        "id": "gen-1765226419-AGrwjunAftQIAgweibL8",
        "provider": "Google",
        "model": body["model"],
        "object": "chat.completion.chunk",
        "created": 1765226419,
        "choices": [choice],
    }
