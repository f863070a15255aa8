"""Messages that answer a question of their task: checked, and freed of the secret that they carry."""

from collections.abc import Sequence

import structlog
from pydantic import JsonValue

from everloop.gateway.errors import AnswerInvalidError
from everloop.gateway.requests.fields import check_id
from everloop.runtime.foreign_schemas import SchemaUnfitError, find_schema_violations_soon
from everloop.stores.secrets import Secrets
from everloop.workflows.contract.messages import DataPart, FilePart, TextPart, UserMessage
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
"""Characters of the path to what is wrong: its names may be the client's."""

WITHHELD_TEXT = "(a secret was supplied)"
"""Stands in a message where its secret stood."""

NO_METADATA: dict[str, JsonValue] = {}

DECLINE = frozenset({QUESTION, "approved", "note"})
"""What the data of a message that declines to give a secret may hold: nothing that could be one."""

_log = structlog.get_logger()


class Answers:
    """Takes in what clients answer to the open questions of their task."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def take_in(self, view: TaskView, message: UserMessage) -> UserMessage:
        """Return the message as the task may see it: it says which question it answers, if it does.

        That is decided by what clients can see of the task now. A question that comes up before the task has
        the message is not answered by it.

        A secret is kept before anybody hears of it. Repeating the message keeps it again: if we die before
        the task is told, the client's retry does both. If the task then refuses the answer (somebody else
        was faster), no tool gets to see it, and it is forgotten with the others.

        Raises:
            AnswerInvalidError: it does not answer; the text says what is expected, and repeats no answer.
            InvalidParamsError: it names a question by what can be no id.
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
        """Forget the secrets of a task that has ended."""
        await self._secrets.forget(task_id)

    async def _withhold(self, task_id: str, question: Question, message: UserMessage) -> UserMessage:
        """Keep the secret of a message, and return the message without it."""
        answer = _read_secret(question, message)
        message = message.model_copy(update={"answers": question.id, "metadata": NO_METADATA})
        if not answer.approved:
            return message
        await self._secrets.put(task_id, message.message_id, answer.value)
        withheld = {"parts": (TextPart(text=WITHHELD_TEXT),), "metadata": {WITHHELD: True}}
        return message.model_copy(update=withheld)


def _find_question(status: TaskStatus, message: UserMessage) -> Question | None:
    """Return the question that a message answers; None if it is an ordinary message.

    A message that names none answers the oldest, if the task shows that it waits: while it works, nobody can
    have been asked. Whatever may hold a secret, but not for sure, goes no further.

    Raises:
        InvalidAnswerError: it names no open question, where it has to name one, or others are asked.
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
        if QUESTION in message.metadata:  # as null, which says that it is no answer
            raise InvalidAnswerError(f"the task asks something by now; {_naming(questions)}")
        if name is not None:  # in its data, where it may be anything, and is not repeated
            raise InvalidAnswerError(f"the data of the message name no open question; {_naming(questions)}")
        return next((question for question in questions if question.is_for_owner), questions[0])
    if secrets:
        raise InvalidAnswerError(f"the task has asked for a secret; {_naming(questions)}")
    return None


def _refuse_files(question: Question, message: UserMessage) -> None:
    """No question asks for a file: one that came with the answer would go unread, or be a secret we keep.

    Raises:
        InvalidAnswerError: the message holds a file.
    """
    if any(isinstance(part, FilePart) for part in message.parts):
        raise InvalidAnswerError(
            f"a file does not answer question {question.id!r}: {expected(question)}; answer first, and send "
            "files afterwards"
        )


def _naming(questions: Sequence[Question]) -> str:
    listed = "; ".join(f"{question.id!r}: {expected(question)}" for question in questions)
    return f'name a question in the metadata of the message, {{"{QUESTION}": "…"}}. Open: {listed}'


def _read_secret(question: Question, message: UserMessage) -> Answer:
    """Return the secret as the answer's value; not approved if the client declines to give it.

    Whatever is said without the name of the question may be no secret, but a remark.

    Raises:
        InvalidAnswerError: it is no secret, or empty, or declined with something beside it that may be one.
    """
    secret = prefixed_secret(message)
    is_named = named_question(message) == question.id
    if not is_named and secret is None:
        return _declined(question, message)
    as_text = question.model_copy(update={"kind": QuestionKind.CLARIFICATION})  # so as free text or data is
    try:
        answer = read_answer(as_text, message) if is_named else answer_with(as_text, secret, by="user")
    except InvalidAnswerError:
        raise InvalidAnswerError(_is_empty(question)) from None
    if answer.value in ({}, []):
        raise InvalidAnswerError(_is_empty(question))
    return answer if answer.approved else _declined(question, message)


def _declined(question: Question, message: UserMessage) -> Answer:
    """Return the answer of a client that gives no secret, if it says that and nothing else.

    Raises:
        InvalidAnswerError: it may say something else.
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
    """Check data against the question's JSON schema, which a model or a peer may have written.

    A schema that cannot be checked checks nothing: no answer could ever satisfy it, and the task would be
    stuck.

    Raises:
        AnswerInvalidError: the data do not fit; of them the text repeats nothing but names of fields.
    """
    try:
        violations = await find_schema_violations_soon(question.json_schema, [value])
    except SchemaUnfitError as unfit:
        _log.warning("answer not checked: its schema is unfit", reason=str(unfit))
        return
    for violation in violations:
        path = violation.json_path
        place = path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}…"
        raise AnswerInvalidError(
            f"the answer to question {question.id!r} breaks the rule {violation.rule} at {place}; "
            f"{expected(question)}"
        )
