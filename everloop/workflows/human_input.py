"""People in a task: publication of its open questions, and signals of operators."""

import contextlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from everloop.workflows import approvals, reporting
from everloop.workflows.contract import names
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.questions import InvalidAnswerError, SubAgentQuestions
from everloop.workflows.contract.tasks import TaskState
from everloop.workflows.scope import TaskScope
from everloop.workflows.state import Phase, TaskRunState


class QuestionPublisher:
    """The only publisher of questions: it keeps the published questions equal to the open ones.

    Questions of the task's own calls and of sub-agents are treated alike.
    """

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope
        self._state = scope.state
        self._published = scope.state.status.questions
        self._is_busy = False

    @property
    def is_up_to_date(self) -> bool:
        """Whether all open questions are published, and sub-agents have their answers."""
        return not (self._is_busy or self._has_news)

    async def keep_published(self, call_begins: Callable[[], bool]) -> None:
        """Publish open questions, and pass answers to sub-agents, until it is cancelled.

        The end of all questions is published by the call that begins now, if there is one (`go_on`).
        """

        def has_work() -> bool:
            return self._has_news and not (self._is_over and call_begins())

        self._is_busy = False
        while True:
            await workflow.wait_condition(has_work)
            self._is_busy = True
            await self._hand_down()
            if not self._is_published:
                await self._publish()
            if self._published != self._state.open_questions:
                await self._signal_parent()
            self._is_busy = False

    def go_on(self) -> None:
        """Queue the end of all questions for the next call, unless it is published."""
        if self._is_over:
            reporting.enter(self._state, Phase.TOOLS)
            reporting.working(self._state, received=self._state.take_unpublished())
            reporting.index(self._state, TaskState.WORKING)

    @property
    def _has_news(self) -> bool:
        state = self._state
        return not self._is_published or bool(state.relayed) or self._published != state.open_questions

    @property
    def _is_published(self) -> bool:
        """Whether the last status names exactly the open questions."""
        return self._state.status.questions == self._state.open_questions

    @property
    def _is_over(self) -> bool:
        """Whether the last status names questions, and no question is open."""
        return not self._is_published and not self._state.questions

    async def _hand_down(self) -> None:
        state = self._state
        for call_id, answers in list(state.relayed.items()):
            child = state.asked_agents.get(call_id)
            for answer in tuple(answers):
                with contextlib.suppress(ApplicationError):  # it has ended meanwhile
                    if child:
                        handle = workflow.get_external_workflow_handle(child)
                        await handle.signal(names.PEOPLE_ANSWER, answer)
                answers.remove(answer)
            if not answers:
                state.relayed.pop(call_id, None)

    async def _publish(self) -> None:
        """Publish the open questions, or that the task works again; then their timeouts begin."""
        state = self._state
        if not state.questions:
            self.go_on()
            await reporting.publish(self._scope, "goes on")
            return
        published = list(state.questions)
        reporting.enter(state, Phase.WAITING)
        approvals.date(state.questions, workflow.now())
        questions = state.open_questions
        message = approvals.question_message(str(workflow.uuid4()), questions)
        status = approvals.waiting_state(questions)
        state.change_status(status, workflow.now(), message=message, received=state.take_unpublished())
        reporting.index(state, status)
        reporting.update_details(state)
        count = len(questions)
        await reporting.publish(self._scope, f"waits for {count} answer{'s' if count > 1 else ''}")
        approvals.set_deadlines(published, workflow.now())

    async def _signal_parent(self) -> None:
        """Send the open questions to the parent task, whose client answers them."""
        info, self._published = workflow.info(), self._state.open_questions
        if info.parent is None:
            return
        message = SubAgentQuestions(task_id=info.workflow_id, questions=self._published)
        with contextlib.suppress(ApplicationError):  # it has ended, and cancels this task
            parent = workflow.get_external_workflow_handle(info.parent.workflow_id)
            await parent.signal(names.SUB_AGENT_ASKS, message)


# Signals that operators send by hand: the details of the task have the effect of each, or why it had none.
#
# Temporal accepts a signal of any name with any input, and returns nothing to its sender.

Input = TypeVar("Input", bound=Wire)

OPERATOR_SIGNALS = {
    "approve": "Answer the question of a call. The details of the task show the input, ready to be pasted.",
    "skip_call": "End a call that hangs or waits, and go on. The model reads the note.",
    "resume": "Go on after a failure that the task waits with. No input.",
    "note": "Keep a note of what was done to the task. It changes nothing, and no model reads it.",
}
"""Signals of operators, as the Temporal UI lists them."""

INTERNAL = "Internal: tasks send it to each other. Not for operators."
UNKNOWN = "Any other name changes nothing; the details of the task say so."


class RefusedSignalError(ValueError):
    """A signal without effect; the message has the reason, and the expected signal."""


@contextmanager
def noting(state: TaskRunState, name: str) -> Generator[None]:
    """Record the effect of a signal: `state.last_signal` is set inside, or the reason that it has none."""
    try:
        yield
    except (RefusedSignalError, InvalidAnswerError) as error:
        workflow.logger.warning("signal refused; the details of the task say why")
        state.last_signal = f"`{_as_code(name)}` was refused: {error}"
    reporting.update_details(state)


def read(shape: type[Input], inputs: Sequence[object], example: str) -> Input:
    """Return the one input of a signal.

    Handlers have `*inputs: object`: with other parameters the SDK drops mismatched input without a log
    line, or fails the workflow task again and again.

    Raises:
        RefusedSignalError: there is no input, there are several, or it has another shape than `example`.
    """
    if len(inputs) != 1:
        problem = f"it had {len(inputs)} inputs" if inputs else "it had no input"
        raise RefusedSignalError(f"{problem}; give it {example}")
    if isinstance(inputs[0], RawValue):
        raise RefusedSignalError(f"its input is not JSON; give it {example}")
    try:
        return shape.model_validate(inputs[0])
    except ValidationError as error:
        problems = "; ".join(_located(each["loc"], each["msg"]) for each in error.errors(include_input=False))
        raise RefusedSignalError(f"its input does not fit: {problems}; give it {example}") from None


def unknown(name: str) -> RefusedSignalError:
    """Return the error for a signal without a handler."""
    near = get_close_matches(name.lower(), OPERATOR_SIGNALS, n=1)
    meant = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(map(_code, OPERATOR_SIGNALS))}"
    return RefusedSignalError(f"there is no such signal; {meant}")


def _located(where: tuple[int | str, ...], problem: str) -> str:
    field = ".".join(map(str, where))
    return f"{field}: {problem}" if field else problem


def _code(name: str) -> str:
    return f"`{name}`"


def _as_code(name: str) -> str:
    """Quote a name, which may hold any text, so that it stays on its line and in its quotes."""
    return " ".join(name.replace("`", "'").split())[:100]
