"""Errors of agent definitions, and how one comes of a wrong value.

AgentError
├── AgentDefinitionError    an agent, or where to find it, is not defined right
│   └── ToolDefinitionError a tool cannot be offered to a model
│       └── QuestionDefinitionError   a tool asks people what they cannot answer
└── UnknownAgentError       nobody defined an agent of that id
"""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails


class AgentError(Exception):
    """Something is wrong with the agents of this process."""


class AgentDefinitionError(AgentError):
    """An agent is not defined right; the message names it and says what to change."""


class ToolDefinitionError(AgentDefinitionError):
    """A tool cannot be offered to a model; the message names it and says what to change."""


class QuestionDefinitionError(ToolDefinitionError):
    """A tool asks people what they cannot answer; the message says what to change."""


class UnknownAgentError(AgentError):
    """No agent of that id is loaded; the message lists those that are."""


# What authors write: values that are checked where they are written.

_STRICT = ConfigDict(strict=True, extra="forbid")
"""Nothing is converted, and a misspelt name is no other setting left out."""

_MOST_CHARACTERS = 100  # characters of a value

Defined = TypeVar("Defined")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, Field))
def definition(cls: type[Defined]) -> type[Defined]:
    """Make a class a frozen dataclass whose values are checked; what is wrong with them is told in one line.

    The line is that of an `AgentDefinitionError`; `Field(description=…)` of a field is what it says to give.
    """
    defined: Any = dataclass(frozen=True, config=_STRICT)(cls)
    hints = {name: field.description or "" for name, field in defined.__pydantic_fields__.items()}
    validate = defined.__init__

    @wraps(validate)
    def init(self: object, *args: object, **kwargs: object) -> None:
        try:
            validate(self, *args, **kwargs)
        except ValidationError as error:
            given = {**dict(zip(hints, args, strict=False)), **kwargs}
            problems = error.errors(include_url=False, include_context=False)
            text = f"{_name_of(cls, given)}: {_explain(problems, hints)}"
            raise AgentDefinitionError(text) from None  # pydantic's own text shows whatever was given

    defined.__init__ = init
    return defined


def _name_of(cls: type[object], given: Mapping[str, object]) -> str:
    name = given.get("id", given.get("name"))
    return f"{cls.__name__.lower()} {name!r}" if isinstance(name, str) else cls.__name__


def _explain(problems: Sequence[ErrorDetails], hints: Mapping[str, str]) -> str:
    """Return what is wrong, once for each field: a union has a problem for each of its members."""
    lines = {problem["loc"][:1]: _line(problem, hints) for problem in reversed(problems)}
    return "; and ".join(reversed(lines.values()))


def _line(problem: ErrorDetails, hints: Mapping[str, str]) -> str:
    field, *path = problem["loc"] or ("",)
    if isinstance(field, int) and field < len(hints):
        field = list(hints)[field]  # it was given by its place
    match problem["type"]:
        case "value_error":
            return problem["msg"].partition(", ")[2]  # after "Value error": a validator of ours says it all
        case "missing":
            return f"{field} is missing"
        case "unexpected_keyword_argument":
            near = get_close_matches(str(field), hints, n=1)
            known = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(hints)}"
            return f"it has no {field!r}; {known}"
        case "unexpected_positional_argument":
            return f"it has no more than {len(hints)} values"
        case "multiple_argument_values":
            return f"{field} is given twice"
        case _:
            place = "".join([str(field), *(f"[{index}]" for index in path if isinstance(index, int))])
            expected = _expected(problem["msg"], hints.get(str(field)))
            return f"{place} is {_rendered(problem['input'])}; {expected}"


def _expected(message: str, hint: str | None) -> str:
    if hint:
        return f"give {hint}"
    _, should, rest = message.partition(" should ")
    return f"it should {rest}" if should else message


def _rendered(value: object) -> str:
    """Return how a line shows a value: of what may hold other values, perhaps secret ones, its type alone."""
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, type):
        return value.__name__
    if value is None or isinstance(value, str | int | float):
        text = repr(value)
        return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"
    return f"of type {type(value).__name__}"
