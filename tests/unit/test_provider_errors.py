"""What the failures of a provider mean: retry or not, how long, and what the operator is told."""

from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError
from pydantic import JsonValue

from activities.provider_errors import LONGEST_RETRY_DELAY, MODEL_FAILURES, provider_failure, retry_after
from activities.reply_assembler import IncompleteReplyError, UnreadableStreamError
from workflows.contract.failures import CONTEXT_TOO_LONG, MODEL_REFUSED, MODEL_UNAVAILABLE

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
REQUEST = httpx2.Request("POST", "http://provider/v1/chat/completions")
SECRET = "sk-secret and what the user wrote"


def status_error(status: int, headers: dict[str, str] | None = None, **body: JsonValue) -> APIStatusError:
    """Return what the client raises for an HTTP error."""
    response = httpx2.Response(status, headers=headers, request=REQUEST)
    message = str(body.get("message", SECRET))
    return APIStatusError(message, response=response, body={"message": message, **body})


def stream_error(**body: JsonValue) -> APIError:
    """Return what the client raises for an error event inside a stream."""
    return APIError(str(body.get("message", SECRET)), REQUEST, body=dict(body))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (status_error(408), "408"),
        (status_error(409), "409"),
        (status_error(429), "limits the rate of requests (429)"),
        (status_error(429, code="rate_limit_exceeded"), "(429, rate_limit_exceeded)"),
        (status_error(500), "the provider failed (500)"),
        (status_error(503), "503"),
        (status_error(529, type="overloaded_error"), "(529, overloaded_error)"),
        (APIConnectionError(request=REQUEST), "OPENAI_BASE_URL"),
        (APITimeoutError(request=REQUEST), "EVERLOOP_MODEL_TIMEOUT"),
        (stream_error(), "the provider failed"),
        (stream_error(code="server_error"), "server_error"),
        (stream_error(code=502), "502"),
        (IncompleteReplyError("the stream ended early"), "the stream ended early"),
        (UnreadableStreamError("no stream"), "no stream"),
    ],
)
def test_what_may_pass_is_tried_again(error: Exception, said: str) -> None:
    """The provider could not answer now: retryable, with a reason in our own words."""
    failure = provider_failure(error, "gpt", failures_so_far=1)

    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert said in failure.message
    assert SECRET not in failure.message


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (status_error(400), MODEL_REFUSED, "400"),
        (
            status_error(401, code="invalid_api_key"),
            MODEL_REFUSED,
            "(401, invalid_api_key): check OPENAI_API_KEY",
        ),
        (status_error(402), MODEL_REFUSED, "balance"),
        (status_error(403), MODEL_REFUSED, "403"),
        (status_error(404), MODEL_REFUSED, "does not know model 'gpt' (404): check EVERLOOP_MODEL"),
        (status_error(422), MODEL_REFUSED, "422"),
        (status_error(418), MODEL_REFUSED, "418"),
        (status_error(429, code="insufficient_quota"), MODEL_REFUSED, "billing"),
        (status_error(429, type="insufficient_quota"), MODEL_REFUSED, "billing"),
        (stream_error(code=401), MODEL_REFUSED, "OPENAI_API_KEY"),
        (status_error(400, code="context_length_exceeded"), CONTEXT_TOO_LONG, "'gpt'"),
        (status_error(413), CONTEXT_TOO_LONG, "413"),
        (
            status_error(400, message="This model's maximum context length is 8 tokens"),
            CONTEXT_TOO_LONG,
            "400",
        ),
        (status_error(400, message="prompt is too long: 9 > 8"), CONTEXT_TOO_LONG, "400"),
        (status_error(400, message="it exceeds the available context size"), CONTEXT_TOO_LONG, "400"),
        (stream_error(code="context_length_exceeded"), CONTEXT_TOO_LONG, "context window"),
        (status_error(401, message="the context length is fine"), MODEL_REFUSED, "401"),
        (status_error(400, code=SECRET, type=7), MODEL_REFUSED, "(400)"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(error: Exception, kind: str, said: str) -> None:
    """The message names the cause and the next step, and nothing that the provider wrote."""
    failure = provider_failure(error, "gpt", failures_so_far=1)

    assert (failure.type, failure.non_retryable) == (kind, True)
    assert said in failure.message
    assert SECRET not in failure.message


def test_the_last_failure_gives_up() -> None:
    """A provider that stays away ends the call after a fixed number of failures."""
    last_but_one = provider_failure(status_error(503), "gpt", MODEL_FAILURES - 1)
    last = provider_failure(status_error(503), "gpt", MODEL_FAILURES)

    assert (last_but_one.type, last_but_one.non_retryable) == (MODEL_UNAVAILABLE, False)
    assert (last.type, last.non_retryable) == (MODEL_UNAVAILABLE, True)
    assert f"gave up after {MODEL_FAILURES} failures" in last.message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:20 GMT"}, 20),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": "1e300"}, LONGEST_RETRY_DELAY.total_seconds()),
        ({"retry-after": "86400"}, LONGEST_RETRY_DELAY.total_seconds()),
    ],
)
def test_the_provider_says_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    """Milliseconds, seconds or a date; at most 10 minutes; what makes no sense is ignored."""
    assert retry_after(headers, NOW) == (seconds and timedelta(seconds=seconds))


def test_the_delay_goes_to_the_retry() -> None:
    """The failure carries what the header says."""
    failure = provider_failure(status_error(429, {"Retry-After": "7"}), "gpt", failures_so_far=1)

    assert failure.next_retry_delay == timedelta(seconds=7)
