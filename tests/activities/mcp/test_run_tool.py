"""Tools of an MCP server as the calls of a task."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from everloop import Plugin, mcp
from everloop.agents.tool import digest_of
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.events import ToolProgressed, Warned
from tests.support.rigs.artifact_rig import content_of, stored
from tests.support.rigs.mcp_rig import Caller, asker, http_server
from tests.support.rigs.tool_rig import ToolRig, yes
from tests.support.servers.mcp_servers.full import CONTENT


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with http_server(tmp_path_factory.mktemp("mcp")) as (_, url):
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def server(url: str) -> AsyncGenerator[Plugin]:
    plugin = mcp(url, name="own")
    yield plugin
    await plugin.close()


async def call_of(
    rig: ToolRig, server: Plugin, tool: str, arguments: str = "{}", wait: float = 30
) -> RunToolInput:
    """Return a call of a tool as a task has pinned it."""
    listed = next(each for each in await server.list_tools(asker()) if each.name == tool)
    call = rig.call(tool, arguments, wait=wait)
    return call.model_copy(update={"plugin": server.name, "digest": digest_of(listed)})


async def test_a_call_of_a_task_runs_at_the_server(server: Plugin) -> None:
    """Arguments that do not fit the server's schema do not reach it."""
    rig = ToolRig(plugins=[server])
    result = await rig.run(await call_of(rig, server, "echo", '{"text": "a"}'))
    refused = await rig.run((await call_of(rig, server, "echo")).model_copy(update={"position": 4}))
    assert (result.outcome, result.content) == ("ok", "a")
    assert refused.outcome == "invalid"
    assert "text" in refused.content


async def test_its_files_are_artifacts_of_the_context(server: Plugin) -> None:
    """The result names them."""
    rig = ToolRig(plugins=[server])
    result = await rig.run(await call_of(rig, server, "files"))
    assert len(result.artifacts) == 5
    assert await content_of(rig, result.artifacts[0]) == CONTENT
    assert (await stored(rig, result.artifacts[0])).parts[0].media_type == "image/png"


async def test_its_progress_is_an_event(server: Plugin) -> None:
    """Subscribers read what the server says."""
    rig = ToolRig(plugins=[server])
    for step in (1, 2):
        await Caller(server).call("happen", event=f"step {step} heard")
    await rig.run(await call_of(rig, server, "steps", '{"text": "on my way"}'))
    told = [event.message for event in await rig.events() if isinstance(event, ToolProgressed)]
    assert "on my way" in told


async def test_what_destroys_waits_for_people(server: Plugin) -> None:
    """The server says that it does."""
    rig = ToolRig(plugins=[server])
    call = await call_of(rig, server, "wipe")
    question = await rig.ask(call)
    approved = await rig.run(call.model_copy(update={"answers": (yes(question),)}))
    assert approved.content == "gone"


async def test_a_call_whose_time_is_up_is_cancelled_at_the_server(server: Plugin) -> None:
    """The time is the task's, which may be less than the definition's."""
    rig = ToolRig(plugins=[server])
    result = await rig.run(await call_of(rig, server, "hang", '{"name": "task"}', wait=0.5))
    assert (result.outcome, result.content) == ("error", "hang did not finish within 0.5 s")
    assert await Caller(server).call("wait_for", event="task was cancelled")


async def test_an_error_of_the_tool_is_read_by_the_model(server: Plugin) -> None:
    """In its own words."""
    rig = ToolRig(plugins=[server])
    result = await rig.run(await call_of(rig, server, "fail", '{"reason": "no paper"}'))
    assert (result.outcome, result.content) == ("error", "McpToolError: no paper")


async def test_a_schema_that_changes_within_a_task_is_a_warning(server: Plugin) -> None:
    """The tool is called as it is now."""
    rig = ToolRig(plugins=[server])
    call = await call_of(rig, server, "shape")
    await Caller(server).call("reshape")
    result = await rig.run(call)
    assert result.outcome == "ok"
    warnings = [event.text for event in await rig.events() if isinstance(event, Warned)]
    assert any("shape" in text and "has changed" in text for text in warnings)
