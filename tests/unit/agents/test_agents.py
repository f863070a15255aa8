"""Errors of wrong definitions for an agent's author."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest

from everloop.agents.agent import Agent, Turn
from everloop.agents.artifact_tools import artifacts
from everloop.agents.delegation import handoff, sub_agent
from everloop.agents.errors import AgentDefinitionError, ToolDefinitionError, UnknownAgentError
from everloop.agents.limits import Compaction, Limits, Memory, ModelSettings
from everloop.agents.plugins import prompt, tools
from everloop.agents.registry import AgentRegistry
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.tasks import AgentSpec, ToolSpec


@tool
def search(query: str, context: ToolContext, limit: int = 3) -> str:
    """Search for a word."""
    return query * limit


def agent(id_: str = "one", **fields: object) -> Agent:
    return Agent(id=id_, name="Agent", description="", **fields)  # pyright: ignore[reportArgumentType] -- a table of wrong values


def test_the_schema_of_a_tool_comes_from_its_signature() -> None:
    """The context is not an argument of the model; defaults are optional."""
    assert search.parameters["required"] == ["query"]
    assert set(search.arguments.model_fields) == {"query", "limit"}
    assert search.parameters["additionalProperties"] is False


def _named(name: str, **settings: object) -> Tool:
    def act(what: str) -> str:
        """Act."""
        return what

    return tool(name=name, **settings)(act)  # pyright: ignore[reportArgumentType] -- a table of settings


def test_a_task_pins_all_that_the_loop_needs() -> None:
    """Every field of the specification comes from the definition."""
    search_index = _named("index", timeout=timedelta(seconds=5), task_queue="fast", fallback="web")
    defined = agent(
        models=["large", "small", "tiny"],
        plugins=[tools(search_index, _named("web")), sub_agent("writer")],
        limits=Limits(iterations=4, tokens=5, cost=0.5, wall_clock=timedelta(minutes=1), tool_failures=None),
        parallel_tools=2,
        deduplicate=False,
        on_model_failure="wait",
        compaction=Compaction("summary", prompt_tokens=1000),
        settings=ModelSettings(effort="high"),
    )

    assert defined.spec == AgentSpec(
        id="one",
        version=defined.digest,
        memory=Memory(),
        model="large",
        fallback_models=("small", "tiny"),
        on_model_failure="wait",
        compaction=Compaction(strategy="summary", prompt_tokens=1000),
        max_iterations=4,
        max_tokens=5,
        max_cost=0.5,
        wall_clock=60,
        max_tool_failures=None,
        max_sub_agents=50,
        max_parallel_tools=2,
        tools={
            "index": ToolSpec(timeout=5, task_queue="fast", fallback="web"),
            "web": ToolSpec(timeout=30),
            "writer": ToolSpec(timeout=30, agent="writer"),
        },
        deduplicate=False,
        settings=ModelSettings(effort="high"),
        last_call=True,
    )


def test_an_agent_without_a_model_has_no_last_call() -> None:
    """The model would neither read of its last call nor of failing tools."""

    async def reply(_turn: Turn) -> AssistantMessage:
        return AssistantMessage(text="Done.")

    assert not agent(respond=reply).spec.last_call
    assert not agent(limits=Limits(last_call=False)).spec.last_call


def test_a_task_pins_which_tools_write_artifacts() -> None:
    """The one that an answer without an artifact has to call, and that they run one after another."""
    defined = agent(plugins=[tools(search), artifacts("granular")], ensure_artifact=True).spec

    assert defined.artifact_tool == "create_artifact"
    assert agent(plugins=[artifacts()]).spec.artifact_tool is None
    assert {name for name, spec in defined.tools.items() if not spec.serial} == {"search"}


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (lambda: agent(ensure_artifact=True), r"add the plugin artifacts\(\)"),
        (lambda: agent(plugins=[artifacts(), artifacts("granular")]), "'list_artifacts'"),
        (lambda: agent("not good"), "letters, digits"),
        (lambda: agent("-"), "the first a letter or digit"),
        (lambda: agent(plugins=[tools(search), tools(search)]), "'search'"),
        (lambda: agent(plugins=[tools(_named("read_result"))]), "every agent has one of this name"),
        (lambda: agent(settings=ModelSettings(tool_choice="pay")), "settings.tool_choice is 'pay', which"),
        (lambda: agent(model="a", models=["b"]), "model and models are both given"),
        (lambda: agent(models=["a", "b", "a"]), "models names 'a' twice"),
        (lambda: agent(plugins=[tools(_named("a", fallback="b"))]), "'b', which it has not; its tools: a"),
    ],
    ids=count(),
)
def test_a_wrong_agent_is_refused_where_it_is_written(define: Callable[[], object], expected: str) -> None:
    """The error names the problem."""
    with pytest.raises(AgentDefinitionError, match=expected):
        define()


def _undocumented(query: str) -> str:
    return query


def _unannotated(query: str) -> str:
    """Search."""
    return query


del _unannotated.__annotations__["query"]


def _positional(query: str, /) -> str:
    """Search."""
    return query


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_undocumented, "has no docstring"),
        (_unannotated, "no type annotation"),
        (_positional, "positional-only"),
    ],
)
def test_a_function_that_is_no_tool_is_refused(function: Callable[..., str], expected: str) -> None:
    """A model needs a description of a tool, and passes arguments by name."""
    with pytest.raises(ToolDefinitionError, match=expected):
        tool(function)


def test_the_first_agent_is_the_default_and_ids_are_unique() -> None:
    """The error for an unknown agent lists the existing ones."""
    registry = AgentRegistry([agent("one"), agent("two")])

    assert registry.default.id == "one"
    assert registry.find("two").id == "two"
    with pytest.raises(UnknownAgentError, match="serves: one, two"):
        registry.find("three")
    with pytest.raises(AgentDefinitionError, match=r"agent 'one': .* has one of the same id and version"):
        AgentRegistry([agent("one"), agent("one")])


def test_a_version_that_is_gone_is_replaced_by_the_current_one() -> None:
    """Its task goes on with it; the version in the result shows the replacement."""
    new = agent("one", version="2")

    assert AgentRegistry([new, agent("one", version="1")]).find("one", "0") is new


def test_definitions_without_a_version_are_told_apart_by_what_they_say() -> None:
    """A different prompt, tool or limit makes another version; identical ones are an error."""
    new, old = agent(plugins=[prompt("Be brief.")]), agent(plugins=[prompt("Be long.")])
    registry = AgentRegistry([new, old])

    assert registry.find("one", old.spec.version) is old
    with pytest.raises(AgentDefinitionError, match=r"agent 'one': .* has one of the same id"):
        AgentRegistry([new, agent(plugins=[prompt("Be brief.")])])


def test_an_agent_that_is_given_is_served_behind_the_others() -> None:
    """It is found with its parent, and so are its own sub-agents; none of them is the default."""
    writer = agent("writer", plugins=[sub_agent(agent("reader"))])
    asking = agent("asking", plugins=[sub_agent(writer), handoff(agent("boss"))])

    agents = AgentRegistry([writer, asking])

    assert [each.id for each in agents] == ["asking", "writer", "reader", "boss"]
    assert agents.missed == []
    assert agents.find("writer") is writer


def test_an_agent_that_is_given_describes_itself() -> None:
    """The model reads its capabilities, unless the author gives a description."""
    writer = Agent(id="writer", name="Writer", description="Writes poems.")

    described = [plugin.tools[0].description for plugin in (sub_agent(writer), handoff(writer))]

    assert all("Writes poems." in each for each in described)
    assert sub_agent(writer, "For odes.").tools[0].description == "For odes."


def test_agents_that_other_workers_would_have_to_serve_are_told() -> None:
    """That may be on purpose; the line names caller, callee, and the served agents."""
    asking = agent("asking", plugins=[sub_agent("writer"), sub_agent("editor"), handoff("boss")])

    missed = AgentRegistry([asking, agent("writer")]).missed

    place = asking.place
    assert place.startswith("tests/unit/agents/test_agents.py:")
    assert [line.partition(", which")[0] for line in missed] == [
        f"{place}: agent 'asking' names agent 'editor' in its tool 'editor'",
        f"{place}: agent 'asking' names agent 'boss' in its tool 'hand_over_to_boss'",
    ]
    assert "it serves: asking, writer" in missed[0]
