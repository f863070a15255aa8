"""The reference server of MCP, over both transports. It speaks the MCP of 2025, with a handshake."""

import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from everloop import Plugin, mcp
from everloop.agents.mcp.mcp_errors import McpToolError
from tests.support.rigs.mcp_rig import Caller, asker, everything_script, everything_server, opened, restart


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["stdio", "http"])
async def everything(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Plugin]:
    if request.param == "stdio":
        plugin = mcp(command=["node", str(everything_script()), "stdio"], name="everything")
        yield plugin
        await plugin.close()
        return
    async with everything_server(tmp_path_factory.mktemp("everything")) as (_, url):
        plugin = mcp(url, name="everything")
        yield plugin
        await plugin.close()


async def test_its_tools_are_offered_and_called(everything: Plugin) -> None:
    """Its tools are offered and called, except one that only runs as a task of MCP."""
    tools, told = {tool.name: tool for tool in await everything.list_tools(asker())}, list[str]()

    async def hear(text: str) -> None:
        told.append(text)

    caller = Caller(everything, progress=hear)
    assert {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} <= tools.keys()
    assert "simulate-research-query" not in tools
    assert tools["echo"].idempotent
    assert not tools["toggle-simulated-logging"].idempotent
    assert "42" in await caller.call("get-sum", a=40, b=2)
    with pytest.raises(McpToolError, match="message"):
        await caller.call("echo")
    weather = await caller.call("get-structured-content", location="Chicago")
    assert json.loads(weather).keys() == {"temperature", "conditions", "humidity"}
    assert "completed" in await caller.call("trigger-long-running-operation", duration=0.2, steps=2)
    assert "1 of 2" in told


async def test_a_server_that_forgot_its_sessions_gets_a_new_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A call with an effect is sent again after a restart of the server, which has refused the first."""
    directory = tmp_path_factory.mktemp("everything")
    async with everything_server(directory) as (server, url), opened(mcp(url, name="everything")) as plugin:
        await Caller(plugin).call("toggle-simulated-logging")
        await restart(server, url)
        assert await Caller(plugin).call("toggle-simulated-logging")
