"""Messages that answer a question of their task: validated, with secrets removed."""

from collections.abc import Sequence

import structlog
from pydantic import JsonValue

from everloop.gateway.errors import AnswerInvalidError
from everloop.gateway.requests.fields import check_id
from everloop.runtime.schema_validation import SchemaUnfitError, find_schema_violations_soon
from everloop.stores.secrets import Secrets
from everloop.workflows.contract.messages import DataPart, FilePart, TextPart, UserMessage
from everloop.workflows.contract.parts import cut
from everloop.workflows.contract.questions import (
    CHAT_PREFIX,
    QUESTION,
    WITHHELD,
    Answer,
    InvalidAnswerError,
    Question,
    QuestionKind,
    answer_with,
    expected,
    match_question,
    named_question,
    names_question_for_sure,
    prefixed_secret,
    read_answer,
)
from everloop.workflows.contract.tasks import TaskStatus, TaskView

MAX_PATH = 200
"""Maximum characters of the path to an invalid value. Its names may be the client's."""

WITHHELD_TEXT = "(a secret was supplied)"
"""Replaces a secret in a message."""

NO_METADATA: dict[str, JsonValue] = {}

DECLINE = frozenset({QUESTION, "approved", "note"})
"""Allowed keys of a message that declines to give a secret: none of them can hold one."""

_log = structlog.get_logger()


class Answers:
    """Processes clients' answers to the open questions of their task."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def take_in(self, view: TaskView, message: UserMessage) -> UserMessage:
        """Return the message for the task, with the id of the question that it answers, if any.

        The question is chosen from the task's current view. A question that is asked later, before the
        task receives the message, is not answered by it.

        A secret is stored before the task receives the message. A retry stores it again: after a crash
        in between, the client's retry does both. If the task then rejects the answer (another client
        was faster), no tool can read the secret, and it is deleted with the others.

        Raises:
            AnswerInvalidError: it does not answer the question. The text names the expected
                value, and repeats no answer.
            InvalidParamsError: the id of the question is malformed.
        """
        if names_question_for_sure(message):
            check_id(named_question(message) or "", f"message.metadata.{QUESTION}")
        try:
            question = _find_question(view.status, message)
            if question is None:
                return message
            _refuse_files(question, message)
            if question.kind is QuestionKind.AUTH:
                return await self._withhold(view.task_id, question, message)
            answer = read_answer(question, message)
        except InvalidAnswerError as error:
            raise AnswerInvalidError(str(error)) from None
        if question.kind is QuestionKind.DATA and answer.approved:
            await _check_schema(question, answer.value)
        return message.model_copy(update={"answers": question.id})

    async def forget(self, task_id: str) -> None:
        """Delete the secrets of a task that has ended."""
        await self._secrets.forget(task_id)

    async def _withhold(self, task_id: str, question: Question, message: UserMessage) -> UserMessage:
        """Store the secret of a message, and return the message without it."""
        answer = _read_secret(question, message)
        message = message.model_copy(update={"answers": question.id, "metadata": NO_METADATA})
        if not answer.approved:
            return message
        await self._secrets.put(task_id, message.message_id, answer.value)
        withheld = {"parts": (TextPart(text=WITHHELD_TEXT),), "metadata": {WITHHELD: True}}
        return message.model_copy(update=withheld)


def _find_question(status: TaskStatus, message: UserMessage) -> Question | None:
    """Return the question that a message answers; None for an ordinary message.

    A message without a question id answers the oldest question, if the view shows that the task waits.
    While the view shows that it works, no client has seen a question. Content that may be a secret, but
    not for sure, is rejected.

    Raises:
        InvalidAnswerError: its question is not open, or others are asked, or it has to name one.
    """
    question = _match(status, message)
    if question and not question.is_for_owner:
        raise InvalidAnswerError(f"question {question.id!r}: {expected(question)}")
    return question


def _match(status: TaskStatus, message: UserMessage) -> Question | None:
    questions, name = status.questions, named_question(message)
    if names_question_for_sure(message) or any(question.id == name for question in questions):
        return match_question(questions, message)
    secrets = [question for question in questions if question.kind is QuestionKind.AUTH]
    if name is None and prefixed_secret(message) is not None:
        if secrets:
            return secrets[0]
        raise InvalidAnswerError(
            f'the message begins with "{CHAT_PREFIX}", but the task does not ask for a secret now; '
            "it was not passed on"
        )
    if questions and status.state.is_interrupted:
        if QUESTION in message.metadata:  # as null: explicitly not an answer
            raise InvalidAnswerError(f"the task asks something by now; {_naming(questions)}")
        if name is not None:  # in its data, where it may be any value; it is not repeated
            raise InvalidAnswerError(f"the data of the message name no open question; {_naming(questions)}")
        return next((question for question in questions if question.is_for_owner), questions[0])
    if secrets:
        raise InvalidAnswerError(f"the task has asked for a secret; {_naming(questions)}")
    return None


def _refuse_files(question: Question, message: UserMessage) -> None:
    """Reject files: they would be ignored in an answer, or store a secret.

    Raises:
        InvalidAnswerError: the message holds a file, which a large text may have become.
    """
    if any(isinstance(part, FilePart) for part in message.parts):
        raise InvalidAnswerError(
            f"a file does not answer question {question.id!r}: {expected(question)}; answer first, and send "
            "files, and texts of more than 1 MB, afterwards"
        )


def _naming(questions: Sequence[Question]) -> str:
    listed = "; ".join(f"{question.id!r}: {expected(question)}" for question in questions)
    return f'name a question in the metadata of the message, {{"{QUESTION}": "…"}}. Open: {listed}'


def _read_secret(question: Question, message: UserMessage) -> Answer:
    """Return the secret as the answer's value; not approved if the client declines to give it.

    Text without the id of the question may be a remark instead of the secret.

    Raises:
        InvalidAnswerError: the secret is missing or empty, or declined beside content that may be a secret.
    """
    secret = prefixed_secret(message)
    is_named = named_question(message) == question.id
    if not is_named and secret is None:
        return _declined(question, message)
    as_text = question.model_copy(update={"kind": QuestionKind.CLARIFICATION})  # reads free text or data
    try:
        answer = read_answer(as_text, message) if is_named else answer_with(as_text, secret, by="user")
    except InvalidAnswerError:
        raise InvalidAnswerError(_is_empty(question)) from None
    if answer.value in ({}, []):
        raise InvalidAnswerError(_is_empty(question))
    return answer if answer.approved else _declined(question, message)


def _declined(question: Question, message: UserMessage) -> Answer:
    """Return the answer of a client that declines to give a secret, and sends nothing else.

    Raises:
        InvalidAnswerError: other content may be a secret.
    """
    answer = read_answer(question, message)
    is_bare = not any(isinstance(part, DataPart) for part in message.parts)
    if is_bare or _only_declines(message):
        return answer
    raise InvalidAnswerError(
        f"to decline question {question.id!r}, send one data part with nothing but "
        f'{{"approved": false, "note": "…"}}'
    )


def _is_empty(question: Question) -> str:
    return f"the answer to question {question.id!r} is empty: {expected(question)}"


def _only_declines(message: UserMessage) -> bool:
    match message.parts:
        case (DataPart(data=dict(data), filename=""),):
            return data.keys() <= DECLINE
        case _:
            return False


async def _check_schema(question: Question, value: JsonValue) -> None:
    """Validate data against the question's JSON schema, which may come from a model or a peer.

    An invalid schema is ignored: no answer could ever satisfy it, and the task would be stuck.

    Raises:
        AnswerInvalidError: the data do not match. The text repeats field names only.
    """
    try:
        violations = await find_schema_violations_soon(question.json_schema, [value])
    except SchemaUnfitError as unfit:
        _log.warning("answer not checked: its schema is unfit", reason=str(unfit))
        return
    for violation in violations:
        place = cut(violation.json_path, MAX_PATH)
        raise AnswerInvalidError(
            f"the answer to question {question.id!r} breaks the rule {violation.rule} at {place}; "
            f"{expected(question)}"
        )
