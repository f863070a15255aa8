"""Tools: annotated Python functions that a model may call."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, overload

from pydantic import BaseModel, ConfigDict, JsonValue, create_model

from agents.errors import ToolDefinitionError
from agents.tool_context import ToolContext

DEFAULT_TIMEOUT = timedelta(seconds=30)


class _Arguments(BaseModel):
    """The base of the argument models: unknown arguments are errors, not noise."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Tool:
    """A function with what the model and the loop have to know of it.

    `timeout` bounds one attempt (default 30 s). `idempotent` says that running it again with the same
    idempotency key has no second effect, so it may be repeated after a crash.
    """

    function: Callable[..., Any]
    name: str
    description: str
    timeout: timedelta = DEFAULT_TIMEOUT
    idempotent: bool = False

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The pydantic model of the arguments, made from the signature."""
        fields: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name != self.context_parameter:
                fields[name] = _field(self.name, parameter)
        return create_model(f"{self.name}_arguments", __base__=_Arguments, **fields)

    @cached_property
    def parameters(self) -> dict[str, JsonValue]:
        """The JSON schema of the arguments, as OpenAI's `function.parameters` wants it."""
        schema: dict[str, JsonValue] = self.arguments.model_json_schema()
        schema.pop("title", None)
        return schema

    @cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that takes a `ToolContext`, if there is one."""
        for name, parameter in self._parameters.items():
            if parameter.annotation is ToolContext:
                return name
        return None

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.function, eval_str=True).parameters)


def _field(tool_name: str, parameter: inspect.Parameter) -> tuple[Any, Any]:
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
        raise ToolDefinitionError(
            f"tool {tool_name!r}: parameter {parameter.name!r} is {parameter.kind.description}; "
            "a model passes arguments by name, so declare each one as an ordinary parameter"
        )
    if parameter.annotation is parameter.empty:
        raise ToolDefinitionError(
            f"tool {tool_name!r}: parameter {parameter.name!r} has no type annotation; add one, "
            "the JSON schema that the model sees is made from it"
        )
    default = ... if parameter.default is parameter.empty else parameter.default
    return parameter.annotation, default


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, idempotent: bool = False, timeout: timedelta = DEFAULT_TIMEOUT
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout: timedelta = DEFAULT_TIMEOUT,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Turn an annotated function, sync or async, into a tool.

    Its docstring is the description that the model reads, its signature becomes the JSON schema, and a
    parameter annotated `ToolContext` receives the context of the call instead of a model's argument.

    Raises:
        ToolDefinitionError: no docstring, no time, or a parameter without annotation.
    """

    def decorate(decorated: Callable[..., Any]) -> Tool:
        tool_name = name or decorated.__name__
        description = inspect.getdoc(decorated)
        if not description:
            raise ToolDefinitionError(
                f"tool {tool_name!r} has no docstring; write one, it tells the model what the tool is for"
            )
        if timeout <= timedelta(0):
            raise ToolDefinitionError(f"tool {tool_name!r}: its timeout is {timeout}; give it some time")
        defined = Tool(decorated, tool_name, description, timeout, idempotent)
        _ = defined.parameters  # a bad signature fails here, where it is written
        return defined

    return decorate(function) if function else decorate
