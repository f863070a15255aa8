"""Name, description and arguments of a tool, from its function or another callable."""

import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import CodeType
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from everloop.agents.errors import ToolDefinitionError

Function = Callable[..., Any]


class Arguments(BaseModel):
    """The base of the argument models: unknown arguments are errors, not noise; bytes are in base64."""

    model_config = ConfigDict(extra="forbid", val_json_bytes="base64", ser_json_bytes="base64")


NAME_RULE = "models take names of 1 to 64 letters, digits, '_' and '-'"

LONGEST_NAME = 64

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")


def is_tool_name(name: str) -> bool:
    """Return True for a name that providers of models accept."""
    return _NAME.fullmatch(name) is not None


def as_tool_name(text: str) -> str:
    """Return the valid tool name nearest to a text."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text)[:LONGEST_NAME]


def name_of(function: Function) -> str:
    """Return the name of a function; an object has that of its class, in lower case.

    Raises:
        ToolDefinitionError: it cannot be called by a model.
    """
    if isinstance(function, type):
        raise ToolDefinitionError(
            f"tool: {function.__name__} is a class; give a function, or an object: {function.__name__}(…)"
        )
    if not callable(function):
        raise ToolDefinitionError(f"tool: {_shown(function)} cannot be called; give a function")
    unwrapped = _unwrapped(function)
    name = (
        getattr(unwrapped, "__name__", "")
        or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(unwrapped).__name__).lower()
    )
    if name == "<lambda>":
        raise ToolDefinitionError(
            "tool: a lambda has no docstring and no annotations for a model to read; write a function with "
            "`def`"
        )
    return name


def is_async(function: Function) -> bool:
    """Return True if its call returns an awaitable."""
    unwrapped = _unwrapped(function)
    return inspect.iscoroutinefunction(unwrapped) or inspect.iscoroutinefunction(type(unwrapped).__call__)


def code_of(function: Function) -> CodeType | None:
    """Return the code of its author, if there is any."""
    unwrapped = _unwrapped(function)
    written = unwrapped if hasattr(unwrapped, "__name__") else type(unwrapped).__call__
    return getattr(inspect.unwrap(written), "__code__", None)


def is_unbound(function: Function) -> bool:
    """Return True for a method of a class without an object."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.name in {"self", "cls"} and first.annotation is first.empty


def parameters_of(tool_name: str, function: Function) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a call by name, without those set by a `functools.partial`.

    Raises:
        ToolDefinitionError: it cannot be called by name, or has meaningless annotations.
    """
    if is_unbound(function):
        return {}  # an unbound method; the one of an object is inspected
    if inspect.isgeneratorfunction(_unwrapped(function)) or inspect.isasyncgenfunction(_unwrapped(function)):
        raise ToolDefinitionError(
            f"tool {tool_name!r}: it yields; a tool returns once: return a list, and tell of the way "
            "there with `await context.progress(…)`"
        )
    try:
        found = inspect.signature(function, eval_str=True).parameters
    except NameError as error:
        raise ToolDefinitionError(
            f"tool {tool_name!r}: its annotations name {error.name!r}, which is not there at run time; "
            "import it at the head of the file, and not below `if TYPE_CHECKING`"
        ) from None
    except (SyntaxError, TypeError, ValueError) as error:
        raise ToolDefinitionError(f"tool {tool_name!r}: its signature cannot be read: {error}") from None
    given = function.keywords if isinstance(function, functools.partial) else {}
    return {name: parameter for name, parameter in found.items() if name not in given}


def arguments_of(
    tool_name: str, parameters: Mapping[str, inspect.Parameter], told: Mapping[str, str]
) -> type[BaseModel]:
    """Return the pydantic model of a tool's arguments; `told` are their descriptions in its docstring.

    Raises:
        ToolDefinitionError: a parameter that no model could fill in.
    """
    fields: dict[str, Any] = {
        name: _field(tool_name, parameter, told.get(name, "")) for name, parameter in parameters.items()
    }
    with warnings.catch_warnings():
        # A parameter may be called what pydantic calls an old method of its own: schema, json, copy.
        warnings.filterwarnings("ignore", message="Field name .* shadows an attribute")
        try:
            made = create_model(f"{tool_name}_arguments", __base__=Arguments, **fields)
            made.model_json_schema()
        except Exception as error:  # noqa: BLE001 -- as below
            raise ToolDefinitionError(
                _problem_of_types(tool_name, fields) or f"tool {tool_name!r}: {error}"
            ) from None
        return made


def _field(tool_name: str, parameter: inspect.Parameter, told: str) -> tuple[Any, Any]:
    where = f"tool {tool_name!r}: parameter {parameter.name!r}"
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
        raise ToolDefinitionError(
            f"{where} is {parameter.kind.description}; a model passes arguments by name, so declare "
            "each one as an ordinary parameter"
        )
    if parameter.annotation is parameter.empty:
        raise ToolDefinitionError(
            f"{where} has no type annotation; add one, the JSON schema that the model sees is made from it"
        )
    if parameter.name.startswith(("_", "model_config")):
        raise ToolDefinitionError(f"{where} has a name that a model cannot fill in; give it another one")
    annotation: Any = parameter.annotation
    if told and not _is_described(annotation, parameter.default):
        annotation = Annotated[annotation, Field(description=told)]
    return annotation, ... if parameter.default is parameter.empty else parameter.default


def _is_described(annotation: object, default: object) -> bool:
    fields = [*getattr(annotation, "__metadata__", ()), default]
    return any(isinstance(field, FieldInfo) and field.description for field in fields)


def _problem_of_types(tool_name: str, fields: Mapping[str, Any]) -> str:
    """Return the parameter with a type that no model can write, and why."""
    for name, field in fields.items():
        try:
            create_model("one", __base__=Arguments, **{name: field}).model_json_schema()
        except Exception as error:  # noqa: BLE001 -- pydantic has many errors for annotations; all become a line
            reason = str(getattr(error, "message", error)).partition("\n")[0].partition(". ")[0].rstrip(".")
            return (
                f"tool {tool_name!r}: parameter {name!r} is {_shown(field[0])}, of which there is no JSON "
                "schema for the model to read; take a str, number, list, dict, dataclass or pydantic model "
                f"({reason})"
            )
    return ""


def _shown(value: object) -> str:
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, str | int | float | None):
        return repr(value)[:100]
    inner = getattr(value, "__origin__", None)
    return _shown(inner) if isinstance(inner, type) and hasattr(value, "__metadata__") else f"{value}"[:100]


def _unwrapped(function: Function) -> Function:
    """Return the function behind a `functools.partial` or a method object."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


# Docstrings: description of the tool, and in the section Args (or after `:param name:`) of parameters.

_LINES = re.MULTILINE
_SECTION = re.compile(
    r"^(?:args|arguments|parameters):[ \t]*\n((?:[ \t]+.*\n?|[ \t]*\n)+)", _LINES | re.IGNORECASE
)
_ENTRY = re.compile(r"^\*{0,2}(\w+)[ \t]*(?:\([^)\n]*\))?:[ \t]*(.*(?:\n(?:[ \t]+.*|[ \t]*$))*)", _LINES)
_PARAM = re.compile(r"^:param[ \t]+(?:[^:\n]*[ \t])?(\w+):[ \t]*(.*(?:\n[ \t]+.*)*)\n?", _LINES)


def read_docstring(tool_name: str, function: Function) -> tuple[str, dict[str, str]]:
    """Return the description of a tool, and those of its parameters.

    Raises:
        ToolDefinitionError: it is missing, or describes an unknown parameter.
    """
    unwrapped = _unwrapped(function)
    text = inspect.getdoc(unwrapped) if hasattr(unwrapped, "__name__") else _doc_of_object(unwrapped)
    if not text or not text.strip():
        removed = "; Python runs with -OO, which removes them: start it with -O, or without"
        raise ToolDefinitionError(
            f"tool {tool_name!r} has no docstring"
            + (removed if sys.flags.optimize > 1 else "; write one, it tells the model what the tool is for")
        )
    rest, told = _split(text)
    parameters = inspect.signature(unwrapped).parameters
    for name in told:
        if name not in parameters:
            near = get_close_matches(name, parameters, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(parameters) or 'none'}"
            raise ToolDefinitionError(
                f"tool {tool_name!r}: its docstring tells of {name!r}, which is no parameter; {hint}"
            )
    return rest or f"Call {tool_name}.", told


def _doc_of_object(value: object) -> str | None:
    """Return the docstring of `__call__` or of the class, unless it was generated for a dataclass."""
    cls = type(value)
    doc = inspect.getdoc(cls.__call__) or inspect.getdoc(cls)
    return None if doc and doc.startswith(f"{cls.__name__}(") else doc


def _split(text: str) -> tuple[str, dict[str, str]]:
    """Separate the descriptions of parameters from the rest."""
    told: dict[str, str] = {}

    def take(section: re.Match[str]) -> str:
        entries = _ENTRY.findall(inspect.cleandoc(f"\n{section[1]}"))
        told.update({name: " ".join(words.split()) for name, words in entries})
        return ""

    rest = _SECTION.sub(take, text)
    told.update({name: " ".join(words.split()) for name, words in _PARAM.findall(rest)})
    return _PARAM.sub("", rest).strip(), told
