"""Failures of a provider: retryable or not, the delay, and the text for the operator."""

from datetime import timedelta
from typing import Any

import httpx2
import pytest
from openai import APIConnectionError, APIStatusError, APITimeoutError
from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from everloop.activities.model.model_retries import provider_failure
from everloop.models.catalogue import ChosenModel, Provider
from everloop.models.interface import (
    ModelBusyError,
    ModelDownError,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    OutputSchema,
    OutputUnsupportedError,
    UnreadableReplyError,
)
from everloop.models.provider_failures import Failures, error_in
from everloop.runtime.outbound.bounds import AnswerTooLargeError
from everloop.stores.providers import HeldBackError, Why
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.failures import CONTEXT_TOO_LONG, MODEL_REFUSED, MODEL_UNAVAILABLE
from everloop.workflows.contract.messages import ListedTool

REQUEST = httpx2.Request("POST", "http://provider/v1/chat/completions")
SECRET = "sk-secret and what the user wrote"


def status_error(status: int, headers: dict[str, str] | None = None, /, **body: JsonValue) -> APIStatusError:
    """Return the SDK's exception for an HTTP error."""
    told = {"message": SECRET, **body}
    response = httpx2.Response(status, headers=headers, json={"error": told}, request=REQUEST)
    return APIStatusError(str(told["message"]), response=response, body=told)


def lost(cause: httpx2.RequestError) -> APIConnectionError:
    """Return the SDK's exception for one of its HTTP client."""
    is_silent = isinstance(cause, httpx2.TimeoutException)
    error = APITimeoutError(REQUEST) if is_silent else APIConnectionError(request=REQUEST)
    error.__cause__ = cause
    return error


OPENAI = Provider("openai", key_variable="OPENAI_API_KEY", base_url_variable="OPENAI_BASE_URL")


def stream_error(**body: JsonValue) -> ModelError:
    """Return the exception for an error event inside a stream."""
    told = {"message": SECRET, **body}
    return Failures(OPENAI, ModelRequest("openai/gpt", ()), "gpt").of_answer(told)


def held_back(why: Why, seconds: float = 12) -> HeldBackError:
    """Return the exception of a provider's gate."""
    office = Provider("office", concurrency=8, requests_per_minute=500)
    return HeldBackError(
        ChosenModel(name="office/gpt", provider=office, model="gpt"), why, timedelta(seconds=seconds)
    )


def meant(error: Exception, failures_so_far: int = 1) -> ApplicationError:
    """Return the failure for an error of the client, or of the model."""
    if not isinstance(error, ModelError):
        error = Failures(OPENAI, ModelRequest("openai/gpt", ()), "gpt").of_error(error)
    return provider_failure(error, failures_so_far, chance=0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (status_error(408), "408"),
        (status_error(409), "409"),
        (status_error(429), "limits the rate of requests (429)"),
        (status_error(429, code="rate_limit_exceeded"), "(429, rate_limit_exceeded)"),
        (status_error(424), "failed (424)"),
        (status_error(425), "425"),
        (status_error(498), "has no room for the request (498)"),
        (status_error(499, code="CANCELLED"), "(499, CANCELLED)"),
        (status_error(400, code="tool_use_failed"), "could not read a tool call that 'gpt' wrote"),
        (status_error(500), "the provider 'openai' failed (500)"),
        (status_error(503), "503"),
        (status_error(529, type="overloaded_error"), "(529, overloaded_error)"),
        (lost(httpx2.ConnectError(SECRET)), "OPENAI_BASE_URL"),
        (lost(httpx2.ReadTimeout(SECRET)), "was silent for too long"),
        (stream_error(), "the provider 'openai' failed"),
        (stream_error(code="server_error"), "server_error"),
        (stream_error(code=502), "502"),
        (ModelDownError("the stream ended early"), "the stream ended early"),
        (UnreadableReplyError("no stream"), "no stream"),
    ],
)
def test_what_may_pass_is_tried_again(error: Exception, said: str) -> None:
    """Temporary failures of the provider: retryable, with a reason in our own words."""
    failure = meant(error)
    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert said in failure.message
    assert SECRET not in failure.message


def test_a_server_of_this_machine_that_does_not_run_is_to_be_started() -> None:
    """The usual reason is that it was not started."""
    local = Provider("ollama", base_url="http://localhost:11434/v1")
    error = Failures(local, ModelRequest("ollama/q", ()), "q").of_error(lost(httpx2.ConnectError(SECRET)))
    assert str(error) == (
        "nothing answers for the provider 'ollama' on this machine: start it, or check its base_url"
    )


NO_MODEL = "know model 'gpt' (404): check the model's name, and OPENAI_BASE_URL"


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (status_error(400), MODEL_REFUSED, "400"),
        (status_error(401, code="bad_key"), MODEL_REFUSED, "(401, bad_key): check OPENAI_API_KEY"),
        (status_error(402), MODEL_REFUSED, "balance"),
        (status_error(403), MODEL_REFUSED, "403"),
        (status_error(404), MODEL_REFUSED, NO_MODEL),
        (status_error(422), MODEL_REFUSED, "422"),
        (status_error(418), MODEL_REFUSED, "418"),
        (status_error(429, code="insufficient_quota"), MODEL_REFUSED, "billing"),
        (status_error(429, type="insufficient_quota"), MODEL_REFUSED, "billing"),
        (status_error(429, type="exceeded_current_quota_error"), MODEL_REFUSED, "billing"),
        (status_error(429, code="1113", message="Insufficient balance"), MODEL_REFUSED, "billing"),
        (status_error(400, message="Your credit balance is too low"), MODEL_REFUSED, "billing"),
        (status_error(400, message="API key not valid. Please pass one."), MODEL_REFUSED, "OPENAI_API_KEY"),
        (status_error(400, message="Incorrect API key provided"), MODEL_REFUSED, "OPENAI_API_KEY"),
        (stream_error(code=401), MODEL_REFUSED, "OPENAI_API_KEY"),
        (status_error(400, code="context_length_exceeded"), CONTEXT_TOO_LONG, "'gpt'"),
        (status_error(413), CONTEXT_TOO_LONG, "413"),
        (status_error(400, message="the maximum context length is 8 tokens"), CONTEXT_TOO_LONG, "400"),
        (status_error(400, message="prompt is too long: 9 > 8"), CONTEXT_TOO_LONG, "400"),
        (status_error(400, message="it exceeds the available context size"), CONTEXT_TOO_LONG, "400"),
        (stream_error(code="context_length_exceeded"), CONTEXT_TOO_LONG, "context window"),
        (status_error(401, message="the context length is fine"), MODEL_REFUSED, "401"),
        (status_error(400, code=SECRET, type=7), MODEL_REFUSED, "(400)"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(error: Exception, kind: str, said: str) -> None:
    """The error names the cause and the next step, and contains nothing of the provider's text."""
    failure = meant(error)
    assert (failure.type, failure.non_retryable) == (kind, True)
    assert said in failure.message
    assert SECRET not in failure.message


TOO_LONG = {
    "xAI, cline#3120": "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
    "vLLM": "The decoder prompt (length 10127) is longer than the maximum model length of 8192.",
    "SGLang, sglang#4048": "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
    "Moonshot": "Invalid request: Your request exceeded model token limit: 262144",
    "DashScope": "Range of input length should be [1, 30720]",
    "Zhipu": "Prompt exceeds max length",
    "Copilot": "prompt token count of 130000 exceeds the limit of 128000",
    "Vertex": "The input token count is 33000 but model only supports up to 32768",
}


@pytest.mark.parametrize("told", TOO_LONG.values(), ids=TOO_LONG)
def test_a_conversation_that_is_too_long_is_known_by_what_is_told(told: str) -> None:
    """Most providers have no code for it."""
    assert meant(status_error(400, message=told)).type == CONTEXT_TOO_LONG


@pytest.mark.parametrize(
    ("error", "most"),
    [
        (status_error(429), 21),
        (status_error(503), 21),
        (lost(httpx2.ConnectError(SECRET)), 21),
        (lost(httpx2.ReadTimeout(SECRET)), 21),
        (stream_error(), 21),
        (ModelDownError("the stream ended early"), 21),
        (held_back("down"), 21),
        (held_back("asked"), 21),
        (UnreadableReplyError("no stream"), 3),
        (AnswerTooLargeError("its answer is compressed"), 3),
    ],
)
def test_the_last_failure_of_its_kind_gives_up(error: Exception, most: int) -> None:
    """A provider gets time for an outage; a server that is not a provider of models fails early."""
    last_but_one = meant(error, most - 1)
    last = meant(error, most)
    assert (last_but_one.type, last_but_one.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert (last.type, last.non_retryable) == (MODEL_UNAVAILABLE, True)
    assert f"gave up after {most} failures" in last.message


@pytest.mark.parametrize(
    ("error", "failures_so_far", "seconds"),
    [
        (status_error(429, {"Retry-After": "7"}), 1, 7),
        (status_error(503, {"retry-after-ms": "1500"}), 9, 1.5),
        (status_error(429, message="Please try again in 7.66s. Need more?"), 1, 7.66),
        (status_error(429, message="Please try again in 120ms."), 1, 0.12),
        (status_error(429, message="Please try again in 1m12s."), 1, 72),
        (status_error(429, message="Please retry after 20 seconds."), 1, 20),
        (status_error(429, message="try again in 5 minutes"), 1, 300),
        (status_error(429, message="retry after 86400 seconds"), 1, 600),
        (status_error(429, message="Please try again later"), 1, 0.5),
        (status_error(429, {"Retry-After": "7"}, message="try again in 9s"), 1, 7),
        (stream_error(code="rate_limit_exceeded", message="Please try again in 11.054s."), 1, 11.054),
        (status_error(503), 1, 0.5),
        (status_error(503), 4, 4),
        (lost(httpx2.ConnectError(SECRET)), 2, 1),
    ],
)
def test_the_delay_goes_to_the_retry(error: Exception, failures_so_far: int, seconds: float) -> None:
    """The failure has the delay of the header, or else the one for the failures so far."""
    failure = meant(error, failures_so_far)
    assert failure.next_retry_delay == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("why", "failures_so_far", "seconds", "said"),
    [
        ("rate", 0, 12, "office takes 500 requests a minute"),
        ("slots", 0, 12, "office takes 8 at once"),
        ("down", 1, 12, "office is down: its last calls failed"),
        ("asked", 1, 12, "office has asked for a pause of gpt (429)"),
        ("down", 7, 30, "office is down: its last calls failed"),
    ],
)
def test_who_is_held_back_comes_back(why: Why, failures_so_far: int, seconds: float, said: str) -> None:
    """When there is room; later each time if the gate may close again. Limits do not count as attempts."""
    failure = meant(held_back(why), failures_so_far)
    assert (failure.message, failure.non_retryable) == (said, False)
    assert failure.next_retry_delay == timedelta(seconds=seconds)


BUSY = ModelBusyError("429", retry_after=timedelta(seconds=20))


@pytest.mark.parametrize(
    ("error", "settings", "at"),
    [
        (ModelDownError("503"), ModelSettings(), 2),
        (ModelDownError("503"), ModelSettings(fall_back_after=4, retries=0), 4),
        (UnreadableReplyError("HTML"), ModelSettings(fall_back_after=9), 3),
        (BUSY, ModelSettings(), 1),
        (BUSY, ModelSettings(fall_back_wait=timedelta(seconds=20)), 2),
        (held_back("asked", 16), ModelSettings(), 1),
        (held_back("asked", 14), ModelSettings(), 2),
        (held_back("down", 3), ModelSettings(fall_back_after=9), 1),
        (held_back("rate", 300), ModelSettings(fall_back_after=1), None),
        (held_back("slots", 300), ModelSettings(fall_back_after=1), None),
    ],
)
def test_another_model_is_asked_soon(error: ModelError, settings: ModelSettings, at: int | None) -> None:
    """At once if the provider's outage is known; never because of limits."""
    ends = [
        provider_failure(error, count, 0, settings, has_fallback=True).non_retryable for count in range(1, 10)
    ]
    assert ends == [at is not None and count >= at for count in range(1, 10)]


@pytest.mark.parametrize(("retries", "calls"), [(0, 1), (3, 4)])
def test_an_author_says_how_often_a_call_is_tried_again(retries: int, calls: int) -> None:
    """If there is no other model."""
    settings = ModelSettings(retries=retries)
    ends = [provider_failure(BUSY, count, 0, settings).non_retryable for count in range(1, calls + 1)]
    assert ends == [*[False] * (calls - 1), True]


@pytest.mark.parametrize(
    "chunk",
    [
        {"error": {"code": 503, "message": SECRET}, "choices": []},
        {"choices": [{"finish_reason": "stop", "error": {"code": 503, "message": SECRET}}]},
        {"object": "error", "code": 503, "message": SECRET},
        {"error": [{"error": {"code": "503", "message": SECRET}}]},
    ],
)
def test_an_error_is_found_wherever_it_stands(chunk: dict[str, JsonValue]) -> None:
    """In the middle of a stream, or in place of a reply."""
    error = Failures(OPENAI, ModelRequest("openai/gpt", ()), "gpt").of_answer(error_in(chunk))
    assert (type(error), str(error)) == (ModelDownError, "the provider 'openai' failed (503)")
    assert not error_in({"choices": [{"delta": {}}]})


@pytest.mark.parametrize(
    "told",
    [
        {"param": "tools[1].function.parameters", "code": "invalid_function_parameters"},
        {"param": "tools[1].parameters", "code": "invalid_function_parameters"},
        {"message": "tools.1.custom.input_schema: JSON schema is invalid"},
        {"message": "Invalid value at 'tools[0].function_declarations[1].parameters'"},
    ],
)
def test_a_tool_that_is_refused_is_named(told: dict[str, JsonValue]) -> None:
    """Among a hundred tools of MCP servers it could not be found otherwise."""
    tools = tuple(ListedTool(name=name, description="", parameters={}) for name in ("search", "draw"))
    failures = Failures(OPENAI, ModelRequest("openai/gpt", (), tools), "gpt")
    error = failures.of_error(status_error(400, **told))
    assert isinstance(error, ModelRefusedError)
    assert "does not take the tool 'draw' (400" in str(error)
    outside = failures.of_error(status_error(400, param="tools[7].function"))
    assert "check that the model takes these tools" in str(outside)


ABOUT_FILES = {
    "OpenAI": "You uploaded an unsupported image. Please make sure your image has one of the formats ['png']",
    "Anthropic": "messages.0.content.1.image.source.base64.media_type: Input should be 'image/png'",
    "Gemini": "Unsupported MIME type: application/x-zip",
    "vLLM": "At most 0 image(s) may be provided in one prompt. (parameter=image)",
}


@pytest.mark.parametrize("told", ABOUT_FILES.values(), ids=ABOUT_FILES)
def test_a_file_that_is_refused_is_told_as_one(told: str) -> None:
    """And not as an error of tools. Without files in the request, a text with that word has another cause."""
    look: JsonValue = {"type": "text", "text": "Look."}
    picture: JsonValue = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    with_file: list[JsonValue] = [look, picture]
    for content, said in (
        (with_file, "does not take a file of the conversation (400)"),
        ("Look.", "tools"),
    ):
        request = ModelRequest("openai/gpt", ({"role": "user", "content": content},))
        error = Failures(OPENAI, request, "gpt").of_error(status_error(400, message=told))
        assert isinstance(error, ModelRefusedError)
        assert said in str(error)
        assert ("tools" in str(error)) == (said == "tools")
        assert ("model_takes" in str(error)) != (said == "tools")


@pytest.mark.parametrize("by", ["json_schema", "tool", "prompt"])
def test_only_what_was_asked_for_is_refused_as_the_form_of_the_answer(by: Any) -> None:  # noqa: ANN401 -- a rung
    """Another form is tried then; a text that only contains the word is an ordinary refusal."""
    request = ModelRequest("openai/gpt", (), output=OutputSchema("city", {}, by))
    for told, forms in (
        ("response_format is unavailable now", {"json_schema", "tool"}),
        ("Thinking mode does not support this tool_choice", {"tool"}),
        ("max_tokens is too large", set[str]()),
    ):
        error = Failures(OPENAI, request, "gpt").of_error(status_error(400, message=told))
        assert type(error) is (OutputUnsupportedError if by in forms else ModelRefusedError)
