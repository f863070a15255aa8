"""Signals that operators send by hand: the details of the task say what each did, or why it did nothing.

Temporal takes a signal of any name with any input, and tells its sender nothing.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue

from everloop.workflows import announce
from everloop.workflows.contract.questions import InvalidAnswerError
from everloop.workflows.contract.wire import Wire
from everloop.workflows.state import TaskRunState

Input = TypeVar("Input", bound=Wire)

OPERATOR_SIGNALS = {
    "approve": "Answer the question of a call. The details of the task show the input, ready to be pasted.",
    "skip_call": "End a call that hangs or waits, and go on. The model reads the note.",
    "resume": "Go on after a failure that the task waits with. No input.",
}
"""What operators may send, as the Temporal UI lists it."""

INTERNAL = "Internal: tasks send it to each other. Not for operators."
UNKNOWN = "Any other name changes nothing; the details of the task say so."


class RefusedSignalError(ValueError):
    """A signal that changes nothing; the message says why, and what to send instead."""


@contextmanager
def noting(state: TaskRunState, name: str) -> Generator[None]:
    """Show what a signal did: the body says so in `state.last_signal`, or raises why it does nothing."""
    try:
        yield
    except (RefusedSignalError, InvalidAnswerError) as error:
        workflow.logger.warning("signal refused; the details of the task say why")
        state.last_signal = f"`{_as_code(name)}` was refused: {error}"
    announce.show(state)


def read(shape: type[Input], inputs: Sequence[object], example: str) -> Input:
    """Return the one input of a signal.

    Handlers take `*inputs: object`: with other parameters the SDK drops what does not fit, without a word, or
    fails the workflow task again and again.

    Raises:
        RefusedSignalError: there is none, there are several, or it has another shape than `example`.
    """
    if len(inputs) != 1:
        problem = f"it had {len(inputs)} inputs" if inputs else "it had no input"
        raise RefusedSignalError(f"{problem}; give it {example}")
    if isinstance(inputs[0], RawValue):
        raise RefusedSignalError(f"its input is not JSON; give it {example}")
    try:
        return shape.model_validate(inputs[0])
    except ValidationError as error:
        flaws = "; ".join(_flaw(each["loc"], each["msg"]) for each in error.errors(include_input=False))
        raise RefusedSignalError(f"its input does not fit: {flaws}; give it {example}") from None


def unknown(name: str) -> RefusedSignalError:
    """Return why a signal does nothing that has no handler."""
    near = get_close_matches(name.lower(), OPERATOR_SIGNALS, n=1)
    meant = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(map(_code, OPERATOR_SIGNALS))}"
    return RefusedSignalError(f"there is no such signal; {meant}")


def _flaw(where: tuple[int | str, ...], problem: str) -> str:
    field = ".".join(map(str, where))
    return f"{field}: {problem}" if field else problem


def _code(name: str) -> str:
    return f"`{name}`"


def _as_code(name: str) -> str:
    """Keep a name that anybody may have typed on its line and in its quotes."""
    return " ".join(name.replace("`", "'").split())[:100]
