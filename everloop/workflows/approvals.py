"""Calls that wait for people, and their answers. Pure: times and ids are arguments."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import JsonValue

from everloop.workflows.contract.messages import AgentMessage, DataPart, TextPart, ToolCall, UserMessage
from everloop.workflows.contract.parts import with_doubles
from everloop.workflows.contract.questions import (
    APPROVAL,
    Answer,
    ApproveInput,
    ApproverAnswer,
    InvalidAnswerError,
    Question,
    QuestionKind,
    answer_with,
    expected,
    named_question,
    no_answer,
    not_open,
    read_answer,
)
from everloop.workflows.contract.tasks import AgentSpec, TaskInput, TaskState
from everloop.workflows.state import QuestionEntry, TaskRunState

PLACEHOLDER = "…"
"""Placeholder for the operator's input in an example signal."""


def ready_calls(state: TaskRunState, agent: AgentSpec) -> list[ToolCall]:
    """Return the pending calls that wait neither for people nor for a serial call before them."""
    waiting = waiting_calls(state, agent)
    return [call for call in state.pending if call.id not in waiting]


def waiting_calls(state: TaskRunState, agent: AgentSpec) -> set[str]:
    """Return the ids of the other pending calls. It runs for each call of a reply, so it has to be cheap."""
    tools = {**state.listed_tools, **agent.tools}
    serial = {name for name, tool in tools.items() if tool.serial}
    in_turn = [call.id for call in state.pending if call.name in serial] if serial else []
    asking = {entry.question.call.id for entry in state.questions if not entry.asked_by}
    return asking | {*in_turn[1:]}


def find_answer(state: TaskRunState, message: UserMessage) -> Answer | None:
    """Return the answer in a message; None for an ordinary message.

    The gateway sets the answered question from the view of the task when the message arrived. A message
    that was written before the question was visible does not answer it, whatever its text.

    Raises:
        InvalidAnswerError: it answers a question that is not open, or its answer is invalid.
    """
    questions = state.open_questions
    name = message.answers or named_question(message)
    if not message.answers and name not in state.asked:
        return None
    question = _open_question(questions, message.answers)
    if question is None:
        raise InvalidAnswerError(not_open(questions, name or ""))
    if not question.is_for_owner:
        raise InvalidAnswerError(f"question {question.id!r}: {expected(question)}")
    return read_answer(question, message)


def approvers_answer(state: TaskRunState, task: TaskInput, given: ApproverAnswer) -> Answer:
    """Return the answer of an approver in the owner's place.

    Raises:
        InvalidAnswerError: no question is open for them, or they began the task themselves.
    """
    question = _open_question(state.open_questions, given.question_id)
    if question is None or question.approvers != given.scope:
        raise InvalidAnswerError(
            f"no question {given.question_id!r} is open any more for those with the scope {given.scope}; "
            "somebody else has answered it, or its call has ended"
        )
    asker = task.identity
    if asker and (task.owner, asker.scheme, asker.subject) == (given.owner, given.scheme, given.subject):
        raise InvalidAnswerError("these credentials began the task; somebody else has to answer")
    answer = answer_with(question, given.approved, by="approver", note=given.note)
    return answer.model_copy(update={"approver": given.approver})


def approval_message(message_id: str, given: ApproverAnswer, at: datetime) -> AgentMessage:
    """Return the message about an approver's answer for the history of the task."""
    verdict = "approved" if given.approved else "rejected"
    text = f"{verdict} by {given.approver} ({given.scope})" + (f": {given.note}" if given.note else "")
    about: dict[str, JsonValue] = {
        "question": given.question_id,
        "approved": given.approved,
        "by": given.approver,
        "scope": given.scope,
        "at": at.isoformat(),
    }
    return AgentMessage(message_id=message_id, parts=(TextPart(text=text),), metadata={APPROVAL: about})


def _open_question(questions: Sequence[Question], question_id: str) -> Question | None:
    return next((question for question in questions if question.id == question_id), None)


def decide(state: TaskRunState, approval: ApproveInput) -> Answer:
    """Return the answer in an operator's signal.

    Raises:
        InvalidAnswerError: no such call waits, several wait and the signal names none of them, or
            the answer is invalid.
    """
    if not approval.call_id and len(state.questions) == 1:
        return _decide(state.open_questions[0], approval)
    by_call = {question.call.id: question for question in reversed(state.open_questions)}
    by_id = {question.id: question for question in state.open_questions}
    if question := by_id.get(approval.call_id) or by_call.get(approval.call_id):
        return _decide(question, approval)
    waiting = ", ".join(question.call.id for question in state.open_questions) or "none"
    problem = f"no call {approval.call_id!r} waits" if approval.call_id else "call_id is missing"
    raise InvalidAnswerError(f"{problem}; waiting: {waiting}")


def find_pending(state: TaskRunState, call_id: str) -> ToolCall:
    """Return the pending call with this id or question id; for an empty id the only pending call.

    Raises:
        InvalidAnswerError: it does not exist, or there are several.
    """
    asking = {question.id: question.call.id for question in state.open_questions}
    found = [call for call in state.pending if call.id == asking.get(call_id, call_id) or not call_id]
    if len(found) == 1:
        return found[0]
    pending = ", ".join(f"{call.id} ({call.name})" for call in state.pending) or "none"
    problem = f"no call {call_id!r} is pending" if call_id else f"{len(found)} calls are pending"
    raise InvalidAnswerError(f"{problem}; name one in `call_id`. Pending: {pending}")


def skip_signal(call: ToolCall) -> str:
    """Return the JSON of the `skip_call` signal that ends a call."""
    return json.dumps({"call_id": call.id, "note": ""})


def set_deadlines(questions: Sequence[QuestionEntry], now: datetime) -> None:
    """Start the timeouts of the questions that are published now. Sub-agents track their own."""
    for entry in questions:
        if entry.deadline is None and entry.question.timeout is not None and not entry.asked_by:
            entry.deadline = now + timedelta(seconds=entry.question.timeout)


def date(questions: Sequence[QuestionEntry], now: datetime) -> None:
    """Record the time of publication for questions to approvers."""
    for entry in questions:
        if entry.question.asked_at is None and not entry.question.is_for_owner:
            entry.question = entry.question.model_copy(update={"asked_at": now})


def seconds_left(state: TaskRunState, call: ToolCall, now: datetime) -> float | None:
    """Return the seconds until the questions of a call time out; None without a running timeout."""
    deadlines = [entry.deadline for entry in _questions_of(state, call) if entry.deadline]
    return max(0.0, (min(deadlines) - now).total_seconds()) if deadlines else None


def is_timed(state: TaskRunState, call: ToolCall) -> bool:
    """Return True if the timeout of a question of the call is running."""
    return any(entry.deadline for entry in _questions_of(state, call))


def expired(state: TaskRunState, call: ToolCall, now: datetime) -> list[Answer]:
    """Return the timeout answers of a call's expired questions."""
    entries = _questions_of(state, call)
    return [_default(entry.question) for entry in entries if entry.deadline and entry.deadline <= now]


def waiting_state(questions: Sequence[Question]) -> TaskState:
    """Return the state of a task that waits for these answers."""
    wants_secret = any(question.kind is QuestionKind.AUTH for question in questions)
    return TaskState.AUTH_REQUIRED if wants_secret else TaskState.INPUT_REQUIRED


def question_message(message_id: str, questions: Sequence[Question]) -> AgentMessage:
    """Return the message to the client: for people the oldest question as text, for programs all as data."""
    for_owner = [question for question in questions if question.is_for_owner]
    others = [question for question in questions if not question.is_for_owner]
    text = "\n\n".join([*_oldest(for_owner), *(f"{each.text}\n({expected(each)})" for each in others)])
    described: list[JsonValue] = [_describe(question) for question in questions]
    parts = (TextPart(text=text), DataPart(data={"questions": described}))
    return AgentMessage(message_id=message_id, parts=parts)


def _oldest(questions: Sequence[Question]) -> list[str]:
    """Return the current question, and the number of those behind it; empty without one."""
    if not questions:
        return []
    text = f"{questions[0].text}\n({expected(questions[0])})"
    follow = len(questions) - 1
    if not follow:
        return [text]
    return [f"1 of {len(questions)}: {text}\n{follow} more follow{'' if follow > 1 else 's'}."]


def example_signal(state: TaskRunState) -> str:
    """Return an input of the `approve` signal for the first open question, or a generic one."""
    questions = state.open_questions
    return approve_signal(questions[0]) if questions else '{"call_id": "…", "approved": true}'


def approve_signal(question: Question) -> str:
    """Return the JSON of the `approve` signal that answers a question."""
    signal: dict[str, JsonValue] = {"call_id": question.id, "approved": True, "note": ""}
    if question.kind is QuestionKind.AUTH:
        signal["approved"] = False  # a signal must not hold a secret: the operator can only reject
    elif question.kind is not QuestionKind.CONFIRMATION:
        signal["value"] = question.options[0] if question.options else PLACEHOLDER
    return json.dumps(signal, ensure_ascii=False)


def _questions_of(state: TaskRunState, call: ToolCall) -> list[QuestionEntry]:
    """Return the questions of a call, without those of its sub-agent."""
    return [entry for entry in state.questions if not entry.asked_by and entry.question.call.id == call.id]


def _decide(question: Question, approval: ApproveInput) -> Answer:
    if not approval.approved:
        return answer_with(question, {"approved": False}, by="operator", note=approval.note)
    value = True if question.kind is QuestionKind.CONFIRMATION else approval.value
    if value == PLACEHOLDER:
        raise InvalidAnswerError(f'put the answer in place of "{PLACEHOLDER}": {expected(question)}')
    return answer_with(question, value, by="operator", note=approval.note)


def _default(question: Question) -> Answer:
    """Return the timeout answer of a question."""
    if question.default is None:
        return no_answer(question)
    try:
        return answer_with(question, question.default, by="timeout")
    except InvalidAnswerError:
        return no_answer(question)


def _describe(question: Question) -> JsonValue:
    described = question.model_dump(mode="json", exclude={"role", "call"}, exclude_defaults=True)
    if question.json_schema:  # it may have the largest number of 64 bits as a bound
        described["json_schema"] = with_doubles(described["json_schema"])
    call = question.call
    return {**described, "id": question.id, "tool": call.name, "arguments": call.arguments}
