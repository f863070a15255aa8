"""Calls of tools that a plugin lists for the task: they are resolved when they run."""

from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from everloop.agents.hooks import HookContext
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool, digest_of, tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.events import Warned
from tests.support.rigs.tool_rig import ToolRig

ADA = '{"to": "Ada"}'
SCHEMA: dict[str, JsonValue] = {"properties": {"to": {"type": "string"}}, "required": ["to"]}


@tool
def where() -> str:
    """Say where we are."""
    return "here"


class Listing(Plugin):
    """A plugin that lists the tools of a test and counts their calls."""

    offered: Sequence[Tool] = ()
    problem: Exception | None = None
    runs: int = 0

    async def list_tools(self, context: HookContext) -> Sequence[Tool]:
        if self.problem:
            raise self.problem
        return self.offered

    def send(self, description: str = "Send it.", **settings: bool) -> Tool:
        async def function(arguments: dict[str, JsonValue], context: ToolContext) -> str:
            self.runs += 1
            return f"{description} {arguments['to']}"

        return Tool(
            function, "send", description, schema=SCHEMA, needs_approval=settings.get("needs_approval", False)
        )


@pytest.fixture
def listing() -> Listing:
    plugin = Listing(name="server")
    plugin.offered = [plugin.send()]
    return plugin


def _call(rig: ToolRig, listed: Tool, arguments: str = ADA) -> RunToolInput:
    call = rig.call("send", arguments)
    return call.model_copy(update={"plugin": "server", "digest": digest_of(listed)})


async def test_a_listed_tool_runs_once(listing: Listing) -> None:
    """A listed tool runs once, validated, claimed and recorded like the agent's own."""
    rig = ToolRig(plugins=[listing])
    call = _call(rig, listing.offered[0])
    results = [await rig.run(call) for _ in range(2)]
    invalid = await rig.run(_call(rig, listing.offered[0], "{}"))
    assert [result.content for result in results] == ["Send it. Ada"] * 2
    assert listing.runs == 1
    assert invalid.outcome == "invalid"
    assert not [event for event in await rig.events() if isinstance(event, Warned)]


async def test_a_tool_that_has_changed_runs_with_a_warning(listing: Listing) -> None:
    """A tool that has changed since its listing runs in its present form, with a warning."""
    rig = ToolRig(plugins=[listing])
    before = listing.offered[0]
    listing.offered = [listing.send("Send it twice.")]
    result = await rig.run(_call(rig, before))
    warned = [event.text for event in await rig.events() if isinstance(event, Warned)]
    assert result.content == "Send it twice. Ada"
    assert warned == [
        "the tool send of the plugin 'server' has changed while the task runs; it is called as it is now"
    ]


GONE = "'send' is no longer there: the plugin 'server' does not list it any more"
FAILED = "send was not run: plugin 'server' failed in get_tool: ConnectionError: refused"


@pytest.mark.parametrize(
    ("plugins", "problem", "outcome", "content"),
    [
        ("", None, "invalid", GONE),
        ("server", None, "invalid", GONE),
        ("server", ConnectionError("refused"), "error", FAILED),
    ],
    ids=["no_plugin", "not_listed", "failing"],
)
async def test_a_tool_that_cannot_be_found_is_told(
    listing: Listing, plugins: str, problem: Exception | None, outcome: str, content: str
) -> None:
    """The model reads why a listed tool is missing; the outcome of an earlier attempt stands."""
    tool, listing.offered, listing.problem = listing.offered[0], [], problem
    rig = ToolRig(plugins=[listing] if plugins else [])
    call = _call(rig, tool)
    result = await rig.run(call)
    await rig.lose(call)
    lost = await rig.run(call)
    assert result.outcome == outcome
    assert content in result.content
    assert lost.outcome == "unknown"


async def test_another_tool_under_the_name_of_a_listed_one_is_not_run(listing: Listing) -> None:
    """A tool that is not listed does not run under the name of a listed one: no guard has judged it."""

    class Wrong(Listing):
        async def get_tool(self, name: str, context: HookContext) -> Tool:
            return Tool(listing.send().function, "other", "Do something else.", schema=SCHEMA)

    rig = ToolRig(plugins=[Wrong(name="server")])
    result = await rig.run(_call(rig, listing.offered[0]))
    assert (result.outcome, listing.runs) == ("error", 0)
    assert "it returned something else than the tool 'send'" in result.content


@pytest.mark.parametrize(("problem", "known"), [(None, "where, send"), (ConnectionError(), "where")])
async def test_an_invented_tool_is_told_all_there_are(
    listing: Listing, problem: Exception | None, known: str
) -> None:
    """The error of an unknown tool lists all known ones, with those of servers that answer."""
    listing.problem = problem
    rig = ToolRig(where, plugins=[listing])
    result = await rig.run(rig.call("triple"))
    assert result.content == f"there is no tool 'triple'; available tools: {known}"
