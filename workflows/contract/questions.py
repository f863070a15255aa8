"""Questions that a task asks people, and what counts as an answer. Pure: workflow and gateway share it."""

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from pydantic import JsonValue

from workflows.contract.messages import DataPart, ToolCall, UserMessage, text_of
from workflows.contract.wire import Wire

QUESTION = "question"
"""Key in the metadata of a message, or in its data part, that names the question it answers."""

WITHHELD = "withheld"
"""Metadata of a message whose secret the gateway took out and put where only tools find it."""

_YES_OR_NO = re.compile(
    r"\s*(?:(?P<yes>yes|y|ok|okay|approve|approved|confirm|confirmed)"
    r"|(?P<no>no|n|reject|rejected|deny|denied|decline|declined))\b[\s,.:;!-]*(?P<note>.*)",
    re.IGNORECASE | re.DOTALL,
)


class QuestionKind(StrEnum):
    """What kind of answer is wanted."""

    CONFIRMATION = "confirmation"
    """Yes or no."""
    CLARIFICATION = "clarification"
    """Free text."""
    SELECTION = "selection"
    """One of `options`."""
    DATA = "data"
    """A value that fits `json_schema`."""
    AUTH = "auth"
    """A secret, which only the tool gets to see."""


Purpose = Literal["input", "approval", "outcome"]
"""Why a call waits: "input" where the tool asks, "approval" before it runs, "outcome" where nobody knows
whether it ran."""

AnsweredBy = Literal["user", "operator", "timeout"]


class Question(Wire):
    """What a tool call waits for. The call is the one that runs after the answer, arguments and all.

    `id` is unique within the task; the first question of a call has the call's id. `timeout` is in seconds
    from when the question is shown, None for no end; then `default` is the answer, or, where that is None,
    the call is rejected. `secret_name` is what the tool calls the secret of an auth question.
    """

    role: Literal["question"] = "question"
    id: str
    kind: QuestionKind
    purpose: Purpose = "input"
    text: str
    call: ToolCall
    options: tuple[str, ...] = ()
    json_schema: dict[str, JsonValue] = {}
    timeout: float | None = None
    default: JsonValue = None
    secret_name: str = ""


class Answer(Wire):
    """What a question came to. `approved` false: somebody said no, or nobody answered in time.

    `value` is the answer: true or false for a confirmation, None for a secret, which is kept elsewhere, and
    for no answer. `kind` and `purpose` are those of the question, `tool` is the one that asked. `message_id`
    is that of the client's message, if one gave the answer. The secret that answers an auth question is what
    that message brought; tools call it `secret_name`.
    """

    question_id: str
    kind: QuestionKind
    purpose: Purpose
    tool: str
    approved: bool = True
    value: JsonValue = None
    note: str = ""
    by: AnsweredBy = "user"
    secret_name: str = ""
    message_id: str = ""


class SubAgentQuestions(Wire):
    """What the sub-agent of a call wants to know now: all of it, or nothing any more."""

    call_id: str
    questions: tuple[Question, ...] = ()


class Approval(Wire):
    """An operator's answer, as the `approve` signal takes it. `value` answers what is no confirmation."""

    call_id: str
    approved: bool
    note: str = ""
    value: JsonValue = None


class InvalidAnswerError(ValueError):
    """What was said is no answer to the question; the message says what is expected."""


def named_question(message: UserMessage) -> str | None:
    """Return the id of the question that a message says it answers."""
    name = message.metadata.get(QUESTION)
    for part in message.parts:
        if name is None and isinstance(part, DataPart) and isinstance(part.data, dict):
            name = part.data.get(QUESTION)
    return name if isinstance(name, str) else None


def names_question_for_sure(message: UserMessage) -> bool:
    """Whether the metadata name a question; in a data part the same word may be content."""
    return isinstance(message.metadata.get(QUESTION), str)


def match_question(questions: Sequence[Question], message: UserMessage) -> Question:
    """Return which of the open questions a message answers: the one it names, or else the only one.

    Raises:
        InvalidAnswerError: it names another one, or none where several are open.
    """
    name = named_question(message)
    if name is None and len(questions) == 1:
        return questions[0]
    for question in questions:
        if question.id == name:
            return question
    is_open = "; ".join(f"{question.id!r}: {expected(question)}" for question in questions) or "none"
    problem = f"no question {name!r} is open" if name else f"{len(questions)} questions are open"
    raise InvalidAnswerError(
        f'{problem}; name one of them in the metadata of the message, {{"{QUESTION}": "…"}}. Open: {is_open}'
    )


def read_answer(question: Question, message: UserMessage) -> Answer:
    """Return the answer that a client's message gives. A JSON schema is not checked here.

    Raises:
        InvalidAnswerError: it does not answer; the message says what is expected.
    """
    data = [part.data for part in message.parts if isinstance(part, DataPart)]
    given = {"message_id": message.message_id}
    if question.kind is QuestionKind.AUTH and message.metadata.get(WITHHELD):
        supplied = {**given, "secret_name": question.secret_name}
        return _answer(question, None, by="user").model_copy(update=supplied)
    value = _without_name(data[0]) if data else text_of(message.parts)
    return answer_with(question, value, by="user").model_copy(update=given)


def answer_with(question: Question, value: JsonValue, *, by: AnsweredBy, note: str = "") -> Answer:
    """Return the answer that a value is: text, or JSON. `{"approved": false, "note": …}` rejects any call.

    Raises:
        InvalidAnswerError: it is no answer to this question.
    """
    if isinstance(value, dict) and value.get("approved") is False:
        return _answer(question, False, by=by, note=_note(value, note), approved=False)
    if question.kind is QuestionKind.CONFIRMATION:
        approved, said = _confirmed(question, value)
        return _answer(question, approved, by=by, note=note or said, approved=approved)
    return _answer(question, _READERS[question.kind](question, value), by=by, note=note)


def no_answer(question: Question) -> Answer:
    """Return what a question comes to that nobody answered in time."""
    return _answer(question, None, by="timeout", note="nobody answered in time", approved=False)


def expected(question: Question) -> str:
    """Say how to answer, in one sentence."""
    match question.kind:
        case QuestionKind.CONFIRMATION:
            return 'answer "yes" or "no", or send the data {"approved": true, "note": "…"}'
        case QuestionKind.SELECTION:
            return f"answer with one of: {', '.join(question.options)}"
        case QuestionKind.DATA:
            schema = json.dumps(question.json_schema, ensure_ascii=False)
            return f"send a data part that fits this JSON schema: {schema}"
        case QuestionKind.AUTH:
            return "send the secret as a text or data part; it is kept out of the task's history"
        case QuestionKind.CLARIFICATION:
            return "answer in a text or data part"


def _answer(
    question: Question, value: JsonValue, *, by: AnsweredBy, note: str = "", approved: bool = True
) -> Answer:
    return Answer(
        question_id=question.id,
        kind=question.kind,
        purpose=question.purpose,
        tool=question.call.name,
        approved=approved,
        value=value,
        note=note,
        by=by,
    )


def _confirmed(question: Question, value: JsonValue) -> tuple[bool, str]:
    """Return whether it is a yes, and what was said with it."""
    if isinstance(value, dict) and value.get("approved") is True:
        return True, _note(value, "")
    if isinstance(value, bool):
        return value, ""
    said = _YES_OR_NO.fullmatch(value) if isinstance(value, str) else None
    if said is None:
        raise InvalidAnswerError(_refusal(question))
    return bool(said["yes"]), said["note"].strip()


def _selected(question: Question, value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        value = value.get("selected")
    chosen = value.strip().casefold() if isinstance(value, str) else None
    for option in question.options:
        if option.casefold() == chosen:
            return option
    raise InvalidAnswerError(_refusal(question))


def _clarified(question: Question, value: JsonValue) -> JsonValue:
    if value in ("", None) or (isinstance(value, str) and not value.strip()):
        raise InvalidAnswerError(_refusal(question))
    return value


def _data(question: Question, value: JsonValue) -> JsonValue:
    """Return the data; a text may be JSON, or, where it is none, the value itself."""
    if value is None:
        raise InvalidAnswerError(_refusal(question))
    if not isinstance(value, str):
        return value
    try:
        parsed: JsonValue = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed


def _auth(question: Question, value: JsonValue) -> JsonValue:
    """A secret has no place in a history; the gateway takes it out before it comes here."""
    raise InvalidAnswerError(f"this question wants a secret: {expected(question)}")


_READERS = {
    QuestionKind.SELECTION: _selected,
    QuestionKind.CLARIFICATION: _clarified,
    QuestionKind.DATA: _data,
    QuestionKind.AUTH: _auth,
}


def _refusal(question: Question) -> str:
    return f"this does not answer question {question.id!r}: {expected(question)}"


def _note(value: dict[str, JsonValue], note: str) -> str:
    said = value.get("note")
    return note or (said if isinstance(said, str) else "")


def _without_name(data: JsonValue) -> JsonValue:
    """Return the data of an answer; one that names its question may hold the answer beside the name."""
    if not isinstance(data, dict) or QUESTION not in data:
        return data
    rest = {key: value for key, value in data.items() if key != QUESTION}
    return rest["answer"] if set(rest) == {"answer"} else rest
