"""Tools of MCP servers, listed and called over both transports."""

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from everloop import Plugin, mcp
from everloop.agents.mcp.errors import McpProtocolError, McpTimeoutError, McpToolError
from everloop.agents.tool import digest_of
from tests.support.rigs.mcp_rig import SMALL_STDIO, STDIO, Caller, KeptArtifacts, asker, http_server
from tests.support.servers.mcp_servers.full import CONTENT


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with http_server(tmp_path_factory.mktemp("mcp")) as (_, url):
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["stdio", "http"])
async def server(request: pytest.FixtureRequest, url: str) -> AsyncGenerator[Plugin]:
    plugin = mcp(url, name="own") if request.param == "http" else mcp(command=STDIO, name="own")
    yield plugin
    await plugin.close()


async def test_tools_are_listed_with_what_their_annotations_say(server: Plugin) -> None:
    """A schema is that of the server."""
    tools = {tool.name: tool for tool in await server.list_tools(asker())}
    assert tools["echo"].description == "Say it again."
    Draft202012Validator(tools["echo"].parameters).validate({"text": "a"})
    assert (tools["echo"].idempotent, tools["pid"].idempotent, tools["hang"].idempotent) == (
        True,
        True,
        False,
    )
    assert [name for name, tool in tools.items() if tool.needs_approval] == ["wipe"]


async def test_a_call_returns_text(server: Plugin) -> None:
    """As the server said it."""
    assert await Caller(server).call("echo", text="é") == "é"


async def test_structured_results_are_json(server: Plugin) -> None:
    """Once, though the server tells it twice."""
    assert await Caller(server).call("structured") == '{"numbers":[1,2]}'


async def test_structured_results_are_checked_by_the_schema_that_the_server_lists() -> None:
    """Not by the SDK, which would match the server's pattern with Python's `re`, on the event loop."""
    server = mcp(command=SMALL_STDIO, name="small")
    await server.list_tools(asker())
    assert await Caller(server).call("promise", end="") == json.dumps(
        {"text": "a" * 41}, separators=(",", ":")
    )
    with pytest.raises(McpProtocolError, match=r"breaks the rule .* at \$\.text"):
        await Caller(server).call("promise", end="!")
    await server.close()


async def test_a_tool_that_fails_is_an_error_of_its_own_words(server: Plugin) -> None:
    """The model reads them."""
    with pytest.raises(McpToolError, match="the disk is full"):
        await Caller(server).call("fail", reason="the disk is full")


async def test_arguments_that_the_server_refuses_are_an_error(server: Plugin) -> None:
    """The task has checked them before, against the schema that it knows."""
    with pytest.raises(McpToolError, match="text"):
        await Caller(server).call("echo", other="a")


async def test_files_become_artifacts_that_the_text_names(server: Plugin) -> None:
    """Images, audio, embedded resources, and those that a link leads to."""
    artifacts = KeptArtifacts()
    told = await Caller(server, artifacts=artifacts).call("files")
    assert [*artifacts.files.values()] == [
        ("files-1.png", "image/png", CONTENT),
        ("files-2.mp3", "audio/mpeg", CONTENT),
        ("a.md", "text/markdown", "# A"),
        ("b", "application/octet-stream", CONTENT),
        ("c.txt", "text/plain", "linked text"),
    ]
    assert all(f"artifact {artifact_id!r}" in told for artifact_id in artifacts.files)
    assert told.startswith("Here they are:\n")
    assert "\n# A\n" in told
    assert "C, the third" in told
    assert "test://linked/missing: D; it could not be read" in told


async def test_progress_reaches_subscribers(server: Plugin) -> None:
    """In the words of the server, or else in numbers."""
    told: list[str] = []

    async def hear(text: str) -> None:
        told.append(text)
        await Caller(server).call("happen", event=f"step {len(told)} heard")

    assert await Caller(server, progress=hear).call("steps") == "done"
    assert told == ["1 of 2", "2 of 2"]


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(server: Plugin) -> None:
    """Others go on in the same session."""
    caller = Caller(server)
    hanging = asyncio.create_task(caller.call("hang", name="cancelled"))
    await caller.call("wait_for", event="cancelled began")
    hanging.cancel()
    assert await caller.call("wait_for", event="cancelled was cancelled")
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_concurrent_calls_share_the_server(server: Plugin) -> None:
    """A command is started once, and not for each call."""
    caller = Caller(server)
    pids = await asyncio.gather(*(caller.call("pid") for _ in range(20)))
    assert len(set(pids)) == 1


async def test_a_schema_that_changes_has_another_digest(server: Plugin) -> None:
    """The server said that its tools have changed; until then it is not asked again."""
    before = await server.get_tool("shape", asker())
    await Caller(server).call("reshape_quietly")
    unchanged = await server.get_tool("shape", asker())
    await Caller(server).call("reshape")
    after = await server.get_tool("shape", asker())
    assert before
    assert unchanged
    assert after
    assert digest_of(before) == digest_of(unchanged) != digest_of(after)


async def test_a_new_task_sees_what_a_server_did_not_tell(server: Plugin) -> None:
    """Listing asks the server, whatever is known; calls know it from then on."""
    before = {tool.name: tool for tool in await server.list_tools(asker())}
    await Caller(server).call("reshape_quietly")
    after = {tool.name: tool for tool in await server.list_tools(asker())}
    known = await server.get_tool("shape", asker())
    assert known
    assert digest_of(before["shape"]) != digest_of(after["shape"]) == digest_of(known)


async def test_a_tool_that_is_not_offered_is_none(url: str) -> None:
    """Only those that fit the patterns are, under their prefix."""
    server = mcp(url, tools=["echo", "p?d"], prefix="own_")
    try:
        assert {tool.name for tool in await server.list_tools(asker())} == {"own_echo", "own_pid"}
        assert await Caller(server).call("own_echo", text="a") == "a"
        assert await server.get_tool("echo", asker()) is None
        assert await server.get_tool("own_wipe", asker()) is None
    finally:
        await server.close()


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(url: str) -> None:
    """Its time is that of the definition, if nobody has cancelled it before."""
    server = mcp(url, name="own", timeout=timedelta(seconds=1))
    caller = Caller(server)
    try:
        await caller.call("echo", text="it runs")
        with pytest.raises(McpTimeoutError, match="'own' did not answer in time"):
            await caller.call("hang", name="late")
        assert await caller.call("wait_for", event="late was cancelled")
    finally:
        await server.close()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_may_tell_of_changes_at_any_time(
    transport: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From MCP 2026-07-28 on that takes a subscription, and the list is asked for only when it changed."""
    if transport == "stdio":
        await _hears_of_changes(mcp(command=SMALL_STDIO))
        return
    async with http_server(tmp_path_factory.mktemp("mcp"), "small.py") as (_, url):
        await _hears_of_changes(mcp(url))


async def _hears_of_changes(server: Plugin) -> None:
    """Wait for the third list; one may come with the beginning of the subscription."""
    try:
        while (tool := await server.get_tool("change", asker())) and tool.description not in {
            "list 3",
            "list 4",
        }:
            await Caller(server).call("change")
    finally:
        await server.close()
