"""Questions of a task to people, and their answers. Pure: workflow and gateway share it."""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, JsonValue

from everloop.workflows.contract.messages import DataPart, ToolCall, UserMessage, text_of
from everloop.workflows.contract.parts import cut
from everloop.workflows.contract.payloads import Wire

QUESTION = "question"
"""Key in the metadata of a message, or in its data part, with the id of the question that it answers."""

WITHHELD = "withheld"
"""Metadata of a message whose secret the gateway moved to the store of tools' secrets."""

MAX_REPEATED = 2000
"""Maximum characters of a question in an error."""

CHAT_PREFIX = "secret:"
"""Prefix of a secret in a chat, where a message cannot name its question; in any case."""

YES_OR_NO: Mapping[str, tuple[str, str]] = {
    "en": ("yes, y, ok, okay, approve, approved, confirm, confirmed", "no, n, reject, deny, decline, denied"),
    "de": ("ja, j, genehmigt, einverstanden, bestätigt", "nein, abgelehnt"),
    "fr": ("oui, d'accord, approuvé, confirmé", "non, refusé"),
    "es": ("sí, si, vale, aprobado, confirmado", "no, rechazado"),
    "it": ("sì, si, va bene, approvato, confermato", "no, rifiutato"),
    "pt": ("sim, aprovado, confirmado", "não, nao, recusado, rejeitado"),
    "nl": ("ja, akkoord, goedgekeurd", "nee, neen, afgewezen"),
    "pl": ("tak, zatwierdzam, zatwierdzone, potwierdzam", "nie, odrzucam, odrzucone"),
    "ja": ("はい, 承認, 承認します", "いいえ, 却下, 却下します"),
    "zh": ("是, 是的, 好, 好的, 同意, 批准", "不, 不是, 不行, 不同意, 拒绝"),
}
"""Words for yes and for no, by language. No other text counts, in any language."""


class QuestionKind(StrEnum):
    """Kind of the expected answer."""

    CONFIRMATION = "confirmation"
    """Yes or no."""
    CLARIFICATION = "clarification"
    """Free text."""
    SELECTION = "selection"
    """One of `options`."""
    DATA = "data"
    """A value that matches `json_schema`."""
    AUTH = "auth"
    """A secret, which only the tool receives."""


Purpose = Literal["input", "approval", "outcome"]
"""Why a call waits: "input" for a question of the tool, "approval" before it runs, "outcome" if it is
unknown whether it ran."""

AnsweredBy = Literal["user", "approver", "operator", "timeout"]

OWNER = "owner"
"""Approvers of a question that the client of the task answers; any other value is the required scope."""

APPROVE = "tasks:approve"
"""The default scope of approvers."""

APPROVAL = "approval"
"""Metadata key of a message with an approver's answer: who answered, what, and when."""

_OTHER_SCOPES = frozenset({"tasks:read", "tasks:write", "admin", "operator"})

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}")
"""RFC 6749 §3.3, with a limit of the length."""


class Question(Wire):
    """A question of a tool call. The call runs after the answer, with the same arguments."""

    role: Literal["question"] = "question"
    id: str
    """Unique within the task, derived from the call (`names.call_key`)."""
    kind: QuestionKind
    purpose: Purpose = "input"
    text: str
    call: ToolCall
    options: tuple[str, ...] = ()
    json_schema: dict[str, JsonValue] = {}
    timeout: float | None = None
    """In seconds from the publication of the question, None without limit."""
    default: JsonValue = None
    """The answer after the timeout; None: the call is rejected."""
    secret_name: str = ""
    """The tool's name of the secret of an auth question."""
    approvers: str = OWNER
    """Who may answer: the owner of the task, or callers with this scope, who get a yes-or-no question."""
    asked_at: datetime | None = None
    """Set if approvers other than the owner were asked first."""

    @property
    def is_for_owner(self) -> bool:
        """Whether the client of the task answers."""
        return self.approvers == OWNER


class Answer(Wire):
    """The answer to a question, with its `kind` and `purpose`."""

    question_id: str
    kind: QuestionKind
    purpose: Purpose
    tool: str
    """The tool that asked."""
    approved: bool = True
    """False: rejected by a person, or by the timeout."""
    value: JsonValue = None
    """The answer: true or false for a confirmation; None for a secret, which is stored elsewhere, and for
    a missing answer."""
    note: str = ""
    by: AnsweredBy = "user"
    secret_name: str = ""
    """The tools' name of the secret in the client's message, for an auth question."""
    message_id: str = ""
    """Id of the client's message, if it was the answer."""
    approver: str = ""
    """Who answered in the owner's place."""


class ApproverAnswer(Wire):
    """The answer of a caller with the scope of a question, in the owner's place.

    `approver` is the name for people. The task compares owner, scheme and subject (`tasks.Identity`),
    and refuses the answer of the caller that began it.
    """

    question_id: str
    scope: str
    approved: bool
    note: str = ""
    approver: str
    owner: str
    scheme: str
    subject: str


class SubAgentQuestions(Wire):
    """All open questions of the sub-agent with this task; empty: none are open any more."""

    task_id: str
    questions: tuple[Question, ...] = ()


class ApproveInput(Wire):
    """An operator's answer: input of the `approve` signal. `value` answers other kinds than confirmations.

    Without `call_id` it answers the only question that is open.
    """

    model_config = ConfigDict(extra="forbid")  # typed by people: a misspelt field is an error

    call_id: str = ""
    approved: bool
    note: str = ""
    value: JsonValue = None


class SkippedCall(Wire):
    """Input of the signal `skip_call`. `call_id` may be omitted if only one call is pending."""

    model_config = ConfigDict(extra="forbid")  # typed by people: a misspelt field is an error

    call_id: str = ""
    note: str = ""


class Note(Wire):
    """Input of the signal `note`."""

    model_config = ConfigDict(extra="forbid")  # typed by people: a misspelt field is an error

    note: str


class InvalidAnswerError(ValueError):
    """A text does not answer the question. The message has the expected form."""


def problem_of_approvers(approvers: str) -> str:
    """Return why the approvers are invalid, empty if they are valid."""
    is_ours = approvers in _OTHER_SCOPES or approvers.startswith("agents:")
    if approvers == OWNER or (_SCOPE.fullmatch(approvers) and not is_ours):
        return ""
    return f"approvers is {approvers!r}; give {OWNER!r}, {APPROVE!r}, or another scope of your approvers"


def named_question(message: UserMessage) -> str | None:
    """Return the id of the question that a message names as answered, None without one."""
    name = message.metadata.get(QUESTION)
    for part in message.parts:
        if name is None and isinstance(part, DataPart) and isinstance(part.data, dict):
            name = part.data.get(QUESTION)
    return name if isinstance(name, str) else None


def names_question_for_sure(message: UserMessage) -> bool:
    """Return True if the metadata name a question; in a data part the same word may be content."""
    return isinstance(message.metadata.get(QUESTION), str)


def prefixed_secret(message: UserMessage) -> str | None:
    """Return the secret in a text with the prefix of secrets, else None."""
    text = text_of(message.parts).strip()
    is_secret = text[: len(CHAT_PREFIX)].casefold() == CHAT_PREFIX
    return text[len(CHAT_PREFIX) :].strip() if is_secret else None


def match_question(questions: Sequence[Question], message: UserMessage) -> Question:
    """Return the open question that a message answers: the named one, or else the oldest.

    Raises:
        InvalidAnswerError: it names another one, or none of them is open.
    """
    name = named_question(message)
    for question in questions:
        if name in {None, question.id}:
            return question
    raise InvalidAnswerError(not_open(questions, name or ""))


def not_open(questions: Sequence[Question], name: str) -> str:
    """Return the error text for a question that is not open, with the open ones."""
    listed = "; ".join(f"{question.id!r}: {expected(question)}" for question in questions) or "none"
    return (
        f"no question {name!r} is open; name another one in the metadata of the message, "
        f'{{"{QUESTION}": "…"}}, or leave the name out. Open: {listed}'
    )


def read_answer(question: Question, message: UserMessage) -> Answer:
    """Return the answer in a client's message. A JSON schema is not checked here.

    Raises:
        InvalidAnswerError: it is not an answer; the message has the expected form.
    """
    given = {"message_id": message.message_id}
    if question.kind is QuestionKind.AUTH and message.metadata.get(WITHHELD):
        supplied = {**given, "secret_name": question.secret_name}
        return _answer(question, None, by="user").model_copy(update=supplied)
    return answer_with(question, _content_of(question, message), by="user").model_copy(update=given)


def answer_with(question: Question, value: JsonValue, *, by: AnsweredBy, note: str = "") -> Answer:
    """Return the answer for a value: text, or JSON. `{"approved": false, "note": …}` rejects any call.

    Raises:
        InvalidAnswerError: it does not answer this question.
    """
    if isinstance(value, dict) and value.get("approved") is False:
        return _answer(question, False, by=by, note=_note(value, note), approved=False)
    match question.kind:
        case QuestionKind.CONFIRMATION:
            approved, comment = _confirmed(question, value)
            return _answer(question, approved, by=by, note=note or comment, approved=approved)
        case QuestionKind.AUTH if isinstance(value, str) and read_yes_or_no(value) is False:
            return _answer(question, False, by=by, note=note, approved=False)
        case QuestionKind.AUTH:  # a secret must not enter a history; the gateway has removed it
            raise InvalidAnswerError(_refusal(question))
        case QuestionKind.SELECTION:
            return _answer(question, _selected(question, value), by=by, note=note)
        case QuestionKind.CLARIFICATION | QuestionKind.DATA:
            if value is None or (isinstance(value, str) and not value.strip()):
                raise InvalidAnswerError(_refusal(question))
            read = _read_data(value) if question.kind is QuestionKind.DATA else value
            return _answer(question, read, by=by, note=note)


def no_answer(question: Question) -> Answer:
    """Return the timeout answer of a question."""
    return _answer(question, None, by="timeout", note="nobody answered in time", approved=False)


def expected(question: Question) -> str:
    """Return one sentence about the expected answer."""
    if not question.is_for_owner:
        return f"this waits for somebody with the scope {question.approvers}; nobody else can answer it"
    match question.kind:
        case QuestionKind.CONFIRMATION:
            return 'answer "yes" or "no", and nothing else, or send the data {"approved": true, "note": "…"}'
        case QuestionKind.SELECTION:
            return f"answer with one of: {', '.join(question.options)}"
        case QuestionKind.DATA:
            schema = json.dumps(question.json_schema, ensure_ascii=False)
            return f"send a data part that fits this JSON schema: {schema}"
        case QuestionKind.AUTH:
            name = json.dumps({QUESTION: question.id}, ensure_ascii=False)
            return (
                f"send the secret in a message whose metadata, or data part, name this question: {name}; "
                f'in a chat, write "{CHAT_PREFIX} " before it; it is kept out of the task\'s history; '
                'answer "no" to give none'
            )
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


def read_yes_or_no(text: str) -> bool | None:
    """Return the meaning of a bare yes or no; None for any other text, whatever its beginning."""
    return _MEANINGS.get(_bare(text))


def begins_yes_or_no(text: str) -> bool:
    """Return True if a partial text may become a bare yes or no."""
    return any(word.startswith(_bare(text)) for word in _MEANINGS)


def _bare(text: str) -> str:
    """Return words in lower case, without surrounding punctuation and spelling variants of letters."""
    words = unicodedata.normalize("NFKC", text).casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    inner = [place for place, sign in enumerate(words) if not _stands_around(sign)]
    return " ".join(words[inner[0] : inner[-1] + 1].split()) if inner else ""


def _stands_around(sign: str) -> bool:
    """Return True for a space or punctuation, but not a question mark: it turns a yes into a question."""
    return sign not in "?\N{INVERTED QUESTION MARK}" and unicodedata.category(sign)[0] in "PZC"


_MEANINGS = {
    _bare(word): meaning
    for words in YES_OR_NO.values()
    for meaning, listed in zip((True, False), words, strict=True)
    for word in listed.split(",")
}


def _content_of(question: Question, message: UserMessage) -> JsonValue:
    """Return the answer in a message: its first data, or its text. Data may hold the name alone.

    Raises:
        InvalidAnswerError: a yes or no with other text beside it, which may mean the contrary.
    """
    data = [part.data for part in message.parts if isinstance(part, DataPart)]
    data = [value for value in data if not (isinstance(value, dict) and value.keys() == {QUESTION})]
    text = text_of(message.parts)
    if question.kind is QuestionKind.CONFIRMATION and len(data) + bool(text.strip()) > 1:
        raise InvalidAnswerError(_refusal(question))
    return _without_name(data[0]) if data else text


def _confirmed(question: Question, value: JsonValue) -> tuple[bool, str]:
    """Return whether it is a yes, and the note beside it."""
    if isinstance(value, dict) and value.get("approved") is True and value.keys() <= {"approved", "note"}:
        return True, _note(value, "")
    decision = read_yes_or_no(value) if isinstance(value, str) else value
    if not isinstance(decision, bool):
        raise InvalidAnswerError(_refusal(question))
    return decision, ""


def _selected(question: Question, value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        value = value.get("selected")
    chosen = value.strip().casefold() if isinstance(value, str) else None
    for option in question.options:
        if option.casefold() == chosen:
            return option
    raise InvalidAnswerError(_refusal(question))


def _read_data(value: JsonValue) -> JsonValue:
    """Return the data of a value. A text is parsed as JSON, or returned unchanged."""
    try:
        parsed: JsonValue = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value
    return parsed


def _refusal(question: Question) -> str:
    text = cut(question.text, MAX_REPEATED)
    return f"this does not answer question {question.id!r}: {expected(question)}. The question is: {text}"


def _note(value: dict[str, JsonValue], note: str) -> str:
    written = value.get("note")
    return note or (written if isinstance(written, str) else "")


def _without_name(data: JsonValue) -> JsonValue:
    """Return the data of an answer; one with the question's name may hold the answer beside it."""
    if not isinstance(data, dict) or QUESTION not in data:
        return data
    rest = {key: value for key, value in data.items() if key != QUESTION}
    return rest["answer"] if set(rest) == {"answer"} else rest
