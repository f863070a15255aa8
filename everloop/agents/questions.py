"""What a tool raises to ask people. The call waits, and then runs again with the answer.

QuestionRequired
├── InputRequired   an answer that the model and the history may see
└── AuthRequired    a secret that only the tool sees
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, JsonValue

from everloop.agents.errors import QuestionDefinitionError
from everloop.agents.limits import LONGEST
from everloop.runtime.foreign_schemas import SchemaUnfitError, find_schema_violations, problem_of_schema
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import InvalidAnswerError, Question, QuestionKind, answer_with

InputKind = Literal["clarification", "confirmation", "selection", "data"]

_INPUT_KINDS = ("clarification", "confirmation", "selection", "data")
_NO_CALL = ToolCall(id="", name="", arguments="")


class QuestionRequired(Exception):  # noqa: N818 -- named for what is wanted: raising it is no error
    """The call cannot go on before somebody has answered."""

    @abstractmethod
    def question(self, question_id: str, call: ToolCall) -> Question:
        """Return the question that this call asks."""


class InputRequired(QuestionRequired):
    """The tool needs an answer: free text, yes or no, one of `options`, or data that fits `schema`.

    `schema` is a JSON schema or a pydantic model, for the kind "data" only. With `timeout` the question is
    open for that long; then `default` is the answer or, without one, the call is rejected.

    Raises:
        QuestionDefinitionError: nobody could answer it, or the default does not.
    """

    def __init__(  # noqa: PLR0913 -- what a question may say, each by its name
        self,
        text: str,
        kind: InputKind = "clarification",
        *,
        options: Sequence[str] = (),
        schema: Mapping[str, JsonValue] | type[BaseModel] | None = None,
        timeout: timedelta | None = None,
        default: JsonValue = None,
    ) -> None:
        super().__init__(text)
        self._text = text
        self._kind = kind
        self._options = tuple(options)
        self._schema = _json_schema(schema)
        self._timeout = timeout
        self._default = default
        _check_text(text, timeout)
        self._check_kind()
        self._check_default()

    def question(self, question_id: str, call: ToolCall) -> Question:
        return Question(
            id=question_id,
            kind=QuestionKind(self._kind),
            text=self._text,
            call=call,
            options=self._options,
            json_schema=self._schema,
            timeout=_seconds(self._timeout),
            default=self._default,
        )

    def _check_kind(self) -> None:
        if self._kind not in _INPUT_KINDS:
            raise QuestionDefinitionError(
                f"InputRequired: there is no kind {self._kind!r}; choose one of {', '.join(_INPUT_KINDS)} "
                "(a secret is asked for with AuthRequired)"
            )
        _check_belongs("options", self._kind, "selection", is_given=bool(self._options))
        _check_belongs("schema", self._kind, "data", is_given=bool(self._schema))
        if not all(option.strip() for option in self._options):
            raise QuestionDefinitionError("InputRequired: an option is empty; nobody could choose it")
        _check_schema(self._schema)

    def _check_default(self) -> None:
        question = _written(self)
        if self._default is None:
            return
        if self._timeout is None:
            raise QuestionDefinitionError("InputRequired: a default needs a timeout after which it holds")
        try:
            answer = answer_with(question, self._default, by="timeout")
        except InvalidAnswerError as error:
            raise QuestionDefinitionError(f"InputRequired: the default does not answer: {error}") from None
        if self._schema and _breaks(self._schema, answer.value):
            raise QuestionDefinitionError("InputRequired: the default does not fit the schema")


class AuthRequired(QuestionRequired):
    """The tool needs a secret; it reads it with `await context.secret(name)` when it runs again.

    The secret stays out of the task's history and is forgotten when the task ends. With `timeout` the
    question is open for that long; then the call is rejected.

    Raises:
        QuestionDefinitionError: no text, no name, or no time.
    """

    def __init__(self, text: str, name: str, *, timeout: timedelta | None = None) -> None:
        super().__init__(text)
        self._text = text
        self._name = name
        self._timeout = timeout
        _check_text(text, timeout)
        if not name.strip():
            raise QuestionDefinitionError("AuthRequired: the secret has no name; the tool reads it by one")
        _written(self)

    def question(self, question_id: str, call: ToolCall) -> Question:
        return Question(
            id=question_id,
            kind=QuestionKind.AUTH,
            text=self._text,
            call=call,
            timeout=_seconds(self._timeout),
            secret_name=self._name,
        )


def _written(required: QuestionRequired) -> Question:
    """Return the question, once it is sure that it can be written down; otherwise it fails in the tool."""
    question = required.question("", _NO_CALL)
    question.model_dump_json()
    return question


def _check_text(text: str, timeout: timedelta | None) -> None:
    if not text.strip():
        raise QuestionDefinitionError("the question has no text; say what you need to know")
    if timeout is not None and timeout <= timedelta(0):
        raise QuestionDefinitionError(f"the timeout of the question is {timeout}; give people some time")
    if timeout is not None and timeout > LONGEST:
        raise QuestionDefinitionError(
            f"the timeout of the question is {timeout}; give at most {LONGEST.days} days, or None for no end"
        )


def _check_belongs(field: str, kind: str, owner: str, *, is_given: bool) -> None:
    if kind == owner and not is_given:
        raise QuestionDefinitionError(f"InputRequired: the kind {owner!r} needs {field}")
    if kind != owner and is_given:
        raise QuestionDefinitionError(
            f"InputRequired: give {field} with the kind {owner!r} only, not with {kind!r}"
        )


def _check_schema(schema: dict[str, JsonValue]) -> None:
    # A model may have written the schema.
    if problem := problem_of_schema(schema):
        raise QuestionDefinitionError(f"InputRequired: {problem}")


def _breaks(schema: dict[str, JsonValue], value: JsonValue) -> bool:
    try:
        return bool(find_schema_violations(schema, [value]))
    except SchemaUnfitError as error:
        raise QuestionDefinitionError(f"InputRequired: the default cannot be checked: {error}") from None


def _json_schema(schema: Mapping[str, JsonValue] | type[BaseModel] | None) -> dict[str, JsonValue]:
    if isinstance(schema, type):
        return schema.model_json_schema()
    return dict(schema or {})


def _seconds(timeout: timedelta | None) -> float | None:
    return timeout.total_seconds() if timeout else None
