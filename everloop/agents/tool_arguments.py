"""Arguments of a tool call: from the model's text to Python values."""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from types import GeneratorType
from typing import Any, cast

from pydantic import BaseModel, JsonValue, RootModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from everloop.agents.tool import Tool
from everloop.runtime.schema_validation import SchemaUnfitError, find_schema_violations_soon
from everloop.runtime.user_code import error_text, translate_base_exceptions
from everloop.workflows.contract.parts import cut

# The result of a tool call: from a Python value to the text that the model reads.

EXCERPT_LENGTH = 200


def result_text(value: object, on_foreign: Callable[[str], None]) -> str:
    """Return a string unchanged and everything else as JSON, with bytes in base64.

    Values without a form in JSON are written by `str`; `on_foreign` is called with the name of their
    type.
    """
    if isinstance(value, str):
        return value

    def write(foreign: object) -> str:
        on_foreign(type(foreign).__name__)
        return str(foreign)

    try:
        return to_json(value, bytes_mode="base64", fallback=write).decode()
    except PydanticSerializationError:
        # Fields of a pydantic model have its own format: bytes as text, by default, which not all are.
        return to_json(_ANYTHING.dump_python(value), bytes_mode="base64", fallback=write).decode()


_ANYTHING = TypeAdapter[object](object)


def excerpt(text: str) -> str:
    """Return the beginning of a result, for subscribers."""
    return cut(text, EXCERPT_LENGTH)


_MAX_PROBLEMS = 20
"""Maximum number of errors for the model."""


class InvalidArgumentsError(Exception):
    """The arguments do not match the tool; the message for the model has the field and the reason."""


class _Object(RootModel[dict[str, JsonValue]]):
    """The arguments of a tool that has a schema instead of a signature."""


async def parse_arguments(tool: Tool, text: str) -> BaseModel:
    """Return the validated arguments. Empty text counts as no arguments.

    Raises:
        InvalidArgumentsError: not JSON, or no match for the tool's signature or schema.
    """
    arguments = read_arguments(tool, text)
    if isinstance(arguments, _Object) and (problems := await _violations(tool, arguments.root)):
        raise InvalidArgumentsError(_explain(tool, problems))
    return arguments


def read_arguments(tool: Tool, text: str) -> BaseModel:
    """Return the arguments, validated by the signature of a tool, but not by a schema.

    Raises:
        InvalidArgumentsError: not JSON, or no match for the tool's signature.
    """
    model = _Object if tool.schema is not None else tool.arguments
    try:
        with translate_base_exceptions():
            arguments = model.model_validate_json(text.strip() or "{}")
            return _with_lists(arguments) if tool.takes_iterators else arguments
    except ValidationError as error:
        raise InvalidArgumentsError(_explain(tool, _problems(error))) from None
    except Exception as error:  # noqa: BLE001 -- its validators are the user's code
        problem = f"arguments: a validator raised {error_text(error)}"
        raise InvalidArgumentsError(_explain(tool, [problem])) from None


def values_of(arguments: BaseModel) -> dict[str, object]:
    """Return the arguments of the function call: nested models keep the types of the signature."""
    return {"arguments": arguments.root} if isinstance(arguments, _Object) else dict(arguments)


_ITERATORS = (GeneratorType, type(TypeAdapter[Iterable[int]](Iterable[int]).validate_python(())))


def _with_lists(value: object) -> Any:  # noqa: ANN401 -- the same type, except for iterators
    """Return a value with lists in place of iterators, which could be read only once."""
    if isinstance(value, _ITERATORS):
        return [_with_lists(each) for each in cast("Iterable[object]", value)]
    if isinstance(value, tuple):
        kind: Callable[..., object] = type(cast("object", value))
        items = [_with_lists(each) for each in cast("tuple[object, ...]", value)]
        return kind(*items) if hasattr(kind, "_fields") else tuple(items)
    if isinstance(value, list):
        listed = cast("list[object]", value)
        listed[:] = map(_with_lists, listed)
    elif isinstance(value, dict):
        named = cast("dict[object, object]", value)
        named.update({name: _with_lists(each) for name, each in named.items()})
    elif isinstance(value, BaseModel) or is_dataclass(value):
        names = type(value).model_fields if isinstance(value, BaseModel) else [f.name for f in fields(value)]
        for name in names:
            object.__setattr__(value, name, _with_lists(getattr(value, name)))  # it may be frozen
    return cast("object", value)


def as_json(arguments: BaseModel) -> dict[str, JsonValue]:
    """Return the complete arguments of the tool, with defaults, for people and for policies."""
    if isinstance(arguments, _Object):
        return deepcopy(arguments.root)
    try:
        with translate_base_exceptions():
            return arguments.model_dump(mode="json", warnings=False, fallback=str)
    except Exception:  # noqa: BLE001 -- a type of the tool's own that cannot be serialized
        return {name: _shown(value) for name, value in values_of(arguments).items()}


def _shown(value: object) -> str:
    try:
        with translate_base_exceptions():
            return repr(value)
    except Exception:  # noqa: BLE001 -- it is the user's code
        return f"({type(value).__name__})"


def _problems(error: ValidationError) -> list[str]:
    return [
        f"{_place(problem['loc'])}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    ]


async def _violations(tool: Tool, arguments: dict[str, JsonValue]) -> list[str]:
    """Return the violations of the schema, without long values."""
    try:
        found = await find_schema_violations_soon(tool.parameters, [arguments], most=_MAX_PROBLEMS)
    except SchemaUnfitError as error:
        return [f"they cannot be checked: {error}"]
    return [f"{_place(problem.path)}: {excerpt(problem.message)}" for problem in found]


def _place(path: Sequence[str | int]) -> str:
    return ".".join(map(str, path)) or "arguments"


def _explain(tool: Tool, problems: Sequence[str]) -> str:
    lines = [f"- {problem}" for problem in problems]
    properties = tool.parameters.get("properties")
    expected = (isinstance(properties, dict) and ", ".join(properties)) or "none"
    return "\n".join([f"invalid arguments for {tool.name}:", *lines, f"expected arguments: {expected}"])
