"""What people have said to a tool call so far, and what follows from it."""

from everloop.activities.tool_messages import not_repeated, rejected
from everloop.activities.tool_questions import approval_id
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.questions import Answer, Purpose, QuestionKind


def is_approved(call: RunToolInput, mark: str = "") -> bool:
    """Whether somebody has approved this very call; a yes to the tool that it stands in for is none.

    Nor is a yes to other arguments, where plugins change them (`VettedCall.mark`).
    """
    asked = {approval_id(call.call, count, mark) for count in range(len(call.answers))}
    return any(answer.approved and answer.question_id in asked for answer in _answers(call, "approval"))


def inputs(call: RunToolInput) -> tuple[Answer, ...]:
    """Return the answers to what the tool itself has asked."""
    return _answers(call, "input")


def ending(call: RunToolInput) -> ToolMessage | None:
    """Return the result of a call that people do not want to go on; None if it goes on."""
    answer = call.answers[-1] if call.answers else None
    if answer is None or answer.tool != call.call.name or answer.approved or _is_plain_no(answer):
        return None
    if answer.purpose == "outcome":
        return not_repeated(call.call, answer)
    return rejected(call.call, answer)


def _answers(call: RunToolInput, purpose: Purpose) -> tuple[Answer, ...]:
    mine = (answer for answer in call.answers if answer.tool == call.call.name)
    return tuple(answer for answer in mine if answer.purpose == purpose)


def _is_plain_no(answer: Answer) -> bool:
    """Whether "no" is what the tool wanted to know, rather than the end of the call."""
    wants_yes_or_no = answer.purpose == "input" and answer.kind is QuestionKind.CONFIRMATION
    return wants_yes_or_no and answer.value is False
