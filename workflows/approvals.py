"""Which calls wait for people, and what counts as their answer. Pure: times and ids are arguments."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import JsonValue

from workflows.contract.messages import AgentMessage, DataPart, TextPart, ToolCall, UserMessage
from workflows.contract.questions import (
    WITHHELD,
    Answer,
    Approval,
    InvalidAnswerError,
    Question,
    QuestionKind,
    answer_with,
    expected,
    match_question,
    named_question,
    names_question_for_sure,
    no_answer,
    read_answer,
)
from workflows.contract.tasks import AgentSpec, TaskState, ToolSpec
from workflows.state import OpenQuestion, Phase, TaskRunState

PLACEHOLDER = "…"
"""Stands in a signal that is shown for whatever the operator has to say."""


def ready_calls(state: TaskRunState, agent: AgentSpec) -> list[ToolCall]:
    """Return the pending calls that wait neither for people nor for a serial call before them."""
    tools = {**state.listed_tools, **agent.tools}
    serial = [call for call in state.pending if tools.get(call.name, ToolSpec()).serial]
    asking = {entry.question.call.id for entry in state.questions if not entry.asked_by}
    waiting = asking | {call.id for call in serial[1:]}
    return [call for call in state.pending if call.id not in waiting]


def find_answer(state: TaskRunState, message: UserMessage) -> Answer | None:
    """Return the answer that a message gives; None if it is an ordinary message.

    While other calls run, only a message that names its question, or brings a secret, is an answer.

    Raises:
        InvalidAnswerError: the task waits for an answer, and this is none; or it answers no open question.
    """
    is_parked = bool(state.questions) and state.phase is Phase.WAITING
    is_named = names_question_for_sure(message) or named_question(message) in state.asked
    if not is_parked and not is_named and not message.metadata.get(WITHHELD):
        return None
    return read_answer(match_question(state.open_questions, message), message)


def decide(state: TaskRunState, approval: Approval | None) -> Answer:
    """Return the answer that an operator's signal gives.

    Raises:
        InvalidAnswerError: it had no input, no such call waits, or this is no answer to its question.
    """
    if approval is None:
        raise InvalidAnswerError('the signal had no input; give it {"call_id": "…", "approved": true}')
    by_call = {question.call.id: question for question in reversed(state.open_questions)}
    by_id = {question.id: question for question in state.open_questions}
    if question := by_id.get(approval.call_id) or by_call.get(approval.call_id):
        return _decide(question, approval)
    waiting = ", ".join(question.call.id for question in state.open_questions) or "none"
    raise InvalidAnswerError(f"no call {approval.call_id!r} waits; waiting: {waiting}")


def set_deadlines(questions: Sequence[OpenQuestion], now: datetime) -> None:
    """Let the time of the questions that are shown now begin to run; sub-agents keep that of theirs."""
    for entry in questions:
        if entry.deadline is None and entry.question.timeout is not None and not entry.asked_by:
            entry.deadline = now + timedelta(seconds=entry.question.timeout)


def expired(questions: Sequence[OpenQuestion], now: datetime) -> list[Answer]:
    """Return the answers of the questions whose time is up."""
    return [_default(entry.question) for entry in questions if entry.deadline and entry.deadline <= now]


def seconds_to_deadline(questions: Sequence[OpenQuestion], now: datetime) -> float | None:
    """Return the seconds until the first question runs out of time; None if none does."""
    deadlines = [entry.deadline for entry in questions if entry.deadline]
    return max(0.0, (min(deadlines) - now).total_seconds()) if deadlines else None


def waiting_state(questions: Sequence[Question]) -> TaskState:
    """Return the state of a task that waits for these answers."""
    wants_secret = any(question.kind is QuestionKind.AUTH for question in questions)
    return TaskState.AUTH_REQUIRED if wants_secret else TaskState.INPUT_REQUIRED


def question_message(message_id: str, questions: Sequence[Question]) -> AgentMessage:
    """Return what the client is told: for people as text, for programs as data."""
    text = "\n\n".join(f"{question.text}\n({expected(question)})" for question in questions)
    described: list[JsonValue] = [_describe(question) for question in questions]
    parts = (TextPart(text=text), DataPart(data={"questions": described}))
    return AgentMessage(message_id=message_id, parts=parts)


def approve_signal(question: Question) -> str:
    """Return the JSON of the `approve` signal that answers a question."""
    signal: dict[str, JsonValue] = {"call_id": question.id, "approved": True, "note": ""}
    if question.kind is QuestionKind.AUTH:
        signal["approved"] = False  # a secret has no place in a signal: the operator can only reject
    elif question.kind is not QuestionKind.CONFIRMATION:
        signal["value"] = question.options[0] if question.options else PLACEHOLDER
    return json.dumps(signal, ensure_ascii=False)


def _decide(question: Question, approval: Approval) -> Answer:
    if not approval.approved:
        return answer_with(question, {"approved": False}, by="operator", note=approval.note)
    value = True if question.kind is QuestionKind.CONFIRMATION else approval.value
    if value == PLACEHOLDER:
        raise InvalidAnswerError(f'put the answer in place of "{PLACEHOLDER}": {expected(question)}')
    return answer_with(question, value, by="operator", note=approval.note)


def _default(question: Question) -> Answer:
    """Return what a question comes to that nobody answered in time."""
    if question.default is None:
        return no_answer(question)
    try:
        return answer_with(question, question.default, by="timeout")
    except InvalidAnswerError:
        return no_answer(question)


def _describe(question: Question) -> JsonValue:
    described = question.model_dump(mode="json", exclude={"role", "call"}, exclude_defaults=True)
    call = question.call
    return {**described, "id": question.id, "tool": call.name, "arguments": call.arguments}
