"""Tools of MCP servers, listed and called over both transports, also by a task, with their spans."""

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from everloop import Plugin, mcp
from everloop.agents.mcp.mcp_errors import McpProtocolError, McpTimeoutError, McpToolError
from everloop.agents.tool import digest_of
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.events import ToolProgressed
from tests.support.rigs.mcp_rig import SMALL_STDIO, STDIO, Caller, KeptArtifacts, asker, http_server, opened
from tests.support.rigs.tool_rig import ToolRig, yes
from tests.support.servers.mcp_servers.full import CONTENT


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with http_server(tmp_path_factory.mktemp("mcp")) as (_, url):
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["stdio", "http"])
async def server(request: pytest.FixtureRequest, url: str) -> AsyncGenerator[Plugin]:
    given = url.replace("http://", "http://user:url-password@")
    definition = mcp(given, name="own") if request.param == "http" else mcp(command=STDIO, name="own")
    async with opened(definition) as plugin:
        yield plugin


async def test_tools_are_listed_with_what_their_annotations_say(server: Plugin) -> None:
    """Listed tools have the server's schema and the effects that its annotations state."""
    tools = {tool.name: tool for tool in await server.list_tools(asker())}
    assert tools["echo"].description == "Say it again."
    Draft202012Validator(tools["echo"].parameters).validate({"text": "a"})
    assert (tools["echo"].idempotent, tools["pid"].idempotent, tools["hang"].idempotent) == (
        True,
        True,
        False,
    )
    assert [name for name, tool in tools.items() if tool.needs_approval] == ["wipe"]


async def test_structured_results_are_json(server: Plugin) -> None:
    """A structured result is returned once as JSON, though the server sends it twice."""
    assert await Caller(server).call("structured") == '{"numbers":[1,2]}'


async def test_structured_results_are_checked_by_the_schema_that_the_server_lists() -> None:
    """Structured results are checked by us: the SDK would run the server's patterns on the event loop."""
    server = mcp(command=SMALL_STDIO, name="small")
    await server.list_tools(asker())
    assert await Caller(server).call("promise", end="") == json.dumps(
        {"text": "a" * 41}, separators=(",", ":")
    )
    with pytest.raises(McpProtocolError, match=r"breaks the rule .* at \$\.text"):
        await Caller(server).call("promise", end="!")
    await server.close()


async def test_files_become_artifacts_that_the_text_names(server: Plugin) -> None:
    """Images, audio, resources and linked files become artifacts; the model is shown the first two kinds."""
    artifacts = KeptArtifacts()
    told = await Caller(server, artifacts=artifacts).call("files")
    assert [*artifacts.files.values()] == [
        ("files-1.png", "image/png", CONTENT),
        ("files-2.mp3", "audio/mpeg", CONTENT),
        ("a.md", "text/markdown", "# A"),
        ("b", "application/octet-stream", CONTENT),
        ("c.txt", "text/plain", "linked text"),
    ]
    assert artifacts.shown == [*artifacts.files][:2]
    assert all(f"artifact {artifact_id!r}" in told for artifact_id in artifacts.files)
    assert told.startswith("Here they are:\n")
    assert "\n# A\n" in told
    assert "C, the third" in told
    assert "test://linked/missing: D; it could not be read" in told


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(server: Plugin) -> None:
    """A cancelled call is cancelled at the server; other calls in the session continue."""
    caller = Caller(server)
    hanging = asyncio.create_task(caller.call("hang", name="cancelled"))
    await caller.call("wait_for", event="cancelled began")
    hanging.cancel()
    assert await caller.call("wait_for", event="cancelled was cancelled")
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_concurrent_calls_share_the_server(server: Plugin) -> None:
    """Concurrent calls share one process of the server."""
    caller = Caller(server)
    pids = await asyncio.gather(*(caller.call("pid") for _ in range(20)))
    assert len(set(pids)) == 1


async def test_a_schema_that_changes_has_another_digest(server: Plugin) -> None:
    """A changed schema has another digest; the list is cached until the server notifies a change."""
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
    """A new task lists the server's tools without the cache, and later calls use that list."""
    before = {tool.name: tool for tool in await server.list_tools(asker())}
    await Caller(server).call("reshape_quietly")
    after = {tool.name: tool for tool in await server.list_tools(asker())}
    known = await server.get_tool("shape", asker())
    assert known
    assert digest_of(before["shape"]) != digest_of(after["shape"]) == digest_of(known)


async def test_a_tool_that_is_not_offered_is_none(url: str) -> None:
    """Only tools that match the patterns are offered, under their prefix."""
    async with opened(mcp(url, tools=["echo", "p?d"], prefix="own_")) as server:
        assert {tool.name for tool in await server.list_tools(asker())} == {"own_echo", "own_pid"}
        assert await Caller(server).call("own_echo", text="a") == "a"
        assert await server.get_tool("echo", asker()) is None
        assert await server.get_tool("own_wipe", asker()) is None


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(url: str) -> None:
    """A call that exceeds the time limit of its definition is cancelled at the server."""
    async with opened(mcp(url, name="own", timeout=timedelta(seconds=1))) as server:
        caller = Caller(server)
        await caller.call("echo", text="it runs")
        with pytest.raises(McpTimeoutError, match="'own' did not answer in time"):
            await caller.call("hang", name="late")
        assert await caller.call("wait_for", event="late was cancelled")


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_may_tell_of_changes_at_any_time(
    transport: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A server may notify changes at any time.

    From MCP 2026-07-28 on that takes a subscription, and tools are listed again only after a change.
    """
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


async def call_of(rig: ToolRig, server: Plugin, tool: str, arguments: str = "{}") -> RunToolInput:
    """Return a call of a tool as a task has pinned it."""
    listed = next(each for each in await server.list_tools(asker()) if each.name == tool)
    call = rig.call(tool, arguments, wait=30)
    return call.model_copy(update={"plugin": server.name, "digest": digest_of(listed)})


async def test_a_call_of_a_task_runs_at_the_server(server: Plugin) -> None:
    """A task's call runs at the server; arguments that do not fit its schema are not sent."""
    rig = ToolRig(plugins=[server])
    result = await rig.run(await call_of(rig, server, "echo", '{"text": "a"}'))
    refused = await rig.run((await call_of(rig, server, "echo")).model_copy(update={"position": 4}))
    assert (result.outcome, result.content) == ("ok", "a")
    assert refused.outcome == "invalid"
    assert "text" in refused.content


async def test_its_progress_is_an_event(server: Plugin) -> None:
    """Progress of the server is published as an event."""
    rig = ToolRig(plugins=[server])
    for step in (1, 2):
        await Caller(server).call("happen", event=f"step {step} heard")
    await rig.run(await call_of(rig, server, "steps", '{"text": "on my way"}'))
    told = [event.message for event in await rig.events() if isinstance(event, ToolProgressed)]
    assert "on my way" in told


async def test_what_destroys_waits_for_people(server: Plugin) -> None:
    """A tool that its server marks as destructive waits for an approval."""
    rig = ToolRig(plugins=[server])
    call = await call_of(rig, server, "wipe")
    question = await rig.ask(call)
    approved = await rig.run(call.model_copy(update={"answers": (yes(question),)}))
    assert approved.content == "gone"


async def test_an_error_of_the_tool_is_read_by_the_model(server: Plugin) -> None:
    """The model reads an error of the tool in the tool's own words."""
    rig = ToolRig(plugins=[server])
    result = await rig.run(await call_of(rig, server, "fail", '{"reason": "no paper"}'))
    assert (result.outcome, result.content) == ("error", "McpToolError: no paper")


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    """Return the one span of that name."""
    (span,) = (span for span in spans.get_finished_spans() if span.name == name)
    return span


async def test_a_call_is_a_client_span_of_the_tools_trace(
    server: Plugin, url: str, spans: InMemorySpanExporter
) -> None:
    """A call is a client span in the tool's trace.

    Names follow the MCP conventions; of the URL it has only host and port.
    """
    with trace.get_tracer("test").start_as_current_span("tool") as tool:
        await Caller(server).call("echo", text="hush")

    span = named(spans, "tools/call echo")
    attributes = dict(span.attributes or {})
    assert span.kind is SpanKind.CLIENT
    assert span.parent == tool.get_span_context()
    assert attributes.pop("mcp.protocol.version")
    is_http = attributes["network.transport"] == "tcp"
    parts = urlsplit(url)
    over_http = {"network.protocol.name": "http", "server.address": parts.hostname, "server.port": parts.port}
    assert attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "echo",
        "network.transport": "tcp" if is_http else "pipe",
        **(over_http if is_http else {}),
    }
    assert span.status.is_unset
    assert not any(word in span.to_json() for word in ("hush", "url-password"))


async def test_a_tool_that_fails_fails_the_span(server: Plugin, spans: InMemorySpanExporter) -> None:
    """A tool's failure fails the span, without the tool's text."""
    with pytest.raises(McpToolError):
        await Caller(server).call("fail", reason="hush")
    span = named(spans, "tools/call fail")
    assert (span.attributes or {})["error.type"] == "tool_error"
    assert not span.status.is_ok
    assert "hush" not in span.to_json()


async def test_a_call_over_http_carries_its_trace_in_a_header(url: str, spans: InMemorySpanExporter) -> None:
    """Each HTTP call carries its own trace in a header, for proxies and servers that ignore the metadata."""
    async with opened(mcp(url, name="own")) as server:
        for _ in range(2):
            with trace.get_tracer("test").start_as_current_span("tool") as tool:
                told = await Caller(server).call("header", name="traceparent")
            assert told.startswith(f"00-{trace.format_trace_id(tool.get_span_context().trace_id)}-")
