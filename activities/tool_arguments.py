"""The arguments of a tool call: from the text that the model wrote to Python values."""

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError

from agents.tool import Tool


class InvalidArgumentsError(Exception):
    """The arguments do not fit the tool; the message tells the model which field is wrong and why."""


def parse_arguments(tool: Tool, text: str) -> BaseModel:
    """Return the validated arguments. Empty text counts as no arguments.

    Raises:
        InvalidArgumentsError: not JSON, or not what the tool's signature says.
    """
    try:
        return tool.arguments.model_validate_json(text.strip() or "{}")
    except ValidationError as error:
        raise InvalidArgumentsError(_explain(tool, error)) from None


def values_of(arguments: BaseModel) -> dict[str, object]:
    """Return the arguments by name: a nested model stays the model that the signature asks for."""
    return dict(arguments)


def as_json(arguments: BaseModel) -> dict[str, JsonValue]:
    """Return the arguments as the tool gets them, defaults and all, for people and for policies."""
    try:
        return arguments.model_dump(mode="json", warnings=False, fallback=str)
    except PydanticSerializationError:  # a type of the tool's own that cannot be written
        return {name: repr(value) for name, value in values_of(arguments).items()}


def _explain(tool: Tool, error: ValidationError) -> str:
    problems = [
        f"- {'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    ]
    expected = ", ".join(tool.arguments.model_fields) or "none"
    return "\n".join([f"invalid arguments for {tool.name}:", *problems, f"expected arguments: {expected}"])
