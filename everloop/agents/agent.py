"""An agent: the definition a user writes."""

import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.guard import Guard
from everloop.agents.hooks import HOOKS
from everloop.agents.limits import PRIORITIES, Compaction, Limits, Memory, problem_of_queue
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool, is_policy, spec_of
from everloop.workflows.contract.calls import CREATE_TASK
from everloop.workflows.contract.messages import AssistantMessage, TranscriptMessage
from everloop.workflows.contract.names import AGENT_ID_RULE, is_agent_id
from everloop.workflows.contract.tasks import AgentSpec, CompactionSpec

# What an agent says that it can do (A2A 1.0 §4.4.5, AgentSkill).


@dataclass(frozen=True)
class Skill:
    """One thing that an agent can do, for people and programs that look for agents by their cards.

    `examples` are prompts. Modes that are not given are those of the agent.
    """

    id: str
    name: str
    description: str
    tags: Sequence[str] = ()
    examples: Sequence[str] = ()
    input_modes: Sequence[str] = ()
    output_modes: Sequence[str] = ()


# Agents without a language model: a function of what was said.


@dataclass(frozen=True)
class Turn:
    """What the agent is to reply to.

    `messages` are all that stand in the transcript, oldest first. `decides`: the reply is to say whether
    there is to be a task at all (agents with `routing="auto"`): a text is the answer, a call of `create_task`
    makes a task.
    """

    messages: Sequence[TranscriptMessage]
    decides: bool


Responder = Callable[[Turn], Awaitable[AssistantMessage]]
"""Replies in place of a model: with a text, or with calls of the agent's tools. It may be called again for
the same turn after a crash; the reply that was stored first counts."""


AgentApproval = bool | Callable[[str, Mapping[str, Any]], bool]
"""Whether a call needs an approval: always, never, or what a function says of tool name and arguments."""


@dataclass(frozen=True)
class Agent:
    """What an agent is called, which model it asks, and what it can do.

    `model` None means the worker's default (EVERLOOP_MODEL). `models` in its place: the first is asked, the
    others stand in when it cannot answer; if none can, the task fails, or waits for an operator's `resume`
    (`on_model_failure` "wait"). At most `parallel_tools` tools of a task run at once. `deduplicate` False
    makes every SendMessage a new task, even one with a repeated messageId. `compaction` makes room when a
    prompt gets too long. `needs_approval`: people are asked before a tool of this agent runs, whatever the
    tool itself says. `ensure_artifact`: a task does not end without an artifact; the model is made to write
    one. `model_takes` are the media types of files that the model is given as they are, `*` for any; of other
    files it gets the text, or a line that tells of them.

    `routing` "auto": the first model call decides, by calling `create_task` or not, whether a message becomes
    a task, or is answered at once by a message; such an agent remembers what was said in a context before.
    `respond` stands in for the language model (`everloop.agents.agent`).

    For agent cards: `skills` (default: the agent as its own one), `input_modes` and `output_modes`, the media
    types that clients may send and get (default: text, JSON, and any file); a message that brings others, or
    accepts none of them, is refused. `version` is that of the definition (default on cards: Everloop's). A
    task ends with the version that it began with, as long as the worker has that one too.

    `memory` is what a task recalls of its context; None: nothing, and nothing is kept. `output`, a pydantic
    model, makes the answer data that fits it.

    `task_queue`: where calls of its models, tools and plugins wait, for workers that serve this queue
    (`everloop worker --queues`); default: with those of all agents. `priority`: whose tasks go first where
    work waits, 1 (first) to 5 (default 3, Temporal's).

    Raises:
        AgentDefinitionError: an unusable id or limit, two tools of one name, or a wrong setting.
    """

    id: str
    name: str
    description: str
    model: str | None = None
    plugins: tuple[Plugin, ...] | list[Plugin] = ()
    limits: Limits = field(default_factory=Limits)
    parallel_tools: int = 5
    deduplicate: bool = True
    models: Sequence[str] = ()
    on_model_failure: Literal["fail", "wait"] = "fail"
    compaction: Compaction = field(default_factory=Compaction)
    needs_approval: AgentApproval = False
    ensure_artifact: bool = False
    model_takes: Sequence[str] = ("image/*", "application/pdf")
    skills: Sequence[Skill] = ()
    input_modes: Sequence[str] = ()
    output_modes: Sequence[str] = ()
    version: str = ""
    routing: Literal["task", "auto"] = "task"
    respond: Responder | None = None
    memory: Memory | None = field(default_factory=Memory)
    output: type[BaseModel] | None = None
    task_queue: str | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        problem = self._problem() or _problem_of_routing(self) or _problem_of_output(self)
        if (
            problem := problem
            or _problem_of_place(self)
            or _problem_of_models(self)
            or _problem_of_tools(self)
        ):
            raise AgentDefinitionError(f"agent {self.id!r}: {problem}")

    def _problem(self) -> str:
        if not is_agent_id(self.id):
            return f"its id has to be of {AGENT_ID_RULE}, because it stands in addresses and ids"
        if self.parallel_tools < 1:
            return f"parallel_tools start at 1, not at {self.parallel_tools}"
        if not is_policy(self.needs_approval):
            return "needs_approval is True, False, or a plain function of tool name and arguments"
        if isinstance(self.model_takes, str) or not all("/" in pattern for pattern in self.model_takes):
            return f"model_takes is {self.model_takes!r}; give a list of media types, such as 'image/*'"
        if self.ensure_artifact and self.artifact_tool is None:
            return "ensure_artifact needs a tool that writes one; add the plugin artifacts()"
        return ""

    @cached_property
    def ordered_plugins(self) -> tuple[Plugin, ...]:
        """The plugins in the order in which they are asked: by priority, then as they are listed."""
        return tuple(sorted(self.plugins, key=lambda plugin: plugin.priority))

    @cached_property
    def hooks(self) -> tuple[str, ...]:
        """The names of the hooks that any plugin has."""
        return tuple(hook for hook in HOOKS if any(plugin.overrides(hook) for plugin in self.plugins))

    @cached_property
    def digest(self) -> str:
        """Tells definitions apart that have no version: of texts, tools and limits, not of their code."""
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
        """Whether people may be asked before the tool runs, as far as the definition says."""
        return (
            bool(self.needs_approval or tool.needs_approval)  # a function may say either
            or any(plugin.may_ask(tool.name) for plugin in self.plugins)
        )

    @cached_property
    def asks_model(self) -> bool:
        """Whether any of its work asks a language model: replies, summaries of its memory, its narrator."""
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
        """The name of the tool that makes an artifact, if a plugin brings one."""
        return next((plugin.artifact_tool for plugin in self.plugins if plugin.artifact_tool), None)

    @cached_property
    def spec(self) -> AgentSpec:
        """The part of the definition that a task pins when it starts."""
        return self._spec.model_copy(update={"version": self.version or self.digest})

    @cached_property
    def _spec(self) -> AgentSpec:
        limits, compaction = self.limits, self.compaction
        return AgentSpec(
            id=self.id,
            model=self.models[0] if self.models else self.model,
            fallback_models=tuple(self.models[1:]),
            on_model_failure=self.on_model_failure,
            compaction=CompactionSpec(strategy=compaction.strategy, prompt_tokens=compaction.prompt_tokens),
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
            memory=self.memory and self.memory.spec,
            narrator=next((plugin.narrator for plugin in self.plugins if plugin.narrator), None),
            guards=tuple(plugin.rules for plugin in self.ordered_plugins if isinstance(plugin, Guard)),
            hooks=self.hooks,
            lists_tools=any(plugin.overrides("list_tools") for plugin in self.plugins),
            has_output=self.output is not None,
            max_sub_agents=limits.sub_agents,
            task_queue=self.task_queue,
            priority=self.priority,
        )


def _problem_of_routing(agent: Agent) -> str:
    """Return what is wrong with how an agent takes messages up; empty if nothing is."""
    if agent.routing not in {"task", "auto"}:
        return f"routing is {agent.routing!r}; choose 'task' or 'auto'"
    if CREATE_TASK in agent.tools:
        return f"a tool cannot be called {CREATE_TASK!r}: with that one the model asks for a task"
    return ""


def _problem_of_place(agent: Agent) -> str:
    """Return what is wrong with where, and when, the calls of an agent wait; empty if nothing is."""
    if agent.priority is not None and agent.priority not in PRIORITIES:
        return f"priority is {agent.priority}; Temporal has 1 (first) to 5"
    return problem_of_queue(agent.task_queue) if agent.task_queue is not None else ""


def _problem_of_output(agent: Agent) -> str:
    """Return what is wrong with the shape of an agent's answers; empty if nothing is."""
    if agent.output is None:
        return ""
    if not _is_model(agent.output):
        return f"output is {agent.output!r}; give the class of a pydantic model"
    try:
        agent.output.model_json_schema()
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        problem = error.message.partition("\n")[0]
        return f"there is no JSON schema of output {agent.output.__name__}, for the model to read: {problem}"
    return ""


def _is_model(output: object) -> bool:
    return isinstance(output, type) and issubclass(output, BaseModel) and output is not BaseModel


def _problem_of_models(agent: Agent) -> str:
    """Return what is wrong with the models that an agent names; empty if nothing is."""
    if agent.model and agent.models:
        return "model and models are both given; put all into models, in the order they are asked"
    if isinstance(agent.models, str) or not all(agent.models):
        return f"models is {agent.models!r}; give a list of names"
    if twice := _repeated(agent.models):
        return f"models names {twice!r} twice; it would be asked again in vain"
    if agent.on_model_failure not in {"fail", "wait"}:
        return f"on_model_failure is {agent.on_model_failure!r}; choose 'fail' or 'wait'"
    return ""


def _problem_of_tools(agent: Agent) -> str:
    """Return what is wrong with the tools of an agent, taken together; empty if nothing is."""
    if twice := _repeated([tool.name for plugin in agent.plugins for tool in plugin.tools]):
        return f"more than one tool is called {twice!r}"
    if twice := _repeated([plugin.name for plugin in agent.plugins if plugin.overrides("list_tools")]):
        return f"two plugins that list tools are called {twice!r}; give each a name of its own"
    for name, tool in agent.tools.items():
        if tool.fallback and tool.fallback not in agent.tools:
            known = ", ".join(agent.tools)
            return f"the fallback of {name!r} is {tool.fallback!r}, which it has not; its tools: {known}"
        if _falls_back_on_itself(agent, tool):
            return f"the fallbacks of {name!r} lead back to it; let one of them have none"
    return ""


def _falls_back_on_itself(agent: Agent, tool: Tool) -> bool:
    seen: set[str] = set()
    while tool.fallback and tool.fallback in agent.tools and tool.name not in seen:
        seen.add(tool.name)
        tool = agent.tools[tool.fallback]
    return tool.name in seen


def _repeated(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
