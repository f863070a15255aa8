"""Requirements for every model, as checks that authors of one run against it; pytest is not needed.

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
    async def test_model(check: Check) -> None:
        await check(MyStage())

`MyStage` lets a fake provider of the author's own play the replies of a check.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeVar

from pydantic import JsonValue

from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    EndReason,
    Model,
    ModelBusyError,
    ModelDownError,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    OutputSchema,
    OutputUnsupportedError,
    PromptTooLongError,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
    UnreadableReplyError,
)
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import ListedTool, Usage

BUSY_FOR = timedelta(seconds=7)
"""Retry delay that a provider sends with `ModelBusyError`."""

_TIMEOUT = 30
"""Seconds until a waiting check fails."""


@dataclass(frozen=True)
class Played:
    """A reply for the provider to play, in its own form.

    `calls` are names and arguments. `opaque` is a word that the provider requires back with the reply,
    in a field of its choice; with calls, in the first one. `failure`: it fails in this way instead of
    replying; `ModelBusyError` is over after `BUSY_FOR`. `then`: what follows the text instead of the
    end: the connection is "cut", or it is "silent" until the client disconnects.
    """

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    refusal: str = ""
    reason: EndReason = "stop"
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=7, output_tokens=3))
    opaque: str = ""
    failure: type[ModelError] | None = None
    then: Literal["end", "cut", "silent"] = "end"


class ProviderHarness(ABC):
    """A model with a fake provider. `model` is its name in requests.

    `requests` are those that the provider received: bodies of HTTP requests, for example.
    """

    model: str = "test-model"

    def __init__(self) -> None:
        self.requests: list[JsonValue] = []

    @abstractmethod
    def playing(self, *replies: Played) -> AbstractAsyncContextManager[Model]:
        """Return a model whose provider sends these replies, one per request, in pieces."""

    @abstractmethod
    async def wait_until_left(self) -> None:
        """Return when the provider of a "silent" reply has detected the client's disconnection."""


class NotConformingError(AssertionError):
    """The model misses a requirement."""


Check = Callable[[ProviderHarness], Awaitable[None]]

_Kind = TypeVar("_Kind")


def _expect(holds: bool, expected: str, got: object) -> None:  # noqa: FBT001 -- the checked condition
    if not holds:
        raise NotConformingError(f"expected {expected}, got {got!r}")


def _asking(*messages: dict[str, JsonValue], **fields: object) -> ModelRequest:
    question: dict[str, JsonValue] = {"role": "user", "content": "Hi"}
    return ModelRequest(model="test/test-model", messages=(question, *messages), **fields)  # pyright: ignore[reportArgumentType] -- fields of a request


_REQUEST = _asking()
_TEXT = "Köln and Ålesund are cities — 🜁. " * 3
_TOOL = ListedTool(
    name="look_up",
    description="Look a word up.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
_CALLS = (("look_up", '{"word": "Köln 🜁"}'), ("look_up", '{"word": "Ålesund"}'))


async def _ask(harness: ProviderHarness, played: Played, request: ModelRequest = _REQUEST) -> list[Delta]:
    async with harness.playing(played) as model:
        return await _reply(harness, model, request)


async def _reply(harness: ProviderHarness, model: Model, request: ModelRequest = _REQUEST) -> list[Delta]:
    async with aclosing(model.stream(request, harness.model)) as stream, asyncio.timeout(_TIMEOUT):
        return [delta async for delta in stream]


def _of(deltas: Sequence[Delta], kind: type[_Kind]) -> list[_Kind]:
    return [delta for delta in deltas if isinstance(delta, kind)]


def _text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in _of(deltas, TextDelta))


def _end(deltas: Sequence[Delta]) -> Ended:
    _expect(bool(deltas) and isinstance(deltas[-1], Ended), "Ended as the last delta", deltas[-1:])
    ends = _of(deltas, Ended)
    _expect(len(ends) == 1, "Ended once", ends)
    return ends[0]


def _calls(deltas: Sequence[Delta]) -> list[tuple[str, str]]:
    pieces = _of(deltas, CallDelta)
    numbers = sorted({piece.call for piece in pieces})
    _expect(numbers == list(range(len(numbers))), "calls that are numbered from 0", numbers)
    return [
        (
            "".join(piece.name for piece in pieces if piece.call == number),
            "".join(piece.arguments for piece in pieces if piece.call == number),
        )
        for number in numbers
    ]


def _sent(harness: ProviderHarness, number: int = -1) -> str:
    _expect(bool(harness.requests), "a request in ProviderHarness.requests", harness.requests)
    return json.dumps(harness.requests[number], ensure_ascii=False)


async def text_comes_in_pieces(harness: ProviderHarness) -> None:
    """Text is streamed without waiting for the whole reply; characters are never cut."""
    deltas = await _ask(harness, Played(text=_TEXT))
    _expect(_text(deltas) == _TEXT, f"the text {_TEXT!r}", _text(deltas))
    _expect(len(_of(deltas, TextDelta)) > 1, "more than one TextDelta", deltas)


async def thought_comes_before_the_text(harness: ProviderHarness) -> None:
    """Reasoning is not part of the answer, and the deltas keep their original order."""
    deltas = await _ask(harness, Played(thought="Let me see.", text="It is."))
    thought = "".join(delta.text for delta in _of(deltas, ThoughtDelta))
    _expect((thought, _text(deltas)) == ("Let me see.", "It is."), "thought and text apart", deltas)
    first = next(place for place, delta in enumerate(deltas) if isinstance(delta, TextDelta))
    late = [delta for delta in _of(deltas[first:], ThoughtDelta) if delta.text]
    _expect(not late, "no thought behind the text", late)


async def parallel_calls_have_numbers(harness: ProviderHarness) -> None:
    """Calls are numbered from 0, whatever their ids at the provider."""
    deltas = await _ask(harness, Played(calls=_CALLS), _asking(tools=(_TOOL,)))
    names = [name for name, _ in _calls(deltas)]
    _expect(names == ["look_up", "look_up"], "two calls of look_up", names)
    _expect(_end(deltas).reason in {"stop", "tool_calls"}, "an ordinary end", _end(deltas))


async def arguments_are_whole(harness: ProviderHarness) -> None:
    """The joined pieces of a call equal the arguments of the provider, also after a text."""
    deltas = await _ask(harness, Played(text="I look it up.", calls=_CALLS), _asking(tools=(_TOOL,)))
    got = [_without_spaces(arguments) for _, arguments in _calls(deltas)]
    expected = [_without_spaces(arguments) for _, arguments in _CALLS]
    _expect(got == expected, f"the arguments {expected}", got)
    _expect(_text(deltas) == "I look it up.", "the text before the calls", deltas)


def _without_spaces(arguments: str) -> str:
    return "".join(arguments.split())


async def the_end_comes_last(harness: ProviderHarness) -> None:
    """A complete reply ends with `Ended`, once."""
    ended = _end(await _ask(harness, Played(text="It is.")))
    _expect(ended.reason == "stop", "the reason stop", ended)


async def usage_is_counted(harness: ProviderHarness) -> None:
    """Tokens are those that the provider counted."""
    ended = _end(await _ask(harness, Played(text="It is.", usage=Usage(input_tokens=41, output_tokens=17))))
    tokens = (ended.usage.input_tokens, ended.usage.output_tokens) if ended.usage else None
    _expect(tokens == (41, 17), "41 tokens in and 17 out", tokens)


async def a_refusal_is_no_answer(harness: ProviderHarness) -> None:
    """A refusal is reported as such."""
    deltas = await _ask(harness, Played(refusal="I do not do that."))
    refusal = "".join(delta.text for delta in _of(deltas, RefusalDelta))
    _expect((refusal, _text(deltas)) == ("I do not do that.", ""), "a refusal and no text", deltas)
    _end(deltas)


async def reasons_come_through(harness: ProviderHarness) -> None:
    """The finish reason is reported."""
    reasons: tuple[EndReason, ...] = ("length", "content_filter")
    for reason in reasons:
        ended = _end(await _ask(harness, Played(text="And then", reason=reason)))
        _expect(ended.reason == reason, f"the reason {reason}", ended)


_FAILURES = (ModelBusyError, ModelDownError, UnreadableReplyError, ModelRefusedError, PromptTooLongError)


async def failures_are_distinguished(harness: ProviderHarness) -> None:
    """Retryable, final and too-long failures differ; none quotes the prompt."""
    for kind in _FAILURES:
        error = await _failure(harness, Played(failure=kind))
        _expect(type(error) is kind, kind.__name__, error)
        _expect("Hi" not in str(error).split(), "a text that does not quote the prompt", str(error))
        if isinstance(error, ModelBusyError):
            _expect(error.retry_after == BUSY_FOR, f"retry_after of {BUSY_FOR}", error.retry_after)


async def a_cut_is_no_end(harness: ProviderHarness) -> None:
    """A stream that ends without its last event is a failure, whatever it contained."""
    error = await _failure(harness, Played(text=_TEXT, then="cut"))
    _expect(isinstance(error, ModelDownError), "ModelDownError", error)


async def _failure(harness: ProviderHarness, played: Played) -> ModelError:
    try:
        deltas = await _ask(harness, played)
    except ModelError as error:
        return error
    raise NotConformingError(f"expected a ModelError, got {deltas!r}")


async def closing_hangs_up(harness: ProviderHarness) -> None:
    """Closing the stream of a reply closes the connection, so that the rest is not charged."""
    async with harness.playing(Played(text=_TEXT, then="silent")) as model:
        stream = model.stream(_REQUEST, harness.model)
        async with asyncio.timeout(_TIMEOUT):
            await anext(stream)
            await stream.aclose()
            await harness.wait_until_left()


async def opaque_fields_come_back(harness: ProviderHarness) -> None:
    """Opaque fields are sent back with the reply, unchanged, and are in no delta before the end."""
    word = "b3BhcXVl+secret/=="
    async with harness.playing(Played(calls=_CALLS, opaque=word), Played(text="It is.")) as model:
        deltas = await _reply(harness, model, _asking(tools=(_TOOL,)))
        shown = [delta for delta in deltas[:-1] if word in repr(delta)]
        _expect(not shown, "opaque fields in Ended alone", shown)
        await _reply(harness, model, _asking(*_as_history(deltas), tools=(_TOOL,)))
    _expect(word in _sent(harness), f"{word!r} in the second request", _sent(harness))
    _expect("not so small" in _sent(harness), "the results in the second request", _sent(harness))


def _as_history(deltas: Sequence[Delta]) -> list[dict[str, JsonValue]]:
    """Return a reply as the next request holds it, and the results of its calls."""
    opaque = _end(deltas).opaque
    calls: list[JsonValue] = [
        {
            "id": f"call{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
            **({"opaque": dict(opaque.calls[number])} if number in opaque.calls else {}),
        }
        for number, (name, arguments) in enumerate(_calls(deltas))
    ]
    reply: dict[str, JsonValue] = {"role": "assistant", "content": _text(deltas), "tool_calls": calls}
    if opaque.fields:
        reply["opaque"] = {"source": "test/test-model", "fields": dict(opaque.fields)}
    results: list[dict[str, JsonValue]] = [
        {"role": "tool", "tool_call_id": f"call{number}", "content": "a city, not so small"}
        for number in range(len(calls))
    ]
    return [reply, *results]


async def a_schema_is_asked_for(harness: ProviderHarness) -> None:
    """An output model is enforced, or the model raises that it cannot."""
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"inhabitants": {"type": "integer"}}}
    request = _asking(output=OutputSchema("city", schema))
    try:
        deltas = await _ask(harness, Played(text='{"inhabitants": 7}'), request)
    except OutputUnsupportedError:
        return
    _expect(_text(deltas) == '{"inhabitants": 7}', "the data as text", deltas)
    _expect("inhabitants" in _sent(harness), "the schema in the request", _sent(harness))


async def tools_are_sent_where_offered(harness: ProviderHarness) -> None:
    """A request has its own tools, and none of an earlier one."""
    async with harness.playing(Played(text="One."), Played(text="Two.")) as model:
        await _reply(harness, model, _asking(tools=(_TOOL,)))
        await _reply(harness, model)
    _expect("look_up" in _sent(harness, -2), "the tool in the first request", _sent(harness, -2))
    _expect("look_up" not in _sent(harness), "no tool in the second request", _sent(harness))


async def settings_are_sent(harness: ProviderHarness) -> None:
    """An agent's model settings are sent; others are left to the provider."""
    async with harness.playing(Played(text="One."), Played(text="Two.")) as model:
        await _reply(harness, model, _asking(settings=ModelSettings(max_tokens=4321)))
        await _reply(harness, model)
    _expect("4321" in _sent(harness, -2), "max_tokens in the first request", _sent(harness, -2))
    _expect("4321" not in _sent(harness), "no max_tokens in the second request", _sent(harness))


async def calls_run_side_by_side(harness: ProviderHarness) -> None:
    """One object serves a process: concurrent replies do not mix."""
    async with (
        harness.playing(Played(text=_TEXT), Played(text=_TEXT.upper())) as model,
        aclosing(model.stream(_REQUEST, harness.model)) as first,
        asyncio.timeout(_TIMEOUT),
    ):
        begun = await anext(first)
        second = await _reply(harness, model)
        rest = [delta async for delta in first]
    _expect(_text([begun, *rest]) == _TEXT, "the first text", rest)
    _expect(_text(second) == _TEXT.upper(), "the second text", second)


MODEL_CHECKS: tuple[Check, ...] = (
    text_comes_in_pieces,
    thought_comes_before_the_text,
    parallel_calls_have_numbers,
    arguments_are_whole,
    the_end_comes_last,
    usage_is_counted,
    a_refusal_is_no_answer,
    reasons_come_through,
    failures_are_distinguished,
    a_cut_is_no_end,
    closing_hangs_up,
    opaque_fields_come_back,
    a_schema_is_asked_for,
    tools_are_sent_where_offered,
    settings_are_sent,
    calls_run_side_by_side,
)
"""All checks. Leave out those that do not apply, such as `a_refusal_is_no_answer` for a provider without
refusals."""
