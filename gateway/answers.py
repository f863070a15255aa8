"""Messages that answer a question of their task: checked, and freed of the secret that they carry."""

import asyncio
import json
import re

import structlog
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft202012Validator
from pydantic import JsonValue
from referencing import Registry
from referencing.exceptions import Unresolvable

from gateway.errors import AnswerInvalidError
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
    read_answer,
)
from workflows.contract.tasks import TaskView

WITHHELD_TEXT = "(a secret was supplied)"
"""Stands in a message where its secret stood."""

DECLINE = frozenset({QUESTION, "approved", "note"})
"""What the data of a message that declines to give a secret may hold: nothing that could be one."""

MAX_PATH = 200
"""Characters of the path to what is wrong: its names may be the client's."""

_UNFIT_SCHEMA = (SchemaError, Unresolvable, RecursionError, re.error)

_log = structlog.get_logger()


class Answers:
    """Takes in what clients answer while their task waits for it."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def take_in(self, view: TaskView, message: UserMessage) -> UserMessage:
        """Return the message as the task may see it; one that is no answer stays as it is.

        A secret is kept before anybody hears of it. Repeating the message keeps it again: if we die before
        the task is told, the client's retry does both. If the task then refuses the answer (somebody else
        was faster), the secret stays, under its name, until the task has ended.

        Raises:
            AnswerInvalidError: it does not answer; the text says what is expected, and repeats no answer.
            InvalidParamsError: it names a question by what can be no id.
        """
        if not view.status.questions:
            return message
        check_id(named_question(message) or QUESTION, f"the id in {QUESTION!r}")
        try:
            question = match_question(view.status.questions, message)
            if question.kind is QuestionKind.AUTH:
                return await self._withhold(view.task_id, question, message)
            answer = read_answer(question, message)
        except InvalidAnswerError as error:
            raise AnswerInvalidError(str(error)) from None
        if question.kind is QuestionKind.DATA and answer.approved:
            # Not on the event loop: a large answer takes its time.
            await asyncio.to_thread(_check_schema, question, answer.value)
        return message

    async def forget(self, task_id: str) -> None:
        """Forget the secrets of a task that has ended."""
        await self._secrets.forget(task_id)

    async def _withhold(self, task_id: str, question: Question, message: UserMessage) -> UserMessage:
        """Keep the secret of a message, and return the message without it."""
        metadata: dict[str, JsonValue] = {QUESTION: question.id}
        answer = _read_secret(question, message)
        if not answer.approved:
            return message.model_copy(update={"metadata": metadata})
        await self._secrets.put(task_id, question.secret_name, answer.value)
        parts = (TextPart(text=WITHHELD_TEXT),)
        return message.model_copy(update={"parts": parts, "metadata": {**metadata, WITHHELD: True}})


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
        case (DataPart(data=dict(data)),):
            return data.keys() <= DECLINE
        case _:
            return False


def _check_schema(question: Question, value: JsonValue) -> None:
    """Check data against the question's JSON schema (Draft 2020-12); no reference leads out of the schema.

    A schema that is wrong in itself checks nothing: no answer could ever satisfy it.

    Raises:
        AnswerInvalidError: the data do not fit.
    """
    try:
        Draft202012Validator.check_schema(question.json_schema)
        # An empty registry fetches nothing.
        validator = Draft202012Validator(question.json_schema, registry=Registry())
        error = next(validator.iter_errors(value), None)
    except _UNFIT_SCHEMA as unfit:
        _log.warning("answer not checked, schema is unfit", question=question.id, error=type(unfit).__name__)
        return
    if error is not None:
        raise AnswerInvalidError(_describe(question, error)) from None


def _describe(question: Question, error: ValidationError) -> str:
    """Say where the data do not fit and which rule they break; the error's own message repeats them."""
    path = error.json_path if len(error.json_path) <= MAX_PATH else error.json_path[:MAX_PATH] + "…"
    rule = json.dumps({str(error.validator): error.validator_value}, ensure_ascii=False)
    return f"the answer to question {question.id!r} breaks the rule {rule} at {path}; {expected(question)}"
