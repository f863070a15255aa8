"""Tools: annotated Python functions that a model may call."""

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import (
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    Protocol,
    Self,
    TypedDict,
    Unpack,
    get_args,
    get_origin,
    overload,
)

from pydantic import AfterValidator, BaseModel, Field, JsonValue, SkipValidation, create_model
from typing_extensions import ParamSpec, TypeVar  # with defaults

from everloop.agents.artifact_drafts import DraftReader
from everloop.agents.errors import ToolDefinitionError, definition
from everloop.agents.hooks import Approvers
from everloop.agents.limits import BytesOrDefault, Retries, TaskQueue, Time
from everloop.agents.tool_context import ToolContext
from everloop.agents.tool_signature import (
    NAME_RULE,
    Arguments,
    arguments_of,
    is_async,
    is_tool_name,
    is_unbound,
    name_of,
    parameters_of,
    read_docstring,
)
from everloop.runtime.schema_validation import problem_of_schema
from everloop.workflows.contract.messages import ListedTool
from everloop.workflows.contract.questions import OWNER
from everloop.workflows.contract.tasks import ToolSpec

DEFAULT_TIMEOUT = timedelta(seconds=30)

ToolApproval = bool | Callable[[Mapping[str, Any]], bool]
"""Whether a call needs an approval: always, never, or by a function of its arguments."""


_POLICY = "True, False, or a plain function"


def _check_policy(policy: object) -> object:
    if inspect.iscoroutinefunction(policy):
        raise ValueError(f"needs_approval is an async function; give {_POLICY}")
    return policy


Approval = TypeVar("Approval")

Policy = Annotated[Approval, AfterValidator(_check_policy), Field(description=_POLICY)]
"""Whether an approval is needed: a bool, or a function that is not async."""


CacheTime = Annotated[Time | None, Field(description="a timedelta above 0, or None for no cache")]


Given = ParamSpec("Given", default=...)
Returned = TypeVar("Returned", default=Any)
Owner = TypeVar("Owner")
Rest = ParamSpec("Rest")
Got = TypeVar("Got")


@definition
class Tool(Generic[Given, Returned]):
    """A function with its description for the model and its settings; it is called like the function.

    `tool` makes one. A tool that is a method, written in a class, is offered as that of an object.

    Raises:
        AgentDefinitionError: a wrong setting.
        ToolDefinitionError: a parameter without annotation, or a schema that is invalid, is not that of an
            object, or refers to another place.
    """

    function: Callable[Given, Returned]
    name: str
    description: str
    timeout: Time = DEFAULT_TIMEOUT
    """Of one attempt."""
    idempotent: bool = False
    """Running it again with the same idempotency key has no second effect, so it may be repeated after a
    crash."""
    needs_approval: Policy[ToolApproval] = False
    """Whether it needs an approval before it runs."""
    fallback: str | None = None
    """The name of the tool that gets the same arguments if this one fails."""
    retries: Retries | None = None
    """Retries after a failure (default: none, the model gets the error at once)."""
    task_queue: TaskQueue | None = None
    """Its queue, for workers that serve it (default: its agent's, or that of all tools)."""
    unknown_outcome: Literal["tell", "ask"] = "tell"
    """Who decides about a call whose end was lost: the model ("tell"), or people, who may run it again
    ("ask")."""
    serial: bool = False
    """Of one reply of the model, the calls of serial tools run one after another, in their order (default:
    side by side with all others)."""
    approvers: Approvers = OWNER
    """Who approves a call that needs it, and decides whether one whose end was lost runs again: the owner of
    the task, or in the owner's place callers with this scope, such as "tasks:approve"."""
    max_result: BytesOrDefault = None
    """Bytes of a result that the model gets at once (default: that of the agent)."""
    quick: bool = False
    """It takes a second at most, and so runs in the worker of its task's workflow, as a local activity,
    without a queue in between. It has to be idempotent."""
    cache: CacheTime = None
    """How long a result is reused for calls with the same arguments (default: not at all)."""
    cache_for: Literal["context", "owner", "everybody"] = "context"
    """Scope of the cache: the owner within the same context, within all contexts, or every caller of the
    agent."""
    batch: bool = False
    """Calls of one reply on the same worker run as one: the function takes a list of a pydantic model of
    the arguments of one call, and returns a list of as many results, in the same order. One of these
    may be an exception."""
    draft_of: DraftReader | None = None
    """Reads the draft of an artifact from a call; subscribers see it while the model writes the call."""
    agent: str | None = None
    """The agent that runs the call as a task of its own; the function then only has the signature."""
    handoff: str | None = None
    """The agent that takes the task over; the function then only has the signature."""
    schema: SkipValidation[Mapping[str, JsonValue] | None] = None
    """The JSON schema of the arguments, in place of a signature: the function is then async, and called
    with `arguments`, a dict that matches it, and `context`, a `ToolContext`."""
    abandoned: SkipValidation[Callable[[ToolContext], Awaitable[None]] | None] = None
    """Releases resources that a call has started elsewhere, possibly more than once. It is called after a
    rejected or timed-out question, and after a cancellation of the call or its task."""
    told: Mapping[str, str] = Field(default_factory=dict)
    """Descriptions of the parameters, by name; `tool` reads them from the docstring."""

    def __post_init__(self) -> None:
        _ = self.parameters  # a bad signature, or schema, fails here, at the definition
        if problem := self._problem_of_settings():
            raise ToolDefinitionError(f"tool {self.name!r}: {problem}")

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Returned:
        """Call the function itself: no task, no timeout, no retries."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type[object], /) -> Self: ...
    @overload
    def __get__(
        self: "Tool[Concatenate[Owner, Rest], Got]", instance: Owner, owner: type[Any], /
    ) -> "Tool[Rest, Got]": ...
    def __get__(self, instance: object, owner: type[Any], /) -> Any:
        """Return the tool of an object: its method is called with it."""
        if instance is None or not self.is_unbound:
            return self
        return replace(self, function=self.function.__get__(instance, owner))

    @cached_property
    def is_unbound(self) -> bool:
        """Whether it is a method of a class without an object, which cannot be offered."""
        return self.schema is None and is_unbound(self.function)

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The pydantic model of the arguments, made from the signature; tools with a schema have none."""
        if self.batch:
            return create_model(f"{self.name}_arguments", __base__=(self._listed_model, Arguments))
        parameters = {name: each for name, each in self._parameters.items() if name != self.context_parameter}
        return arguments_of(self.name, parameters, self.told)

    @cached_property
    def takes_iterators(self) -> bool:
        """Whether it has a parameter of type `Iterable[…]`, which pydantic makes readable only once."""
        return self.schema is None and "'type': 'generator'" in str(self.arguments.__pydantic_core_schema__)

    @cached_property
    def parameters(self) -> dict[str, JsonValue]:
        """The JSON schema of the arguments, for OpenAI's `function.parameters`."""
        if self.schema is not None:
            return _checked(self.name, self.schema)
        schema: dict[str, JsonValue] = self.arguments.model_json_schema()
        schema.pop("title", None)
        return schema

    @cached_property
    def batch_parameter(self) -> str | None:
        """The name of the parameter that takes the arguments of several calls, if there is one."""
        return next(iter(self._parameters)) if self.batch else None

    @cached_property
    def _listed_model(self) -> type[BaseModel]:
        taken = [] if self.schema else [each.annotation for each in self._parameters.values()]
        model = get_args(taken[0])[0] if len(taken) == 1 and get_origin(taken[0]) is list else None
        if inspect.isclass(model) and issubclass(model, BaseModel):
            return model
        raise ToolDefinitionError(
            f"tool {self.name!r}: with batch=True it takes one parameter, a list of a pydantic model of "
            "the arguments of one call, such as `calls: list[Lookup]`"
        )

    @cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that takes a `ToolContext`, if there is one."""
        if self.schema is not None:
            return "context"
        taking = [name for name, each in self._parameters.items() if each.annotation is ToolContext]
        if len(taking) > 1:
            raise ToolDefinitionError(
                f"tool {self.name!r}: {' and '.join(taking)} all take the ToolContext; one is enough"
            )
        return taking[0] if taking else None

    @cached_property
    def is_async(self) -> bool:
        return self.schema is not None or is_async(self.function)

    def _problem_of_settings(self) -> str:
        """Return the conflicting settings; empty if there are none."""
        if self.quick and not self.idempotent:
            return (
                "it is quick, and not idempotent; a quick tool runs again where its worker was lost: give it "
                "idempotent=True if that has no second effect, or leave quick out"
            )
        if self.cache_for != "context" and self.cache is None:
            return f'cache_for="{self.cache_for}" is for cached results; say for how long: cache=timedelta(…)'
        if self.quick and self.task_queue:
            return (
                "it is quick, and has a task_queue; a quick tool runs in the worker of its task's workflow: "
                "leave out one of the two"
            )
        return ""

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return parameters_of(self.name, self.function)


class ToolSettings(TypedDict, total=False):
    """Arguments of `tool` besides names; see `Tool`."""

    timeout: timedelta
    idempotent: bool
    needs_approval: ToolApproval
    retries: Retries | None
    task_queue: str | None
    unknown_outcome: Literal["tell", "ask"]
    serial: bool
    approvers: str
    max_result: int | None
    quick: bool
    cache: timedelta | None
    cache_for: Literal["context", "owner", "everybody"]
    batch: bool


def _checked(tool_name: str, schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the valid schema of a tool's arguments: always that of an object."""
    if (kind := schema.get("type", "object")) != "object":
        raise ToolDefinitionError(
            f"tool {tool_name!r}: its schema is that of type {kind!r}; arguments are passed by name, "
            "so it has to be that of an object"
        )
    if problem := problem_of_schema(schema):
        raise ToolDefinitionError(f"tool {tool_name!r}: {problem}")
    return {"type": "object", "properties": {}, **schema}


@overload
def tool(function: Callable[Given, Returned], /) -> Tool[Given, Returned]: ...
@overload
def tool(
    *, name: str | None = None, fallback: str | Tool | None = None, **settings: Unpack[ToolSettings]
) -> "_Decorator": ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    fallback: str | Tool | None = None,
    **settings: Unpack[ToolSettings],
) -> Any:
    """Turn an annotated function, sync or async, into a tool.

    Its docstring is the description that the model reads, but for its section `Args:`, which goes to the
    parameters; its signature becomes the JSON schema, and a parameter annotated `ToolContext` receives the
    context of the call instead of a model's argument. Methods of objects, `functools.partial` and objects
    with `__call__` are functions, too. The tool is called as the function is.

    `fallback` is another tool of the agent, or its name. For the rest see `Tool`.

    >>> from datetime import timedelta
    >>> @tool(timeout=timedelta(minutes=2), idempotent=True)
    ... def word_count(text: str) -> int:
    ...     'Count the words of a text.'
    ...     return len(text.split())
    >>> word_count("Well done")
    2
    >>> word_count.parameters["required"]
    ['text']

    Raises:
        AgentDefinitionError: a wrong setting.
        ToolDefinitionError: no docstring, or a parameter without annotation.
    """

    def decorate(decorated: Callable[..., Any]) -> Tool:
        if isinstance(decorated, Tool):
            raise ToolDefinitionError(
                f"tool {decorated.name!r} is a tool already; leave out one of the two @tool"
            )
        tool_name = name or name_of(decorated)
        if not is_tool_name(tool_name):
            raise ToolDefinitionError(f"tool {tool_name!r}: {NAME_RULE}; give another name")
        name_of(decorated)
        description, told = read_docstring(tool_name, decorated)
        fallback_name = fallback.name if isinstance(fallback, Tool) else fallback
        return Tool(decorated, tool_name, description, fallback=fallback_name, told=told, **settings)

    if isinstance(function, str):
        raise ToolDefinitionError(
            f"tool({function!r}): a name is given by name; write @tool(name={function!r})"
        )
    return decorate if function is None else decorate(function)


class _Decorator(Protocol):
    """Makes a tool of a function, with its settings."""

    def __call__(self, function: Callable[Given, Returned], /) -> Tool[Given, Returned]: ...


# Pinned fields of tools, and their descriptions for the model.


def spec_of(tool: Tool, *, asks: bool = False) -> ToolSpec:
    """Return the pinned fields of a tool of the agent's definition; `asks`: people may be asked first."""
    return ToolSpec(
        timeout=tool.timeout.total_seconds(),
        task_queue=tool.task_queue,
        fallback=tool.fallback,
        agent=tool.agent,
        handoff=tool.handoff,
        serial=tool.serial,
        asks=asks,
        quick=tool.quick,
        batch=tool.batch,
        abandons=tool.abandoned is not None,
    )


def listed_spec_of(tool: Tool, plugin: str, *, asks: bool = False) -> ToolSpec:
    """Return the pinned fields of a tool that a plugin has listed for a task."""
    pinned = {"plugin": plugin, "digest": digest_of(tool), "needs_approval": tool.needs_approval is True}
    return spec_of(tool, asks=asks).model_copy(update=pinned)


def listed(tool: Tool) -> ListedTool:
    """Return the description of a tool for the model."""
    return ListedTool(name=tool.name, description=tool.description, parameters={**tool.parameters})


def digest_of(tool: Tool) -> str:
    """Return 12 hex digits over name, description and schema of a tool."""
    described = json.dumps([tool.name, tool.description, tool.parameters], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:12]
