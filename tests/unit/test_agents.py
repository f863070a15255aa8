"""What an agent's author is told when a definition is wrong."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from agents.agent import Agent, Limits
from agents.errors import AgentDefinitionError, ToolDefinitionError, UnknownAgentError
from agents.plugins import prompt, tools
from agents.registry import AgentRegistry, load_agents
from agents.tool import tool
from agents.tool_context import ToolContext


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


def test_prompts_and_tools_of_plugins_add_up() -> None:
    """In the order of the plugins."""
    composed = agent(plugins=[prompt("You are brief."), tools(search), prompt("Cite.")])

    assert composed.system_prompt == "You are brief.\n\nCite."
    assert list(composed.tools) == ["search"]
    assert composed.spec.tools["search"].timeout == 30


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (lambda: agent("not good"), "letters, digits"),
        (lambda: agent(""), "letters, digits"),
        (lambda: agent(plugins=[tools(search), tools(search)]), "'search'"),
        (lambda: agent(parallel_tools=0), "start at 1"),
        (lambda: agent(limits=Limits(iterations=0)), "start at 1"),
    ],
    ids=["space", "empty", "tool_twice", "no_tools_at_once", "no_iterations"],
)
def test_a_wrong_agent_is_refused_where_it_is_written(define: Callable[[], Agent], expected: str) -> None:
    """The message names what is wrong."""
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


def _variadic(*queries: str) -> str:
    """Search."""
    return queries[0]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_undocumented, "has no docstring"),
        (_unannotated, "no type annotation"),
        (_positional, "positional-only"),
        (_variadic, "variadic positional"),
    ],
)
def test_a_function_that_is_no_tool_is_refused(function: Callable[..., str], expected: str) -> None:
    """A model needs to know what a tool is for, and passes arguments by name."""
    with pytest.raises(ToolDefinitionError, match=expected):
        tool(function)


def test_a_tool_needs_time() -> None:
    """A timeout of zero would end every call."""
    with pytest.raises(ToolDefinitionError, match="give it some time"):
        tool(timeout=timedelta(0))(_positional)


def test_the_first_agent_is_the_default_and_ids_are_unique() -> None:
    """An agent that is not there is named with those that are."""
    registry = AgentRegistry([agent("one"), agent("two")])

    assert registry.default.id == "one"
    assert registry.find("two").id == "two"
    with pytest.raises(UnknownAgentError, match="serves: one, two"):
        registry.find("three")
    with pytest.raises(AgentDefinitionError, match="two agents"):
        AgentRegistry([agent("one"), agent("one")])


@pytest.mark.parametrize(
    ("name", "module", "expected"),
    [
        ("no_agent", "agent = 1", "is a int; expected an Agent"),
        ("no_attribute", "other = 1", "cannot load"),
        ("no_syntax", "def broken(:", "fails when it is imported: SyntaxError"),
        ("no_luck", "1 / 0", "fails when it is imported: ZeroDivisionError"),
        ("no_docstring", "from agents import tool\ntool(lambda x: x)", "has no docstring"),
    ],
)
def test_what_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, expected: str
) -> None:
    """EVERLOOP_AGENTS is wrong, or the user's module is: one line tells which and why."""
    (tmp_path / f"users_{name}.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(AgentDefinitionError, match=expected):
        load_agents(f"users_{name}:agent")


def test_no_agent_at_all_is_an_error() -> None:
    """An empty EVERLOOP_AGENTS serves nothing."""
    with pytest.raises(AgentDefinitionError, match="set EVERLOOP_AGENTS"):
        load_agents("")
