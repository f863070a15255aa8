"""Explanation of a provider's failures: one table, from the error to an operator's next step.

Error texts of a provider may repeat the prompt or parts of the key. Messages are therefore made of our
own words and of codes, and errors are raised without their cause.
"""

import json
import re
import ssl
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import httpx2
from openai import APIConnectionError, APIError, APIStatusError
from pydantic import JsonValue

from everloop.models.catalogue import Provider
from everloop.models.interface import (
    ModelBusyError,
    ModelDownError,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    OutputUnsupportedError,
    PromptTooLongError,
    UnreadableReplyError,
)
from everloop.runtime.outbound.bounds import AnswerTooLargeError
from everloop.runtime.outbound.policy import MAX_RETRY_AFTER, is_loopback, retry_after

_TOO_LONG = re.compile(
    r"context.length|context.window|context.size|context.limit|maximum.(context|(model|prompt).length)"
    r"|(prompt|input) is too long|too many (input )?tokens|reduce the length|token count .* (exceeds|up to)"
    r"|model token limit|maximum allowed length|range of input length|prompt exceeds max length",
    re.IGNORECASE,
)
_TOO_LONG_FOR_RATE = re.compile(
    r"request too large|tokens must be reduced|reduce your message", re.IGNORECASE
)
"""A single request exceeds the rate limit: only a shorter one can pass."""
_OUTPUT = re.compile(
    r"response_format|json.?schema|json.?mode|json.?object|text\.format|structured.output", re.IGNORECASE
)
_RETRY_INFO = re.compile(r'"retryDelay": "(\d+(?:\.\d+)?)s"')
"""Retry delay of Google (google.rpc.RetryInfo)."""
_TOLD_IN_TEXT = re.compile(
    r"(?:again|retry) (?:in|after) (?:(\d{1,3}) ?h)?(?:(\d{1,6}) ?m(?!s|il))?(?:(\d{1,6}(?:\.\d+)?) ?(m?s))?",
    re.IGNORECASE,
)
"""Retry delays in texts of OpenAI and Azure: 7m12s, 1.5s, 120ms, 20 seconds."""
_CODE = re.compile(r"[\w.\[\]-]{1,80}")
_STATUS = re.compile(r"[45]\d\d")
_UNPAID = {
    "insufficient_quota",
    "credit_balance_exhausted",
    "billing_hard_limit_reached",
    "exceeded_current_quota_error",
}
_UNPAID_TEXT = re.compile(r"insufficient.balance|credit balance is too low|余额不足", re.IGNORECASE)
_KEY = re.compile(r"api.key (is )?(not valid|invalid|expired)|(invalid|incorrect) api.key", re.IGNORECASE)
_CALL_UNREADABLE = "tool_use_failed"
"""Groq's code for an unreadable call of the model, or a call of an unknown tool."""

_BAD_REQUEST = "found the request wrong ({}): check that the model takes these tools, messages and settings"
_BAD_TOOL = "does not take the tool {tool!r} ({}): correct its schema, or leave the tool out"
_TOOL = re.compile(r"(?:function_declarations|tools)(?:\[|\.)(\d{1,4})\b(?!\]?\.function_declarations)")
"""References to an invalid tool: OpenAI tools[2].function, Anthropic tools.2.custom."""
_BAD_FILE = (
    "does not take a file of the conversation ({}): name in model_takes what the model takes, and send "
    "pictures as PNG, JPEG, GIF or WebP"
)
_FILE = re.compile(r"image|picture|audio|file|mime|media.?type", re.IGNORECASE)
_FILES = {"image_url", "input_audio", "file"}
"""Types of message parts with files."""
_REFUSALS: Mapping[int, str] = {
    400: _BAD_REQUEST,
    401: "refused the key ({}): check {key}",
    402: "wants to be paid first ({}): check the balance of the account",
    403: "forbids this request ({}): check what {key} may use",
    404: "does not know model {model!r} ({}): check the model's name, and {address}",
    422: _BAD_REQUEST,
}
_REDIRECT = "redirects the request ({}), which is not followed: set {address} to where it leads"
_OTHER_REFUSAL = "refused the request ({}): check {address} and the provider's manual"
_QUOTA = "says that the quota of the account is used up ({}): check its plan and billing"
_LONG = "finds the conversation too long for the context window of {model!r} ({}): use a larger model"
_UNREADABLE_CALL = "could not read a tool call that {model!r} wrote ({})"
_OTHER_OUTPUT = "does not take the form that the answer is to have ({})"
_WAITS: Mapping[int, str] = {
    408: "gave up waiting for the request ({})",
    409: "reported a conflict ({})",
    424: "failed ({})",  # behind it: at the model of Bedrock, of Hugging Face
    425: "wants to be asked later ({})",
    429: "limits the rate of requests ({})",
    498: "has no room for the request ({})",  # Groq's, of its flexible tier
    499: "gave up the request ({})",  # Google's CANCELLED
}
_OTHER_WAIT = "failed ({})"

_USUAL_TYPES = {"", "application/json", "text/event-stream"}

_BUSY, _TOO_LARGE, _BAD, _UNPROCESSABLE, _DOWN_FROM = 429, 413, 400, 422, 500


@dataclass(frozen=True)
class _Fault:
    """An error of a provider. `status` is None without one."""

    status: int | None
    codes: tuple[str, ...]
    text: str
    wait: timedelta | None

    @property
    def label(self) -> str:
        """The status and the provider's own code, if set."""
        return ", ".join(self.codes[: 2 if self.status else 1]) or "no code"

    @property
    def is_too_long(self) -> bool:
        if self.status == _BUSY:
            return bool(_TOO_LONG_FOR_RATE.search(self.text))
        if self.status == _TOO_LARGE or "context_length_exceeded" in self.codes:
            return True
        may_say_so = self.status in {None, _BAD, _UNPROCESSABLE} or (self.status or 0) >= _DOWN_FROM
        return may_say_so and bool(_TOO_LONG.search(self.text))

    @property
    def is_unpaid(self) -> bool:
        is_refusal = self.status is None or _BAD <= self.status < _DOWN_FROM
        return bool(_UNPAID.intersection(self.codes) or (is_refusal and _UNPAID_TEXT.search(self.text)))

    @property
    def is_about_key(self) -> bool:
        return self.status == _BAD and bool(_KEY.search(self.text))


class Failures:
    """Explains the failures of one call, for its request and its provider."""

    def __init__(self, provider: Provider, request: ModelRequest, model: str) -> None:
        self._provider = provider
        self._model = model
        self._output = request.output.by if request.output else "prompt"
        self._tools = [tool.name for tool in request.tools]
        self._has_files = any(map(_has_files, request.messages))

    @contextmanager
    def translated(self) -> Generator[None]:
        """Raise a `ModelError` for any failure of the provider or the connection."""
        try:
            yield
        except (AnswerTooLargeError, APIError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self.of_error(error) from None

    @contextmanager
    def unreadable_shapes(self, api: str, headers: Mapping[str, str]) -> Generator[None]:
        """Raise `UnreadableReplyError` for a body without JSON, or with JSON of another shape."""
        try:
            yield
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()[:100]
            instead = "" if kind in _USUAL_TYPES else f", but {kind!r}"
            raise self.unreadable(f"answered with no {api} reply{instead} ({type(error).__name__})") from None

    def of_error(self, error: Exception) -> ModelError:
        """Return the error for an exception of the SDK, or of the HTTP client under it."""
        if isinstance(error, APIConnectionError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        match error:
            case AnswerTooLargeError():
                return UnreadableReplyError(f"{self._who} cannot be read: {error}; check {self._address}")
            case APIStatusError():
                return self._explain(_fault_of(error.status_code, error.body, error.response.headers))
            case httpx2.TimeoutException():
                return ModelDownError(f"{self._who} was silent for too long")
            case _ if untrusted := _untrusted(error):
                told = f"is not trusted ({untrusted.verify_message})"
                todo = f"check {self._address}, or name the file of its authority in SSL_CERT_FILE"
                return ModelDownError(f"the certificate of {self._who} {told}: {todo}")
            case httpx2.ConnectError() if is_loopback(httpx2.URL(self._provider.base_url).host):
                return ModelDownError(
                    f"nothing answers for {self._who} on this machine: start it, or check {self._address}"
                )
            case _:
                check = f"check {self._address} and the network"
                return ModelDownError(f"no connection to {self._who}, or it was lost: {check}")

    def of_answer(self, body: object) -> ModelError:
        """Return the error for an error object in place of a reply, or in the middle of it."""
        return self._explain(_fault_of(None, body, {}))

    def unreadable(self, what: str) -> UnreadableReplyError:
        """Return the error for an unexpected response."""
        return UnreadableReplyError(f"{self._who} {what}: check {self._address}")

    def _explain(self, fault: _Fault) -> ModelError:
        causes: Sequence[tuple[bool, type[ModelError], str]] = (
            (fault.is_too_long, PromptTooLongError, _LONG),
            (fault.is_unpaid, ModelRefusedError, _QUOTA),
            (_CALL_UNREADABLE in fault.codes, UnreadableReplyError, _UNREADABLE_CALL),
            (self._is_about_output(fault), OutputUnsupportedError, _OTHER_OUTPUT),
            (fault.is_about_key, ModelRefusedError, _REFUSALS[401]),
            (bool(self._tool_in(fault)), ModelRefusedError, _BAD_TOOL),
            (self._is_about_file(fault), ModelRefusedError, _BAD_FILE),
        )
        for is_it, meant, template in causes:
            if is_it:
                return meant(self._text(template, fault), codes=fault.codes)
        status = fault.status
        if status and status not in _WAITS and status < _DOWN_FROM:
            other = _REDIRECT if status < _BAD else _OTHER_REFUSAL
            return ModelRefusedError(self._text(_REFUSALS.get(status, other), fault), codes=fault.codes)
        kind = ModelBusyError if status == _BUSY else ModelDownError
        text = self._text(_WAITS.get(status or 0, _OTHER_WAIT), fault)
        return kind(text, retry_after=fault.wait, codes=fault.codes)

    def _is_about_output(self, fault: _Fault) -> bool:
        if self._output == "prompt" or fault.status not in {_BAD, _UNPROCESSABLE, 404}:
            return False
        return bool(_OUTPUT.search(fault.text)) or (self._output == "tool" and "tool_choice" in fault.text)

    def _is_about_file(self, fault: _Fault) -> bool:
        return self._has_files and fault.status in {_BAD, _UNPROCESSABLE} and bool(_FILE.search(fault.text))

    def _tool_in(self, fault: _Fault) -> str:
        """Return the tool whose definition was rejected; empty if none is named."""
        found = _TOOL.search(fault.text) if fault.status in {_BAD, _UNPROCESSABLE} else None
        number = int(found[1]) if found else len(self._tools)
        return self._tools[number] if number < len(self._tools) else ""

    def _text(self, template: str, fault: _Fault) -> str:
        key = self._provider.key_variable or "its key"
        about = {"key": key, "model": self._model, "address": self._address, "tool": self._tool_in(fault)}
        filled = template.format(fault.label, **about)
        return f"{self._who} {filled}"

    @property
    def _who(self) -> str:
        return f"the provider {self._provider.name!r}"

    @property
    def _address(self) -> str:
        return self._provider.base_url_variable or "its base_url"


_MEANT = (
    (re.compile("(api|overloaded|server)_"), 500),
    (re.compile("rate_limit"), 429),
    (re.compile("authentication_"), 401),
    (re.compile("permission_"), 403),
    (re.compile("not_found_"), 404),
    (re.compile("(invalid|unsupported|empty|failed_to_download|image|data_residency)_|.*_policy"), 400),
)
"""Meaning of codes without a status, as in streams of the Responses API."""


def _fault_of(status: int | None, body: object, headers: Mapping[str, str]) -> _Fault:
    told = _error_object(body)
    # The code first: Anthropic sends api_error with the type invalid_request_error.
    named = [_code(value) for name in ("code", "type", "status") if isinstance(value := told.get(name), str)]
    own = [code for code in named if code]
    status = status or _status_in(told) or _status_meant_by(own)
    codes = tuple(dict.fromkeys([*([str(status)] if status else ()), *own]))
    text = json.dumps(told, default=str, ensure_ascii=False)
    return _Fault(status, codes, text, retry_after(headers, datetime.now(UTC)) or _delay_in(text))


def _status_in(told: Mapping[str, Any]) -> int | None:
    numbers = (_code(told.get(name)) for name in ("code", "status_code", "status"))
    return next((int(number) for number in numbers if _STATUS.fullmatch(number)), None)


def _status_meant_by(codes: Sequence[str]) -> int | None:
    return next((status for what, status in _MEANT if codes and what.match(codes[0])), None)


def _has_files(message: Mapping[str, JsonValue]) -> bool:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return any(isinstance(part, dict) and part.get("type") in _FILES for part in parts)


def _untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the certificate error that caused an error of the client, if any."""
    while error and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def error_in(event: Mapping[str, Any]) -> object:
    """Return the error in place of a reply, or in the middle of it, from one of several fields."""
    error: object = event.get("error")
    if error or event.get("object") == "error" or event.get("type") == "error":
        return error or event
    if event.get("type") == "response.failed":
        return event.get("response", event).get("error") or event
    choices: Sequence[Mapping[str, Any]] = event.get("choices") or ()
    return next((one["error"] for one in choices if one.get("error")), None)


def _error_object(body: object) -> Mapping[str, Any]:
    """Return the error object: it may stand in an array, under `error`, alone, or be a text."""
    if isinstance(body, list) and body:
        return _error_object(cast("list[object]", body)[0])
    if isinstance(body, dict):
        told = cast("dict[str, Any]", body)
        return _error_object(told["error"]) if told.get("error") else told
    return {"message": body if isinstance(body, str) else ""}


def _code(value: object) -> str:
    text = str(value) if isinstance(value, str | int) else ""
    return text if _CODE.fullmatch(text) else ""


def _delay_in(text: str) -> timedelta | None:
    """Return the retry delay in the text of an error object, if no header has it."""
    if told := _RETRY_INFO.search(text):
        return _at_most(float(told[1]))
    if not (found := _TOLD_IN_TEXT.search(text)):
        return None
    hours, minutes, number, unit = found.groups()
    seconds = float(number or 0) * (0.001 if unit == "ms" else 1)
    return _at_most(int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds)


def _at_most(seconds: float) -> timedelta | None:
    return timedelta(seconds=min(seconds, MAX_RETRY_AFTER.total_seconds())) or None
