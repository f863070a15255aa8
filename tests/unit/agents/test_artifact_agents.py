"""What an agent's definition says of artifacts and files."""

from collections.abc import Callable

import pytest

from everloop.agents.agent import Agent
from everloop.agents.artifact_tools import artifacts
from everloop.agents.errors import AgentDefinitionError
from everloop.agents.plugins import tools
from everloop.agents.tool import tool


@tool(serial=True)
def search(query: str) -> str:
    """Search for a word."""
    return query


def agent(**fields: object) -> Agent:
    return Agent(id="one", name="Agent", description="", **fields)  # pyright: ignore[reportArgumentType] -- a table of values


@pytest.mark.parametrize(
    ("defined", "name"),
    [
        (agent(plugins=[artifacts()], ensure_artifact=True), "artifact_update"),
        (agent(plugins=[tools(search), artifacts("granular")], ensure_artifact=True), "create_artifact"),
        (agent(plugins=[artifacts()]), None),
    ],
)
def test_an_agent_may_have_to_leave_an_artifact(defined: Agent, name: str | None) -> None:
    """The task pins which tool makes one."""
    assert defined.spec.artifact_tool == name


def test_a_task_pins_which_tools_run_one_after_another() -> None:
    """Those that write artifacts do; the author may say so of others."""
    defined = agent(plugins=[tools(search, tool(name="read")(search.function)), artifacts()]).spec

    assert {name for name, spec in defined.tools.items() if not spec.serial} == {"read"}


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (lambda: agent(ensure_artifact=True), r"add the plugin artifacts\(\)"),
        (lambda: agent(plugins=[artifacts(), artifacts("granular")]), "'list_artifacts'"),
    ],
    ids=["no plugin", "two styles"],
)
def test_a_wrong_agent_is_refused_where_it_is_written(define: Callable[[], object], expected: str) -> None:
    """The message names what is wrong."""
    with pytest.raises(AgentDefinitionError, match=expected):
        define()
