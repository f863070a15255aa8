"""OpenAI's Chat Completions, and the same model at Azure."""

import json
import re
from collections.abc import Mapping
from typing import ClassVar, NoReturn

from pydantic import JsonValue

from tests.support.servers.scripted_openai import Answer, ReceivedRequest, Wire
from tests.support.servers.zoo.provider import (
    Fault,
    Given,
    Object,
    Played,
    Provider,
    Quirk,
    asking_messages,
    broken_stream,
    calls_in_pieces,
    calls_of,
    faulty,
    function_of,
    in_pieces,
    is_asked_for_usage,
    lost_result,
    openai_error,
    refuse,
    unanswered_calls,
    usage_of,
)

_GITHUB = "https://github.com"
_FIXTURES = f"{_GITHUB}/vercel/ai/tree/main/packages/openai-compatible/src/chat/__fixtures__"

_FIELDS = frozenset(
    [
        "audio",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "modalities",
        "model",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
        "web_search_options",
    ]
)
_BAD = "invalid_request_error"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _bad(message: str, source: str, param: str | None = None, code: str | None = None) -> NoReturn:
    refuse(400, openai_error(message, _BAD, param, code), source)


class OpenAI(Provider):
    """api.openai.com/v1/chat/completions."""

    name = "openai"
    model = "gpt-4o"
    quirks = (
        Quirk(
            "usage: null in every chunk, then a last chunk without choices",
            f"{_GITHUB}/envoyproxy/ai-gateway/pull/1503",
        ),
        Quirk("padding in `obfuscation`, a service tier", f"{_FIXTURES}/issue-15789-step-1.chunks.txt"),
        Quirk("role and content first, refusal: null beside them", f"{_FIXTURES}/azure-text.chunks.txt"),
        Quirk(
            "a refusal comes in pieces in `delta.refusal`, content null, and ends with stop",
            "openclaw#102321",
            "reported",
        ),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "error in stream": broken_stream(
            "down",
            f"{_GITHUB}/coder/coder aibridge/fixtures/openai/chatcompletions/stream_error.txtar",
            'data: {"error": {"message": "The server had an error while processing your request. Sorry '
            "about "
            'that!", "type": "server_error"}}\n\n',
            evidence="reported",
        ),
        "too long": faulty(
            "too long",
            f"{_GITHUB}/Doriandarko/o1-engineer/issues/15",
            400,
            openai_error(
                "This model's maximum context length is 128000 tokens. However, you requested 131447 "
                "tokens (71447 in the messages, 60000 in the completion). Please reduce the length of the "
                "messages or completion.",
                _BAD,
                "messages",
                "context_length_exceeded",
            ),
        ),
        "too long for gpt-5": faulty(
            "too long",
            "cline#5474",
            400,
            openai_error(
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
                "289650 tokens. Please reduce the length of the messages.",
                _BAD,
                "messages",
                "context_length_exceeded",
            ),
            evidence="reported",
        ),
        "busy": faulty(
            "busy",
            "https://developers.openai.com/api/docs/guides/rate-limits",
            429,
            openai_error(
                "Rate limit reached for gpt-4o in organization org-1 on requests per min (RPM): Limit "
                "500, Used 500, Requested 1. Please try again in 120ms.",
                "requests",
                None,
                "rate_limit_exceeded",
            ),
            headers={"retry-after": "1", "retry-after-ms": "120", "x-ratelimit-reset-requests": "120ms"},
            evidence="documented",
        ),
        # A 429 that no wait helps; a shorter conversation does.
        "larger than the rate": faulty(
            "too long",
            "CodeBoarding#42",
            429,
            openai_error(
                "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, "
                "Requested 45411. The input or output tokens must be reduced in order to run "
                "successfully. Visit https://platform.openai.com/account/rate-limits to learn more.",
                "tokens",
                None,
                "rate_limit_exceeded",
            ),
        ),
        "quota": faulty(
            "refused",
            "https://platform.openai.com/docs/guides/error-codes/api-errors",
            429,
            openai_error(
                "You exceeded your current quota, please check your plan and billing details.",
                "insufficient_quota",
                None,
                "insufficient_quota",
            ),
            evidence="reported",
        ),
        # The manuals have status and code of these three, and not all types.
        "credit": faulty(
            "refused",
            "https://www.developersdigest.tech/errors/api/openai-api",
            429,
            openai_error("You have no credit left.", None, None, "credit_balance_exhausted"),
            evidence="documented",
        ),
        "slow down": faulty(
            "busy",
            "https://www.developersdigest.tech/errors/api/openai-api/429-slow-down",
            429,
            openai_error("Slow down.", "rate_limit_error", None, "slow_down"),
            evidence="documented",
        ),
        "overloaded": faulty(
            "down",
            "https://learn.microsoft.com/en-us/microsoft-cloud/dev/dev-proxy/",
            503,
            openai_error("Overloaded.", "service_unavailable_error", None, "server_is_overloaded"),
            evidence="documented",
        ),
    }

    def judge(self, body: Object) -> None:
        for name in body.keys() - _FIELDS:
            _bad(
                f"Unrecognized request argument supplied: {name}",
                "https://platform.openai.com/docs/guides/error-codes/api-errors",
            )
        self._judge_reasoning_models(body)
        if "parallel_tool_calls" in body and not body.get("tools"):
            _bad(
                "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when "
                "'tools' are specified.",
                "https://platform.openai.com/docs/api-reference/chat",
                "parallel_tool_calls",
            )
        for place, message in asking_messages(body):
            for number, call in enumerate(calls_of(message)):
                if not _NAME.fullmatch(str(function_of(call).get("name"))):
                    param = f"messages[{place}].tool_calls[{number}].function.name"
                    _bad(
                        f"Invalid '{param}': string does not match pattern. Expected a string that matches "
                        f"the pattern '^[a-zA-Z0-9_-]+$'.",
                        f"{_GITHUB}/mcp-use/mcp-use/pull/94",
                        param,
                        "invalid_value",
                    )
        place = lost_result(body)
        if place is not None:
            _bad(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
                "with 'tool_calls'.",
                "texts in two clients (messages.[N].role)",
                f"messages.[{place}].role",
            )
        if missing := unanswered_calls(body):
            _bad(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to "
                "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
                f"{', '.join(missing)}",
                f"{_GITHUB}/BerriAI/litellm/issues/10083",
                "messages",
            )

    def _judge_reasoning_models(self, body: Object) -> None:
        model = str(body["model"])
        if not model.startswith(("gpt-5", "o1", "o3", "o4")):
            return
        if "max_tokens" in body:
            _bad(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                f"{_GITHUB}/sipeed/picoclaw/issues/16",
                "max_tokens",
                "unsupported_parameter",
            )
        if body.get("temperature", 1) != 1:
            _bad(
                f"Unsupported value: 'temperature' does not support {body['temperature']} with this "
                f"model. Only the "
                "default (1) value is supported.",
                "gpt-5.6-luna, recorded 2026-08",
                "temperature",
                "unsupported_value",
            )
        # 5.6 reasons by default; 5.4 and 5.5 too, according to one report, which another contradicts.
        thinks = body.get("reasoning_effort", "medium") != "none"
        if model.startswith(("gpt-5.4", "gpt-5.5", "gpt-5.6")) and body.get("tools") and thinks:
            _bad(
                f"Function tools with reasoning_effort are not supported for {model} in "
                "/v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort "
                "to 'none'.",
                f"{_GITHUB}/BerriAI/litellm/pull/34569",
                "reasoning_effort",
            )

    def play(self, given: Given, body: Object) -> list[Object | str]:
        reply = given.reply
        asks = is_asked_for_usage(body)
        first: Object = {"role": "assistant", "content": None if reply.calls else "", "refusal": None}
        deltas: list[Object] = [first]
        deltas += in_pieces("content", reply.text)
        deltas += [{"content": None, **delta} for delta in in_pieces("refusal", reply.refusal)]
        deltas += calls_in_pieces(given)
        events: list[Object | str] = [self.chunk(body, delta, asks=asks) for delta in deltas]
        if reply.cut:
            return events
        events.append(self.chunk(body, {}, reply.ending, asks=asks))
        return [*events, *self.after(reply, body)]

    def after(self, reply: Played, body: Object) -> list[Object]:
        """Return the events after the finish reason."""
        if not is_asked_for_usage(body):
            return []
        details: Object = {"cached_tokens": 0, "audio_tokens": 0}
        return [
            {**self.head(body), "choices": [], "usage": {**usage_of(reply), "prompt_tokens_details": details}}
        ]

    def head(self, body: Object) -> Object:
        """Return the common fields of all chunks."""
        return {
            "id": "chatcmpl-D0q8",
            "object": "chat.completion.chunk",
            "created": 1769092764,
            "model": f"{body['model']}-2024-07-18",
            "service_tier": "default",
            "system_fingerprint": "fp_29330a9688",
        }

    def chunk(self, body: Object, delta: Object, reason: str | None = None, *, asks: bool = False) -> Object:
        """Return a chunk with one choice."""
        choice: Object = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        usage: Object = {"usage": None} if asks else {}
        return {**self.head(body), "choices": [choice], **usage, "obfuscation": "ZGF"}


def _filters() -> Object:
    return {
        kind: {"filtered": False, "severity": "safe"} for kind in ("hate", "self_harm", "sexual", "violence")
    }


class Azure(OpenAI):
    """RESOURCE.openai.azure.com: the same, with a content filter around it."""

    name = "azure"
    quirks = (
        Quirk("the first chunk has no choices and empty names", f"{_FIXTURES}/azure-text.chunks.txt"),
        Quirk("keys in the order of the alphabet", f"{_FIXTURES}/azure-text.chunks.txt"),
        Quirk("content_filter_results in each choice", f"{_FIXTURES}/azure-text.chunks.txt"),
        Quirk(
            "after the finish reason a choice without delta, whose finish_reason is null",
            f"{_GITHUB}/openai/openai-python/issues/1677",
        ),
        Quirk(
            "the key stands in api-key; what has Authorization too is taken for a token of Entra",
            "https://learn.microsoft.com/en-us/azure/ai-foundry/openai/reference",
            "documented",
        ),
        Quirk(
            "a filtered reply ends with content_filter and an empty delta",
            "ravendb PR 22997",
            "assumed",
        ),
    )
    faults: ClassVar[Mapping[str, Fault]] = {
        "prompt filtered": faulty(
            "filtered",
            f"{_GITHUB}/simonw/research/issues/16",
            400,
            {
                "error": {
                    "message": "The response was filtered due to the prompt triggering Azure OpenAI's "
                    "content management policy. Please modify your prompt and retry. To learn more about "
                    "our content filtering policies please read our documentation: "
                    "https://go.microsoft.com/fwlink/?linkid=2198766",
                    "type": None,
                    "param": "prompt",
                    "code": "content_filter",
                    "status": 400,
                    "innererror": {
                        "code": "ResponsibleAIPolicyViolation",
                        "content_filter_result": {"violence": {"filtered": True, "severity": "medium"}},
                    },
                }
            },
        ),
        "busy for a day": faulty(
            "busy",
            f"{_GITHUB}/jasonacox/TinyLLM/issues/17",
            429,
            {
                "error": {
                    "code": "429",
                    "message": "Requests to the ChatCompletions_Create Operation under Azure OpenAI API "
                    "version 2023-05-15 have exceeded token rate limit of your current AIServices S0 "
                    "pricing tier. Please retry after 86400 seconds. Please contact Azure support service "
                    "if you would like to further increase the default rate limit.",
                }
            },
            headers={"retry-after": "86400", "x-ratelimit-remaining-tokens": "-1"},
        ),
    }

    def __call__(self, received: ReceivedRequest) -> Answer:
        if "api-key" not in received.headers or "authorization" in received.headers:
            error: Object = {"code": "401", "message": "Access denied due to invalid subscription key."}
            return Wire([json.dumps({"error": error}).encode()], 401, {"content-type": "application/json"})
        return super().__call__(received)

    def play(self, given: Given, body: Object) -> list[Object | str]:
        prompt: Object = {"prompt_index": 0, "content_filter_results": _filters()}
        first: Object = {**self._anonymous(), "choices": [], "prompt_filter_results": [prompt]}
        return [
            json.loads(json.dumps(event, sort_keys=True)) for event in (first, *super().play(given, body))
        ]

    def after(self, reply: Played, body: Object) -> list[Object]:
        offsets: Object = {"check_offset": 0, "start_offset": 0, "end_offset": len(reply.text)}
        late: Object = {
            "content_filter_offsets": offsets,
            "content_filter_results": _filters(),
            "finish_reason": None,
            "index": 0,
        }
        return [{**self._anonymous(), "choices": [late]}, *super().after(reply, body)]

    def head(self, body: Object) -> Object:
        head: Object = {**super().head(body), "model": "gpt-4", "system_fingerprint": None}
        del head["service_tier"]
        return head

    def chunk(self, body: Object, delta: Object, reason: str | None = None, *, asks: bool = False) -> Object:
        found: JsonValue = {**_filters(), "violence": {"filtered": True, "severity": "high"}}
        results: JsonValue = found if reason == "content_filter" else {}
        choice: Object = {
            "content_filter_results": results,
            "delta": delta,
            "finish_reason": reason,
            "index": 0,
        }
        usage: Object = {"usage": None} if asks else {}
        return {**self.head(body), "choices": [{**choice, "logprobs": None}], **usage, "obfuscation": "D3W"}

    @staticmethod
    def _anonymous() -> Object:
        return {"created": 0, "id": "", "model": "", "object": ""}
