"""Exceptions of a tool that asks people. The call waits, and then runs again with the answer.

QuestionRequired
├── InputRequired   an answer that the model and the history may contain
└── AuthRequired    a secret that only the tool receives
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, get_args

from pydantic import BaseModel, JsonValue

from everloop.agents.errors import QuestionDefinitionError
from everloop.agents.limits import LONGEST
from everloop.runtime.schema_validation import SchemaUnfitError, find_schema_violations, problem_of_schema
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import InvalidAnswerError, Question, QuestionKind, answer_with

InputKind = Literal["clarification", "confirmation", "selection", "data"]

_INPUT_KINDS = get_args(InputKind)
_NO_CALL = ToolCall(id="", name="", arguments="")


class QuestionRequired(Exception):  # noqa: N818 -- named for the request: it is not an error
    """The call needs an answer before it can continue."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        question.model_dump_json()  # unserializable values fail here, in the tool
        self._question = question

    def __reduce__(self) -> tuple[object, ...]:
        """Restore a copy by its attributes: `args` is the message alone, and `__init__` takes more."""
        return type(self).__new__, (type(self),), {"args": self.args, **vars(self)}

    def question(self, question_id: str, call: ToolCall) -> Question:
        """Return the question of this call."""
        return self._question.model_copy(update={"id": question_id, "call": call})


class InputRequired(QuestionRequired):
    """The tool needs an answer: free text, yes or no, one of `options`, or data that match `schema`.

    `schema` is a JSON schema or a pydantic model, for the kind "data" only. After `timeout` the answer
    is `default` or, without one, the call is rejected.

    Raises:
        QuestionDefinitionError: it cannot be answered, or the default is not a valid answer.
    """

    def __init__(  # noqa: PLR0913 -- fields of a question, each by its name
        self,
        text: str,
        kind: InputKind = "clarification",
        *,
        options: Sequence[str] = (),
        schema: Mapping[str, JsonValue] | type[BaseModel] | None = None,
        timeout: timedelta | None = None,
        default: JsonValue = None,
    ) -> None:
        _check_text(text, timeout)
        if kind not in _INPUT_KINDS:
            raise QuestionDefinitionError(
                f"InputRequired: there is no kind {kind!r}; choose one of {', '.join(_INPUT_KINDS)} "
                "(a secret is asked for with AuthRequired)"
            )
        question = Question(
            id="",
            kind=QuestionKind(kind),
            text=text,
            call=_NO_CALL,
            options=tuple(options),
            json_schema=schema.model_json_schema() if isinstance(schema, type) else dict(schema or {}),
            timeout=timeout.total_seconds() if timeout else None,
            default=default,
        )
        _check_kind(question)
        super().__init__(question)
        if default is not None:
            _check_default(question)


class AuthRequired(QuestionRequired):
    """The tool needs a secret; it reads it with `await context.secret(name)` when it runs again.

    The secret stays out of the task's history and is deleted when the task ends. After `timeout` the
    call is rejected.

    Raises:
        QuestionDefinitionError: no text, no name, or no time.
    """

    def __init__(self, text: str, name: str, *, timeout: timedelta | None = None) -> None:
        _check_text(text, timeout)
        if not name.strip():
            raise QuestionDefinitionError("AuthRequired: the secret has no name; the tool reads it by one")
        kind, seconds = QuestionKind.AUTH, timeout.total_seconds() if timeout else None
        super().__init__(
            Question(id="", kind=kind, text=text, call=_NO_CALL, timeout=seconds, secret_name=name)
        )


def _check_text(text: str, timeout: timedelta | None) -> None:
    if not text.strip():
        raise QuestionDefinitionError("the question has no text; say what you need to know")
    if timeout is not None and timeout <= timedelta(0):
        raise QuestionDefinitionError(f"the timeout of the question is {timeout}; give people some time")
    if timeout is not None and timeout > LONGEST:
        raise QuestionDefinitionError(
            f"the timeout of the question is {timeout}; give at most {LONGEST.days} days, or None for no end"
        )


def _check_kind(question: Question) -> None:
    kind = question.kind.value
    for field, owner, given in (
        ("options", "selection", question.options),
        ("schema", "data", question.json_schema),
    ):
        if kind == owner and not given:
            raise QuestionDefinitionError(f"InputRequired: the kind {owner!r} needs {field}")
        if kind != owner and given:
            raise QuestionDefinitionError(
                f"InputRequired: give {field} with the kind {owner!r} only, not with {kind!r}"
            )
    if not all(option.strip() for option in question.options):
        raise QuestionDefinitionError("InputRequired: an option is empty; nobody could choose it")
    if problem := problem_of_schema(question.json_schema):  # a model may have written the schema
        raise QuestionDefinitionError(f"InputRequired: {problem}")


def _check_default(question: Question) -> None:
    if question.timeout is None:
        raise QuestionDefinitionError("InputRequired: a default needs a timeout after which it holds")
    try:
        answer = answer_with(question, question.default, by="timeout")
        breaks = question.json_schema and find_schema_violations(question.json_schema, [answer.value])
    except InvalidAnswerError as error:
        raise QuestionDefinitionError(f"InputRequired: the default does not answer: {error}") from None
    except SchemaUnfitError as error:
        raise QuestionDefinitionError(f"InputRequired: the default cannot be checked: {error}") from None
    if breaks:
        raise QuestionDefinitionError("InputRequired: the default does not fit the schema")
