"""The checks of models: a correct one passes, one with a single mistake fails."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from everloop.models import conformance
from everloop.models.conformance import (
    BUSY_FOR,
    MODEL_CHECKS,
    Check,
    NotConformingError,
    a_cut_is_no_end,
    a_refusal_is_no_answer,
    a_schema_is_asked_for,
    arguments_are_whole,
    calls_run_side_by_side,
    closing_hangs_up,
    failures_are_distinguished,
    opaque_fields_come_back,
    parallel_calls_have_numbers,
    reasons_come_through,
    settings_are_sent,
    text_comes_in_pieces,
    the_end_comes_last,
    thought_comes_before_the_text,
    tools_are_sent_where_offered,
    usage_is_counted,
)
from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    Model,
    ModelBusyError,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    Opaque,
    PromptTooLongError,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
)
from everloop.workflows.contract.agent_settings import ModelSettings
from tests.support.fakes.models import PlayedHarness


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_a_model_that_does_all_passes(check: Check) -> None:
    """No check requires more than the interface promises."""
    await check(PlayedHarness())


class Bent(Model):
    """Differs in one way from the model that it wraps."""

    def __init__(
        self,
        model: Model,
        *,
        request: Callable[[ModelRequest], ModelRequest] = lambda request: request,
        deltas: Callable[[list[Delta]], Sequence[Delta]] | None = None,
        error: Callable[[ModelError], Sequence[Delta]] | None = None,
    ) -> None:
        self._model, self._request, self._deltas, self._error = model, request, deltas, error

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        source = self._model.stream(self._request(request), model)
        try:
            if self._deltas:
                for delta in self._deltas([each async for each in source]):
                    yield delta
            else:
                async for delta in source:
                    yield delta
        except ModelError as error:
            if not self._error:
                raise
            for delta in self._error(error):
                yield delta


def end(**fields: object) -> Callable[[list[Delta]], Sequence[Delta]]:
    """Return a change to the end of a reply."""
    return lambda deltas: [*deltas[:-1], replace(deltas[-1], **fields)]


def each(change: Callable[[Delta], Delta]) -> Callable[[list[Delta]], Sequence[Delta]]:
    """Return a change to each delta."""
    return lambda deltas: [change(delta) for delta in deltas]


def otherwise(wrong: ModelError) -> Callable[[Model], Model]:
    """Return a change of a model's errors."""

    def fail(error: ModelError) -> Sequence[Delta]:
        raise wrong

    return partial(Bent, error=fail)


def joined(deltas: list[Delta]) -> list[Delta]:
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    return [TextDelta(text), *(delta for delta in deltas if not isinstance(delta, TextDelta))]


def thoughts_last(deltas: list[Delta]) -> list[Delta]:
    return sorted(deltas, key=lambda delta: (isinstance(delta, Ended), isinstance(delta, ThoughtDelta)))


def thought_in_text(delta: Delta) -> Delta:
    return TextDelta(delta.text) if isinstance(delta, ThoughtDelta | RefusalDelta) else delta


def without_numbers(delta: Delta) -> Delta:
    return replace(delta, call=0) if isinstance(delta, CallDelta) else delta


def numbers_from_1(delta: Delta) -> Delta:
    return replace(delta, call=delta.call + 1) if isinstance(delta, CallDelta) else delta


def without_first_arguments(deltas: list[Delta]) -> list[Delta]:
    first = next(d for d in deltas if isinstance(d, CallDelta) and d.arguments)
    return [delta for delta in deltas if delta is not first]


def without_opaque(request: ModelRequest) -> ModelRequest:
    plain = [{"role": message["role"], "content": message["content"]} for message in request.messages]
    return replace(request, messages=tuple(plain))


def opaque_as_text(deltas: list[Delta]) -> list[Delta]:
    return [*(TextDelta(str(d.opaque)) for d in deltas if isinstance(d, Ended)), *deltas]


class Hoarder(Model):
    """Waits for the whole reply, whether or not there is a listener."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._held: list[AsyncGenerator[Delta]] = []

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        source = self._model.stream(request, model)
        self._held.append(source)
        while (delta := await anext(source, None)) is not None:
            yield delta


class Shared(Model):
    """Stores the reply in progress in itself."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        self._source = self._model.stream(request, model)
        while (delta := await anext(self._source, None)) is not None:
            yield delta


class Stubborn(Model):
    """Sends the tools and the settings of its first request with each."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._first: ModelRequest | None = None

    def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        self._first = first = self._first or request
        return self._model.stream(replace(first, messages=request.messages), model)


QUOTING = ModelBusyError("it is busy: Hi", retry_after=BUSY_FOR)
WRONG: dict[str, tuple[Check, Callable[[Model], Model]]] = {
    "the text at once": (text_comes_in_pieces, partial(Bent, deltas=joined)),
    "another text": (text_comes_in_pieces, partial(Bent, deltas=lambda deltas: deltas[1:])),
    "thought behind the text": (thought_comes_before_the_text, partial(Bent, deltas=thoughts_last)),
    "thought in the text": (thought_comes_before_the_text, partial(Bent, deltas=each(thought_in_text))),
    "all calls are one": (parallel_calls_have_numbers, partial(Bent, deltas=each(without_numbers))),
    "calls from 1": (parallel_calls_have_numbers, partial(Bent, deltas=each(numbers_from_1))),
    "a piece of the arguments is lost": (arguments_are_whole, partial(Bent, deltas=without_first_arguments)),
    "no end": (the_end_comes_last, partial(Bent, deltas=lambda deltas: deltas[:-1])),
    "two ends": (the_end_comes_last, partial(Bent, deltas=lambda deltas: [*deltas, deltas[-1]])),
    "nothing is counted": (usage_is_counted, partial(Bent, deltas=end(usage=None))),
    "a refusal is the text": (a_refusal_is_no_answer, partial(Bent, deltas=each(thought_in_text))),
    "every end is an ordinary one": (reasons_come_through, partial(Bent, deltas=end(reason="stop"))),
    "all failures are one": (failures_are_distinguished, otherwise(ModelRefusedError("it failed"))),
    "nobody says until when it is busy": (
        failures_are_distinguished,
        otherwise(ModelBusyError("it is busy")),
    ),
    "an error quotes the prompt": (failures_are_distinguished, otherwise(QUOTING)),
    "a cut is an end": (a_cut_is_no_end, partial(Bent, error=lambda _: [Ended("stop")])),
    "a cut is for good": (a_cut_is_no_end, otherwise(PromptTooLongError("it was cut"))),
    "nobody hangs up": (closing_hangs_up, Hoarder),
    "opaque fields are lost on the way in": (
        opaque_fields_come_back,
        partial(Bent, deltas=end(opaque=Opaque())),
    ),
    "opaque fields are lost on the way back": (
        opaque_fields_come_back,
        partial(Bent, request=without_opaque),
    ),
    "opaque fields are shown": (opaque_fields_come_back, partial(Bent, deltas=opaque_as_text)),
    "no schema is sent": (a_schema_is_asked_for, partial(Bent, request=partial(replace, output=None))),
    "no tool is sent": (tools_are_sent_where_offered, partial(Bent, request=partial(replace, tools=()))),
    "old tools are sent": (tools_are_sent_where_offered, Stubborn),
    "no setting is sent": (
        settings_are_sent,
        partial(Bent, request=partial(replace, settings=ModelSettings())),
    ),
    "old settings are sent": (settings_are_sent, Stubborn),
    "replies mix": (calls_run_side_by_side, Shared),
}


@pytest.mark.parametrize(("check", "bent"), WRONG.values(), ids=WRONG)
async def test_a_model_that_does_something_wrong_fails(
    check: Check, bent: Callable[[Model], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check finds its mistake."""
    monkeypatch.setattr(conformance, "_TIMEOUT", 0.2)  # for a reply that never comes
    with pytest.raises((NotConformingError, TimeoutError)):
        await check(PlayedHarness(bent))


def test_each_check_can_fail() -> None:
    """For each check there is a wrong model that fails it."""
    assert {check for check, _ in WRONG.values()} == set(MODEL_CHECKS)
