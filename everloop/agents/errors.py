"""Errors of agent definitions, from wrong values or from files that cannot be run.

AgentError
├── AgentDefinitionError    an agent, or its location, is not defined correctly
│   └── ToolDefinitionError a tool cannot be offered to a model
│       └── QuestionDefinitionError   a tool's question cannot be answered
└── UnknownAgentError       no agent with that id is loaded
"""

import builtins
import dataclasses
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, dataclass_transform, get_args

from pydantic import ConfigDict, Field, ValidationError, validate_call
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from everloop.runtime.user_code import error_text, inner_errors, translate_base_exceptions
from everloop.workflows.contract.parts import cut, shorten


class AgentError(Exception):
    """An error of the agents of this process."""


class AgentDefinitionError(AgentError):
    """An agent is not defined correctly; the message has its name and the correction."""


class ToolDefinitionError(AgentDefinitionError):
    """A tool cannot be offered to a model; the message has its name and the correction."""


class QuestionDefinitionError(ToolDefinitionError):
    """A tool's question cannot be answered; the message has the correction."""


class UnknownAgentError(AgentError):
    """No agent with that id is loaded; the message lists the loaded ones."""


# Values of authors, validated at the definition.

_STRICT = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
"""Values are not converted, and a misspelt name is an error."""

_MOST_CHARACTERS = 100  # characters of a value

Defined = TypeVar("Defined")
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, Field))
def definition(cls: type[Defined]) -> type[Defined]:
    """Make a class a frozen dataclass with validated values, and errors in one line.

    The line is that of an `AgentDefinitionError`; `Field(description=…)` of a field is the expected
    value in it.
    """
    defined: Any = dataclass(frozen=True, config=_STRICT)(cls)
    fields: Mapping[str, FieldInfo] = defined.__pydantic_fields__
    validate = defined.__init__

    @wraps(validate)
    def init(self: object, *args: object, **kwargs: object) -> None:
        try:
            validate(self, *args, **kwargs)
        except ValidationError as error:
            given = {**dict(zip(fields, args, strict=False)), **kwargs}
            text = f"{_name_of(cls, given)}: {_explain(error, fields)}"
            raise AgentDefinitionError(text) from None  # pydantic's own text shows the values

    defined.__init__ = init
    return defined


def checked(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Check the arguments of a function that makes a part of an agent, as `definition` does for classes."""

    @cache
    def checks() -> tuple[Callable[..., Returned], Mapping[str, FieldInfo]]:
        """Read the annotations on first use: that takes longer than a call of the function."""
        parameters = inspect.signature(function, eval_str=True).parameters
        fields = {name: FieldInfo.from_annotation(each.annotation) for name, each in parameters.items()}
        return validate_call(config=_STRICT)(function), fields

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        validated, fields = checks()
        try:
            return validated(*args, **kwargs)
        except ValidationError as error:
            text = f"{function.__name__}: {_explain(error, fields)}"
            raise AgentDefinitionError(text) from None  # as above

    return call


def _name_of(cls: type[object], given: Mapping[str, object]) -> str:
    name = given.get("id", given.get("name"))
    return f"{cls.__name__.lower()} {name!r}" if isinstance(name, str) else cls.__name__


def _explain(error: ValidationError, fields: Mapping[str, FieldInfo]) -> str:
    """Return the errors, one for each field: a union has one for each of its members."""
    problems = error.errors(include_url=False, include_context=False)
    lines = {problem["loc"][:1]: _line(problem, fields) for problem in reversed(problems)}
    return "; and ".join(reversed(lines.values()))


def _line(problem: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    field, *path = problem["loc"] or ("",)
    if isinstance(field, int) and field < len(fields):
        field = list(fields)[field]  # a positional argument
    match problem["type"]:
        case "value_error":
            return problem["msg"].partition(", ")[2]  # after "Value error": the text of our own validator
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            return f"{field} is missing"
        case "unexpected_keyword_argument":
            return f"it has no {field!r}; {_better_name(str(field), fields)}"
        case "unexpected_positional_argument":
            return f"it has no more than {len(fields)} values"
        case "multiple_argument_values":
            return f"{field} is given twice"
        case _:
            place = "".join([str(field), *(f"[{index}]" for index in path if isinstance(index, int))])
            accepted = None if path else fields.get(str(field))
            said = fields[str(field)].description if str(field) in fields else None
            expected = (accepted and _correction(str(field), problem["input"], accepted)) or (
                f"give {said}" if said else _expected(problem["msg"])
            )
            return f"{place} is {rendered(problem['input'])}; {expected}"


_ELSEWHERE = {
    "tools": "plugins=[tools(…)]",
    "tool": "plugins=[tools(…)]",
    "prompt": "plugins=[prompt('…')]",
    "system_prompt": "plugins=[prompt('…')]",
    "system": "plugins=[prompt('…')]",
    "instructions": "plugins=[prompt('…')]",
    "instruction": "plugins=[prompt('…')]",
    "sub_agents": "plugins=[sub_agent(…)]",
    "handoffs": "plugins=[handoff(…)]",
    "mcp_servers": "plugins=[mcp(…)]",
    "output_type": "output=…",
    "response_format": "output=…",
    "max_iterations": "limits=Limits(iterations=…)",
    "max_turns": "limits=Limits(iterations=…)",
    "temperature": "settings=ModelSettings(temperature=…)",
    "model_settings": "settings=ModelSettings(…)",
}
"""Names of an agent's settings in other libraries, with ours."""


def _better_name(name: str, fields: Mapping[str, FieldInfo]) -> str:
    elsewhere = _ELSEWHERE if "plugins" in fields else {}
    near = get_close_matches(name, [*fields, *elsewhere], n=1)
    if near and near[0] in elsewhere:
        return f"write {elsewhere[near[0]]}"
    return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(fields)}"


def _correction(name: str, value: object, field: FieldInfo) -> str:
    """Return the correct form of a value; empty if it cannot be guessed."""
    for kind in _classes_in([field.annotation, *field.metadata]):
        if kind is timedelta and isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return f"write {name}=timedelta(seconds={value:g})"
        if fields := getattr(kind, "__pydantic_fields__", None):
            if isinstance(value, dict):
                given = [f"{each}=…" for each in fields if each in value]
                return f"write {name}={kind.__name__}({', '.join(given) or '…'})"
            fitting = (each for each in fields if _takes(kind, {each: value}))
            is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
            meant = next(fitting, "") if is_plain else ""
            if meant:
                return f"write {name}={kind.__name__}({meant}={value!r})"
            return f"give {kind.__name__}(…)"
    return ""


def _classes_in(annotations: Sequence[object]) -> Iterator[type]:
    for annotation in annotations:
        if isinstance(annotation, type):
            yield annotation
        yield from _classes_in(get_args(annotation))


def _takes(kind: Callable[..., object], values: Mapping[str, object]) -> bool:
    try:
        kind(**values)
    except AgentDefinitionError:
        return False
    return True


def _expected(message: str) -> str:
    _, should, rest = message.partition(" should ")
    return f"it should {rest}" if should else message


def rendered(value: object) -> str:
    """Return a value for an error line: of containers, which may hold secrets, only the type."""
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, type):
        return value.__name__
    if value is None or isinstance(value, str | int | float):
        return cut(repr(value), _MOST_CHARACTERS)
    return f"of type {type(value).__name__}"


# Errors in a file of the user, in one line with file, line and reason.
#
# It has no traceback, and no values of pydantic errors.

MAX_REASON = 500
"""Maximum characters of a reason; the rest is left out."""

_OURS = Path(__file__).parent
_RULE = "Value error, "


@contextmanager
def translate_import_errors(file: Path) -> Generator[None]:
    """Run a file of the user, and translate its errors.

    Raises:
        AgentDefinitionError: it raised an error; the message is one line.
    """
    try:
        with translate_base_exceptions():
            yield
    except Exception as error:
        first, *_ = inner_errors(error)
        where, line = _place_of(first, file.resolve())
        raise AgentDefinitionError(f"{display_path(where)}:{line}: {_reason_of(first)}") from error


def _place_of(error: BaseException, file: Path) -> tuple[Path, int]:
    """Return the innermost line of the user's that led to the error: in the file, or in others beside it."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [
        (Path(frame.f_code.co_filename).resolve(), line)
        for frame, line in frames
        if not frame.f_code.co_filename.startswith("<")  # generated by dataclasses
    ]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((Path(error.filename).resolve(), error.lineno or 1))
    is_beside = file.parent != _OURS
    users = [line for line in lines if line[0] == file or (is_beside and line[0].parent == file.parent)]
    return users[-1] if users else (file, 1)


def _reason_of(error: BaseException) -> str:
    if isinstance(error, AgentError):
        reason = str(error)
    elif isinstance(error, ValidationError):
        reason = f"{error.title}: {_without_values(error)}"
    elif isinstance(error, SyntaxError):
        reason = f"{type(error).__name__}: {error.msg}"
    else:
        reason = f"{error_text(error)}{_hint(error)}"
    return shorten(reason, MAX_REASON)


_MODULES = {
    "timedelta": "datetime",
    "datetime": "datetime",
    "Annotated": "typing",
    "Literal": "typing",
    "BaseModel": "pydantic",
    "Field": "pydantic",
    "Path": "pathlib",
}
"""Modules of names that agents often use."""

_EVERLOOP = sys.modules[__name__.partition(".")[0]]
"""The package, whose public names authors import: an import statement here would point upwards."""


def _public() -> list[str]:
    return _EVERLOOP.__all__


_UNEXPECTED = re.compile(r"^(\w+)\(\) got an unexpected keyword argument '(\w+)'$")


def _hint(error: BaseException) -> str:
    match error:
        case ModuleNotFoundError():
            return "; correct the name, or install what it is of in the environment of Everloop"
        case ImportError(name="everloop"):
            return _nearest(str(error).partition("'")[2].partition("'")[0], _public())
        case TypeError() if found := _UNEXPECTED.match(str(error)):
            called = getattr(_EVERLOOP, found[1], None) if found[1] in _public() else None
            return _nearest(found[2], list(inspect.signature(called).parameters)) if called else ""
        case NameError(name=str(name)):
            return _hint_of_name(name, error)
        case _:
            return ""


def _hint_of_name(name: str, error: NameError) -> str:
    home = _MODULES.get(name) or ("everloop" if name in _public() else "")
    if home:
        return f"; import it: from {home} import {name}"
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return _nearest(name, [*frame.f_locals, *frame.f_globals, *_public(), *dir(builtins)])


def _nearest(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _without_values(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    places = [".".join(map(str, problem["loc"])) for problem in problems]
    rules = [problem["msg"].removeprefix(_RULE) for problem in problems]
    return "; ".join(f"{place}: {rule}".removeprefix(": ") for place, rule in zip(places, rules, strict=True))


def display_path(path: Path) -> str:
    """Return a path for people: relative to the working directory, if it is below."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
