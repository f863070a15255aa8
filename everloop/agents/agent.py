"""Definition of an agent by its author."""

import dataclasses
import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Generic, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, InstanceOf, PlainValidator
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from typing_extensions import TypeVar  # with defaults

from everloop.agents.errors import AgentDefinitionError, definition, display_path, rendered
from everloop.agents.guard import Guard
from everloop.agents.hooks import HOOKS
from everloop.agents.limits import Bytes, Compaction, Count, Limits, Memory, ModelSettings, TaskQueue
from everloop.agents.output_models import problem_of_output
from everloop.agents.plugins import Plugin, check_plugins
from everloop.agents.tool import Policy, Tool, listed, spec_of
from everloop.agents.tool_signature import is_async
from everloop.workflows.contract.agent_settings import TOOL_CHOICES
from everloop.workflows.contract.calls import BUILT_IN_TOOLS, CREATE_TASK
from everloop.workflows.contract.messages import AssistantMessage, ListedTool, TranscriptMessage
from everloop.workflows.contract.names import AGENT_ID_RULE, is_agent_id
from everloop.workflows.contract.tasks import AgentSpec

Texts = Annotated[Sequence[str], Field(description="a list of texts")]

# Capabilities of an agent (A2A 1.0 §4.4.5, AgentSkill).


@definition
class Skill:
    """A capability of an agent, for people and programs that search agents by their cards."""

    id: str
    name: str
    description: str
    tags: Texts = ()
    examples: Texts = ()
    """Example prompts."""
    input_modes: Texts = ()
    """Media types; empty: those of the agent."""
    output_modes: Texts = ()


# Agents without a language model: a function of the messages.


@dataclasses.dataclass(frozen=True)
class Turn:
    """Input of a responder.

    `messages` are all messages of the transcript, oldest first. `decides`: the reply decides whether
    there is a task at all (agents with `routing="auto"`): a text is the answer, a call of `create_task`
    makes a task.
    """

    messages: Sequence[TranscriptMessage]
    decides: bool


Responder = Callable[[Turn], Awaitable[AssistantMessage]]
"""Replies instead of a model: with a text, or with calls of the agent's tools. It may be called again for
the same turn after a crash; the reply that was stored first counts."""


AgentApproval = bool | Callable[[str, Mapping[str, Any]], bool]
"""Whether a call needs an approval: always, never, or by a function of tool name and arguments."""


def _check_responder(responder: Responder) -> Responder:
    if not is_async(responder):
        raise ValueError("respond is not async; write `async def respond(turn: Turn) -> AssistantMessage`")
    try:
        inspect.signature(responder).bind(None)
    except TypeError:
        raise ValueError("respond takes one parameter, the Turn; it is called with nothing else") from None
    return responder


def _check_output(output: object) -> object:
    if output is None or (inspect.isclass(output) and issubclass(output, BaseModel)):
        return output
    expected = "the class of a pydantic model"
    if isinstance(output, BaseModel):
        expected = f"its class: output={type(output).__name__}"
    raise ValueError(f"output is {rendered(output)}; give {expected}")


ModelName = Annotated[str, Field(min_length=1)]

Output = TypeVar(  # noqa: PLC0105 -- authors use it in signatures
    "Output", bound=BaseModel, default=Any, covariant=True
)
"""Type of the answers: a pydantic model, if the agent has one."""


@definition
class Agent(Generic[Output]):
    """An agent: its name, its models, and its tools.

    `Agent[Report]` answers with a pydantic model, `Report`.

    >>> from everloop import Agent, prompt, tools
    >>> def temperature(city: str) -> str:
    ...     'Tell the temperature of a city in degrees Celsius.'
    ...     return {"Oslo": "4", "Rome": "17"}.get(city, "unknown")
    >>> agent = Agent(
    ...     id="weather",
    ...     name="Weather",
    ...     description="Knows the temperature of two cities.",
    ...     plugins=[prompt("Answer in one sentence."), tools(temperature)],
    ... )
    >>> list(agent.tools)
    ['temperature']

    Raises:
        AgentDefinitionError: a wrong setting, two tools of one name, or settings that do not go together.
    """

    id: str
    name: str
    description: str
    model: Annotated[ModelName | None, Field(description="the name of a model, or None")] = None
    """None: the worker's default (EVERLOOP_MODEL)."""
    plugins: Annotated[Sequence[InstanceOf[Plugin]], BeforeValidator(check_plugins)] = ()
    limits: Limits = Field(default_factory=Limits)
    parallel_tools: Count = 5
    """Concurrency limit of a task's tools."""
    deduplicate: bool = True
    """False makes every SendMessage a new task, even one with a repeated messageId."""
    models: Annotated[Sequence[ModelName], Field(description="a list of names of models")] = ()
    """Instead of `model`: the first is called, the others are fallbacks if it cannot answer."""
    on_model_failure: Literal["fail", "wait"] = "fail"
    """If none of them can answer: the task fails, or waits for an operator's `resume`."""
    compaction: Compaction = Field(default_factory=Compaction)
    """Compaction of a prompt that gets too long."""
    needs_approval: Policy[AgentApproval] = False
    """Whether a tool of this agent needs an approval, in addition to the tool's own setting."""
    ensure_artifact: bool = False
    """A task does not end without an artifact; the model has to write one."""
    model_takes: Annotated[
        Sequence[Annotated[str, Field(pattern="/")]],
        Field(description="a list of media types, such as 'image/*'"),
    ] = ("image/*", "application/pdf")
    """Media types of files that the model gets unchanged, `*` for any; of other files it gets the text, or
    a line that describes them."""
    skills: Sequence[Skill] = ()
    """For agent cards; default: the agent as a single skill."""
    input_modes: Texts = ()
    """Media types that clients may send (default: text, JSON, and any file); a message with others is
    refused."""
    output_modes: Texts = ()
    """Media types that clients may get; a message that accepts none of them is refused."""
    version: str = ""
    """Version of the definition (default on cards: Everloop's). A task ends with the version of its start,
    as long as the worker has that one too."""
    routing: Literal["task", "auto"] = "task"
    """With "auto" the first model call decides, by calling `create_task` or not, whether a message becomes
    a task, or is answered at once by a message; such an agent remembers the messages of its context."""
    respond: Annotated[
        Annotated[Responder, AfterValidator(_check_responder)] | None, Field(description="an async function")
    ] = None
    """Replies instead of a language model."""
    memory: Memory | None = Field(default_factory=Memory)
    """Recall of earlier tasks of the context; None: nothing is recalled or stored."""
    output: Annotated[type[Output] | None, PlainValidator(_check_output)] = None
    """A pydantic model that the answer has to match, as data."""
    task_queue: TaskQueue | None = None
    """Queue of its model, tool and plugin calls, for workers that serve this queue (`everloop worker
    --queues`); default: that of all agents."""
    priority: Annotated[int | None, Field(ge=1, le=5, description="a whole number, 1 (first) to 5")] = None
    """Priority of its tasks where work waits, 1 (first) to 5 (default 3, Temporal's)."""
    settings: ModelSettings = Field(default_factory=ModelSettings)
    """Parameters and timeouts of its model calls."""
    max_result: Bytes = 65_536
    """Bytes of a tool's result that the model gets at once; it may read the rest in pages."""

    def __post_init__(self) -> None:
        problem = self._problem() or _problem_of_output(self)
        problem = problem or _problem_of_names(self) or _problem_of_tools(self)
        if problem:
            raise AgentDefinitionError(f"agent {self.id!r}: {problem}")
        object.__setattr__(self, "_defined_at", _caller())

    @property
    def place(self) -> str:
        """File and line of the definition, for error messages."""
        file, line = self.__dict__["_defined_at"]
        return f"{display_path(Path(file))}:{line}"

    def _problem(self) -> str:
        if not is_agent_id(self.id):
            return f"its id has to be of {AGENT_ID_RULE}, because it stands in addresses and ids"
        if self.ensure_artifact and self.artifact_tool is None:
            return "ensure_artifact needs a tool that writes one; add the plugin artifacts()"
        if self.model and self.models:
            return "model and models are both given; put all into models, in the order they are asked"
        if twice := _repeated(self.models):
            return f"models names {twice!r} twice; it would be asked again in vain"
        return ""

    @cached_property
    def ordered_plugins(self) -> tuple[Plugin, ...]:
        """The plugins in their order of calls: by priority, then as listed."""
        return tuple(sorted(self.plugins, key=lambda plugin: plugin.priority))

    @cached_property
    def hooks(self) -> tuple[str, ...]:
        """The names of all hooks of the plugins."""
        return tuple(hook for hook in HOOKS if any(plugin.overrides(hook) for plugin in self.plugins))

    @cached_property
    def offered_tools(self) -> tuple[ListedTool, ...]:
        """The tools as described to the model."""
        return tuple(map(listed, self.tools.values()))

    @cached_property
    def lists_tools(self) -> bool:
        """Whether any plugin lists tools when a task begins."""
        return any(plugin.overrides("list_tools") for plugin in self.plugins)

    @cached_property
    def digest(self) -> str:
        """Hash that stands in for a missing version: of prompts, tools' schemas, output type and settings.

        A change of code alone does not change it.
        """
        prompts = [
            prompt.text if isinstance(prompt.text, str) else "" for p in self.plugins for prompt in p.prompts
        ]
        tools = [[tool.name, tool.description, tool.parameters] for tool in self.tools.values()]
        output = self.output.model_json_schema() if self.output else None
        described = json.dumps([prompts, tools, output, self._spec.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()[:12]

    @cached_property
    def tools(self) -> dict[str, Tool]:
        """The tools by name, in the order of the plugins."""
        return {tool.name: tool for plugin in self.plugins for tool in plugin.tools}

    def may_ask(self, tool: Tool) -> bool:
        """Return True if the definition allows questions to people before the tool runs."""
        return (
            bool(self.needs_approval or tool.needs_approval)  # a function may return either
            or any(plugin.may_ask(tool.name) for plugin in self.plugins)
        )

    @cached_property
    def asks_model(self) -> bool:
        """Whether it calls a language model: for replies, summaries of its memory, or its narrator."""
        sums_up = self.memory is not None and self.memory.strategy != "window"
        narrates = any(plugin.narrator for plugin in self.plugins)
        return self.respond is None or sums_up or narrates or self.compaction.strategy == "summary"

    @cached_property
    def task_queues(self) -> frozenset[str]:
        """The queues of its own, and of its tools, that a worker has to serve besides those of all agents."""
        named = {self.task_queue, *(tool.task_queue for tool in self.tools.values())}
        return frozenset(queue for queue in named if queue)

    @cached_property
    def artifact_tool(self) -> str | None:
        """The name of the tool that makes an artifact, if a plugin has one."""
        return next((plugin.artifact_tool for plugin in self.plugins if plugin.artifact_tool), None)

    @cached_property
    def spec(self) -> AgentSpec:
        """The part of the definition that a task pins when it starts."""
        return self._spec.model_copy(update={"version": self.version or self.digest})

    @cached_property
    def _spec(self) -> AgentSpec:
        limits = self.limits
        return AgentSpec(
            id=self.id,
            model=self.models[0] if self.models else self.model,
            fallback_models=tuple(self.models[1:]),
            on_model_failure=self.on_model_failure,
            compaction=self.compaction,
            max_iterations=limits.iterations,
            max_tokens=limits.tokens,
            max_cost=limits.cost,
            wall_clock=limits.wall_clock.total_seconds() if limits.wall_clock else None,
            max_tool_failures=limits.tool_failures,
            max_parallel_tools=self.parallel_tools,
            tools={name: spec_of(tool, asks=self.may_ask(tool)) for name, tool in self.tools.items()},
            deduplicate=self.deduplicate,
            artifact_tool=self.artifact_tool if self.ensure_artifact else None,
            routing=self.routing,
            memory=self.memory,
            narrator=next((plugin.narrator for plugin in self.plugins if plugin.narrator), None),
            guards=tuple(plugin.rules for plugin in self.ordered_plugins if isinstance(plugin, Guard)),
            hooks=self.hooks,
            lists_tools=self.lists_tools,
            has_output=self.output is not None,
            max_sub_agents=limits.sub_agents,
            task_queue=self.task_queue,
            priority=self.priority,
            settings=self.settings,
            last_call=limits.last_call and self.respond is None,
        )


_DEFINERS = ("everloop.agents.", "pydantic.", "dataclasses")
"""Modules between an agent and the code that defines it."""


def _caller() -> tuple[str, int]:
    """Return the file and line of the code that defines an agent."""
    frame = inspect.currentframe()
    while frame and f"{frame.f_globals.get('__name__', '')}.".startswith(_DEFINERS):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def _problem_of_output(agent: Agent) -> str:
    """Return the error of an agent's output model; empty if it is valid."""
    if agent.output is None:
        return ""
    if agent.output is BaseModel:
        return "output is BaseModel itself; give a model of your own"
    try:
        problem = problem_of_output(agent.output)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        problem = error.message.partition("\n")[0]
        return f"there is no JSON schema of output {agent.output.__name__}, for the model to read: {problem}"
    return problem and f"clients could not read the data of output {agent.output.__name__}: {problem}"


def _problem_of_names(agent: Agent) -> str:
    """Return the error in names of tools and plugins; empty if they are valid."""
    if CREATE_TASK in agent.tools:
        return f"a tool cannot be called {CREATE_TASK!r}: with that one the model asks for a task"
    if taken := next((name for name in BUILT_IN_TOOLS if name in agent.tools), ""):
        return f"a tool cannot be called {taken!r}: every agent has one of this name"
    if twice := _repeated([tool.name for plugin in agent.plugins for tool in plugin.tools]):
        return f"more than one tool is called {twice!r}"
    if twice := _repeated([plugin.name for plugin in agent.plugins if plugin.overrides("list_tools")]):
        return f"two plugins that list tools are called {twice!r}; give each a name of its own"
    return ""


def _problem_of_tools(agent: Agent) -> str:
    """Return the error in tools' references to each other; empty if they are valid."""
    for name, tool in agent.tools.items():
        if tool.fallback and tool.fallback not in agent.tools:
            names = ", ".join(agent.tools)
            return f"the fallback of {name!r} is {tool.fallback!r}, which it has not; its tools: {names}"
        if _falls_back_on_itself(agent, tool):
            return f"the fallbacks of {name!r} lead back to it; let one of them have none"
    choice = agent.settings.tool_choice
    if choice in (None, *TOOL_CHOICES, *agent.tools) or agent.lists_tools:
        return ""
    return f"settings.tool_choice is {choice!r}, which it has not; its tools: {', '.join(agent.tools)}"


def _falls_back_on_itself(agent: Agent, tool: Tool) -> bool:
    visited: set[str] = set()
    while tool.fallback and tool.fallback in agent.tools and tool.name not in visited:
        visited.add(tool.name)
        tool = agent.tools[tool.fallback]
    return tool.name in visited


def _repeated(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
