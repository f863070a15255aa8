"""The arguments of a tool call: from the text that the model wrote to Python values."""

from pydantic import BaseModel, ValidationError

from agents.tool import Tool


class InvalidArgumentsError(Exception):
    """The arguments do not fit the tool; the message tells the model which field is wrong and why."""


def parse_arguments(tool: Tool, text: str) -> dict[str, object]:
    """Return the validated arguments by name. Empty text counts as no arguments.

    Raises:
        InvalidArgumentsError: not JSON, or not what the tool's signature says.
    """
    try:
        arguments = tool.arguments.model_validate_json(text.strip() or "{}")
    except ValidationError as error:
        raise InvalidArgumentsError(_explain(tool, error)) from None
    return _shallow(arguments)


def _shallow(arguments: BaseModel) -> dict[str, object]:
    """Return the fields as they are: a nested model stays the model that the signature asks for."""
    return {name: getattr(arguments, name) for name in type(arguments).model_fields}


def _explain(tool: Tool, error: ValidationError) -> str:
    problems = [
        f"- {'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    ]
    expected = ", ".join(tool.arguments.model_fields) or "none"
    return "\n".join([f"invalid arguments for {tool.name}:", *problems, f"expected arguments: {expected}"])
