"""Messages that answer a question of their task: checked, and freed of the secret that they carry."""

import asyncio
from collections.abc import Sequence

from pydantic import JsonValue

from gateway.answer_schemas import find_misfit
from gateway.errors import AnswerInvalidError
from gateway.file_parts import holds_file
from gateway.requests import check_id
from stores.secrets import Secrets
from workflows.contract.messages import DataPart, TextPart, UserMessage
from workflows.contract.questions import (
    QUESTION,
    WITHHELD,
    Answer,
    InvalidAnswerError,
    Question,
    QuestionKind,
    expected,
    match_question,
    named_question,
    names_question_for_sure,
    read_answer,
)
from workflows.contract.tasks import TaskStatus, TaskView

WITHHELD_TEXT = "(a secret was supplied)"
"""Stands in a message where its secret stood."""

DECLINE = frozenset({QUESTION, "approved", "note"})
"""What the data of a message that declines to give a secret may hold: nothing that could be one."""


class Answers:
    """Takes in what clients answer to the open questions of their task."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def take_in(self, view: TaskView, message: UserMessage) -> UserMessage:
        """Return the message as the task may see it: an answer names its question; others stay as they are.

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
            # Not on the event loop: a large answer takes its time.
            await asyncio.to_thread(_check_schema, question, answer.value)
        # By now the task may ask something else, of which this says nothing.
        return message.model_copy(update={"metadata": {**message.metadata, QUESTION: question.id}})

    async def forget(self, task_id: str) -> None:
        """Forget the secrets of a task that has ended."""
        await self._secrets.forget(task_id)

    async def _withhold(self, task_id: str, question: Question, message: UserMessage) -> UserMessage:
        """Keep the secret of a message, and return the message without it."""
        metadata: dict[str, JsonValue] = {QUESTION: question.id}
        answer = _read_secret(question, message)
        if not answer.approved:
            return message.model_copy(update={"metadata": metadata})
        await self._secrets.put(task_id, message.message_id, answer.value)
        parts = (TextPart(text=WITHHELD_TEXT),)
        return message.model_copy(update={"parts": parts, "metadata": {**metadata, WITHHELD: True}})


def _find_question(status: TaskStatus, message: UserMessage) -> Question | None:
    """Return the question that a message answers; None if it is an ordinary message.

    Whatever may hold a secret, but not for sure, goes no further.

    Raises:
        InvalidAnswerError: it names no open question, where it has to name one.
    """
    questions, name = status.questions, named_question(message)
    if names_question_for_sure(message) or any(question.id == name for question in questions):
        return match_question(questions, message)
    if questions and status.state.is_interrupted:
        if name is not None:  # in its data, where it may be anything, and is not repeated
            raise InvalidAnswerError(f"the data of the message name no open question; {_naming(questions)}")
        return match_question(questions, message)
    if any(question.kind is QuestionKind.AUTH for question in questions):
        raise InvalidAnswerError(f"the task has asked for a secret; {_naming(questions)}")
    return None


def _refuse_files(question: Question, message: UserMessage) -> None:
    """No question asks for a file: one that came with the answer would go unread, or be a secret we keep.

    Raises:
        InvalidAnswerError: the message holds a file.
    """
    if holds_file(message.parts):
        raise InvalidAnswerError(
            f"a file does not answer question {question.id!r}: {expected(question)}; answer first, and send "
            "files afterwards"
        )


def _naming(questions: Sequence[Question]) -> str:
    listed = "; ".join(f"{question.id!r}: {expected(question)}" for question in questions)
    return f'name a question in the metadata of the message, {{"{QUESTION}": "…"}}. Open: {listed}'


def _read_secret(question: Question, message: UserMessage) -> Answer:
    """Return the secret as the answer's value; not approved if the client declines to give it.

    Raises:
        InvalidAnswerError: it is empty, or declined with something beside it that may be a secret.
    """
    try:
        # Read as free text or data is.
        answer = read_answer(question.model_copy(update={"kind": QuestionKind.CLARIFICATION}), message)
    except InvalidAnswerError:
        raise InvalidAnswerError(_is_empty(question)) from None
    if answer.value in ({}, []):
        raise InvalidAnswerError(_is_empty(question))
    if not answer.approved and not _only_declines(message):
        raise InvalidAnswerError(
            f"to decline question {question.id!r}, send one data part with nothing but "
            f'{{"approved": false, "note": "…"}}'
        )
    return answer


def _is_empty(question: Question) -> str:
    return f"the answer to question {question.id!r} is empty: {expected(question)}"


def _only_declines(message: UserMessage) -> bool:
    match message.parts:
        case (DataPart(data=dict(data), filename=""),):
            return data.keys() <= DECLINE
        case _:
            return False


def _check_schema(question: Question, value: JsonValue) -> None:
    """Check data against the question's JSON schema.

    Raises:
        AnswerInvalidError: the data do not fit.
    """
    if misfit := find_misfit(question.json_schema, value):
        raise AnswerInvalidError(
            f"the answer to question {question.id!r} breaks the rule {misfit}; {expected(question)}"
        )
