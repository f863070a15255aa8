"""The checks of models: one that does all passes, one that does one thing wrong does not."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

import pytest

from everloop.models import conformance
from everloop.models.conformance import MODEL_CHECKS, Check, NotConformingError
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
from everloop.workflows.contract.settings import ModelSettings
from tests.support.fakes.models import PlayedStage


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_a_model_that_does_all_passes(check: Check) -> None:
    """No check wants more than the interface promises."""
    await check(PlayedStage())


class Bent(Model):
    """Does one thing in another way than the model that it stands for."""

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
    """Return what changes the end of a reply."""
    return lambda deltas: [*deltas[:-1], replace(deltas[-1], **fields)]


def each(change: Callable[[Delta], Delta]) -> Callable[[list[Delta]], Sequence[Delta]]:
    """Return what changes each delta."""
    return lambda deltas: [change(delta) for delta in deltas]


def otherwise(wrong: ModelError) -> Callable[[ModelError], Sequence[Delta]]:
    """Return what raises another error."""

    def fail(error: ModelError) -> Sequence[Delta]:
        raise wrong

    return fail


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
    """Waits for the whole reply, whether or not anybody listens."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._held: list[AsyncGenerator[Delta]] = []

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        source = self._model.stream(request, model)
        self._held.append(source)
        while (delta := await anext(source, None)) is not None:
            yield delta


class Shared(Model):
    """Keeps the reply that it is giving in itself."""

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


WRONG: dict[str, tuple[Check, Callable[[Model], Model]]] = {
    "the text at once": (conformance.text_comes_in_pieces, lambda m: Bent(m, deltas=joined)),
    "another text": (
        conformance.text_comes_in_pieces,
        lambda m: Bent(m, deltas=lambda deltas: deltas[1:]),
    ),
    "thought behind the text": (
        conformance.thought_comes_before_the_text,
        lambda m: Bent(m, deltas=thoughts_last),
    ),
    "thought in the text": (
        conformance.thought_comes_before_the_text,
        lambda m: Bent(m, deltas=each(thought_in_text)),
    ),
    "all calls are one": (
        conformance.parallel_calls_have_numbers,
        lambda m: Bent(m, deltas=each(without_numbers)),
    ),
    "calls from 1": (
        conformance.parallel_calls_have_numbers,
        lambda m: Bent(m, deltas=each(numbers_from_1)),
    ),
    "a piece of the arguments is lost": (
        conformance.arguments_are_whole,
        lambda m: Bent(m, deltas=without_first_arguments),
    ),
    "no end": (conformance.the_end_comes_last, lambda m: Bent(m, deltas=lambda deltas: deltas[:-1])),
    "two ends": (
        conformance.the_end_comes_last,
        lambda m: Bent(m, deltas=lambda deltas: [*deltas, deltas[-1]]),
    ),
    "nothing is counted": (conformance.usage_is_counted, lambda m: Bent(m, deltas=end(usage=None))),
    "a refusal is the text": (
        conformance.a_refusal_is_no_answer,
        lambda m: Bent(m, deltas=each(thought_in_text)),
    ),
    "every end is an ordinary one": (
        conformance.reasons_come_through,
        lambda m: Bent(m, deltas=end(reason="stop")),
    ),
    "all failures are one": (
        conformance.failures_are_distinguished,
        lambda m: Bent(m, error=otherwise(ModelRefusedError("it failed"))),
    ),
    "nobody says until when it is busy": (
        conformance.failures_are_distinguished,
        lambda m: Bent(m, error=otherwise(ModelBusyError("it is busy"))),
    ),
    "an error quotes the prompt": (
        conformance.failures_are_distinguished,
        lambda m: Bent(
            m, error=otherwise(ModelBusyError("it is busy: Hi", retry_after=conformance.BUSY_FOR))
        ),
    ),
    "a cut is an end": (
        conformance.a_cut_is_no_end,
        lambda m: Bent(m, error=lambda _: [Ended("stop")]),
    ),
    "a cut is for good": (
        conformance.a_cut_is_no_end,
        lambda m: Bent(m, error=otherwise(PromptTooLongError("it was cut"))),
    ),
    "nobody hangs up": (conformance.closing_hangs_up, Hoarder),
    "opaque fields are lost on the way in": (
        conformance.opaque_fields_come_back,
        lambda m: Bent(m, deltas=end(opaque=Opaque())),
    ),
    "opaque fields are lost on the way back": (
        conformance.opaque_fields_come_back,
        lambda m: Bent(m, request=without_opaque),
    ),
    "opaque fields are shown": (
        conformance.opaque_fields_come_back,
        lambda m: Bent(m, deltas=opaque_as_text),
    ),
    "no schema is sent": (
        conformance.a_schema_is_asked_for,
        lambda m: Bent(m, request=lambda request: replace(request, output=None)),
    ),
    "no tool is sent": (
        conformance.tools_are_sent_where_offered,
        lambda m: Bent(m, request=lambda request: replace(request, tools=())),
    ),
    "old tools are sent": (conformance.tools_are_sent_where_offered, Stubborn),
    "no setting is sent": (
        conformance.settings_are_sent,
        lambda m: Bent(m, request=lambda request: replace(request, settings=ModelSettings())),
    ),
    "old settings are sent": (conformance.settings_are_sent, Stubborn),
    "replies mix": (conformance.calls_run_side_by_side, Shared),
}


@pytest.mark.parametrize(("check", "bent"), WRONG.values(), ids=WRONG)
async def test_a_model_that_does_something_wrong_fails(
    check: Check, bent: Callable[[Model], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check sees what it is there for."""
    monkeypatch.setattr(conformance, "_PATIENCE", 0.2)  # for what would never come
    with pytest.raises((NotConformingError, TimeoutError)):
        await check(PlayedStage(bent))


def test_each_check_can_fail() -> None:
    """No check is there that no wrong model fails."""
    assert {check for check, _ in WRONG.values()} == set(MODEL_CHECKS)
