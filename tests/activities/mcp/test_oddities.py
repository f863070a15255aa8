"""MCP servers that deviate from the specification, over both transports."""

import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from everloop import Plugin, mcp
from everloop.agents.mcp.mcp_errors import (
    McpError,
    McpProtocolError,
    McpSessionGoneError,
    McpToolError,
    McpUnavailableError,
)
from tests.support.rigs.mcp_rig import SERVERS, Caller, asker, opened, served
from tests.support.servers.mcp_servers.odd import TOOLS, answer_to

Object = dict[str, JsonValue]

ODD = [sys.executable, str(SERVERS / "odd.py")]


async def test_what_a_server_writes_beside_messages_is_no_matter() -> None:
    """Log lines between messages, in any encoding, are ignored before a session and within a call."""
    async with opened(mcp(command=ODD)) as server:
        assert [tool.name for tool in await server.list_tools(asker())] == [*TOOLS]
        assert await Caller(server).call("log") == "done"
        assert await Caller(server).call("plain") == "done"


async def test_a_result_that_cannot_be_read_says_that_the_tool_ran() -> None:
    """An unreadable result is an error that says that the tool ran, and names the problem.

    Otherwise the model would take the call for one without effect.
    """
    async with opened(mcp(command=ODD)) as server:
        with pytest.raises(McpProtocolError, match=r"blank .* was run, but .*content\.0.*text"):
            await Caller(server).call("blank")


def rpc_error(status: int, message: str, id_: JsonValue = None, **more: str) -> Response:
    error: JsonValue = {"code": -32602, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": id_, "error": error}, status, more)


ERRORS: Mapping[str, tuple[int, str, type[McpError], str, int]] = {
    "400 about the call": (400, "no such city", McpProtocolError, "'odd' says: no such city", 1),
    "404 about the call": (404, "no such city", McpProtocolError, "'odd' says: no such city", 1),
    "500 about the call": (500, "no disk", McpProtocolError, "'odd' says: no disk", 1),
    "400 about the session": (400, "Bad Request: session unknown", McpSessionGoneError, "session", 2),
}


@pytest.mark.parametrize(("status", "told", "error", "said", "calls"), ERRORS.values(), ids=ERRORS)
async def test_an_error_is_about_the_call_or_about_its_session(
    status: int, told: str, error: type[McpError], said: str, calls: int
) -> None:
    """An error is of the call or of its session.

    Only after the loss of a session the call is repeated in a new one.
    """
    asked = list[str]()

    async def answer(request: Request) -> Response:
        found: Object = await request.json() if request.method == "POST" else {}
        if found.get("method") != "tools/call":
            return plain(found)
        asked.append(str(found["params"]))
        return rpc_error(status, told, found["id"])

    async with served(answer) as url, opened(mcp(url, name="odd")) as server:
        with pytest.raises(error, match=said):
            await Caller(server).call("refuse")
    assert len(asked) == calls


STATUSES: Mapping[str, tuple[Response, type[McpError], str]] = {
    "429": (
        PlainTextResponse("slow down", 429),
        McpUnavailableError,
        "has no time now .HTTP 429.; try again",
    ),
    "503 in JSON": (JSONResponse({"error": "later"}, 503), McpUnavailableError, "HTTP 503"),
    "500 in JSON that is no MCP": (
        JSONResponse({"error": "oops"}, 500),
        McpProtocolError,
        "answered HTTP 500",
    ),
}


@pytest.mark.parametrize(("response", "error", "said"), STATUSES.values(), ids=STATUSES)
async def test_a_status_is_told(response: Response, error: type[McpError], said: str) -> None:
    """Without another explanation, the error has the HTTP status."""

    async def answer(request: Request) -> Response:
        found: Object = await request.json() if request.method == "POST" else {}
        return response if found.get("method") == "tools/call" else plain(found)

    async with served(answer) as url, opened(mcp(url, name="odd")) as server:
        with pytest.raises(error, match=said):
            await Caller(server).call("refuse")


OBJECT: Object = {"type": "object"}
GOOD: Object = {"name": "good", "inputSchema": OBJECT}
MALFORMED: Mapping[str, JsonValue] = {
    "no schema": {"name": "bad"},
    "a schema of null": {"name": "bad", "inputSchema": None},
    "an empty schema": {"name": "bad", "inputSchema": {}},
    "no name": {"inputSchema": OBJECT},
    "a number for a description": {**GOOD, "name": "bad", "description": 5},
    "no tool": "bad",
}


@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_tool_is_left_out_alone(
    malformed: JsonValue, capsys: pytest.CaptureFixture[str]
) -> None:
    """A malformed tool is left out with a log line; the server's other tools are offered."""
    async with said({"tools/list": {"tools": [malformed, GOOD]}}) as server:
        assert [tool.name for tool in await server.list_tools(asker())] == ["good"]
        assert await Caller(server).call("good") == "done"
    assert "tool of an MCP server left out" in capsys.readouterr().out


async def test_a_list_that_is_none_is_an_error() -> None:
    """A malformed list of tools is an error."""
    async with said({"tools/list": {"tools": "all of them"}}) as server:
        with pytest.raises(McpProtocolError, match=r"does not have the form that MCP wants \(at tools\)"):
            await server.list_tools(asker())


UNCHECKABLE: Mapping[str, JsonValue] = {
    "no type": {"type": "integr"},
    "no type within": {"type": "object", "properties": {"degrees": {"type": "integr"}}},
    "a reference to another place": {"type": "object", "$ref": "https://schemas.example/city.json"},
    "no object": "integer",
}


@pytest.mark.parametrize("schema", UNCHECKABLE.values(), ids=UNCHECKABLE)
async def test_a_result_that_cannot_be_checked_reaches_the_model(
    schema: JsonValue, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result whose schema is invalid reaches the model, and the schema's problem is logged."""
    tool: Object = {**GOOD, "outputSchema": schema}
    result: Object = {"content": [], "structuredContent": {"degrees": 21}}
    async with said({"tools/list": {"tools": [tool]}, "tools/call": result}) as server:
        await server.list_tools(asker())
        assert await Caller(server).call("good") == '{"degrees":21}'
    assert "outputSchema" in capsys.readouterr().out


async def test_a_call_that_is_repeated_in_a_new_session_is_checked_there() -> None:
    """Tools are listed before a repeated call: an error of the list after it would hide its result."""
    schema: Object = {"type": "object", "required": ["degrees"]}
    asked = list[str]()

    async def answer(request: Request) -> Response:
        found: Object = await request.json() if request.method == "POST" else {}
        asked.append(str(found.get("method")))
        if asked[-1] == "tools/list":
            return result_of(found, {"tools": [{**GOOD, "outputSchema": schema}]})
        if asked[-1] != "tools/call":
            return plain(found)
        return (
            Response(status_code=404) if asked.count("tools/call") == 1 else result_of(found, {"content": []})
        )

    async with served(answer) as url, opened(mcp(url, name="odd")) as server:
        with pytest.raises(McpProtocolError, match="breaks the rule"):
            await Caller(server).call("good")
    calls = [method for method in asked if method.startswith("tools/")]
    assert calls == ["tools/list", "tools/call", "tools/list", "tools/call"]


@pytest.mark.parametrize("more", [{}, {"content": None}, {"content": []}], ids=str)
@pytest.mark.parametrize("is_error", [False, True])
async def test_structured_content_is_a_result_by_itself(more: Object, *, is_error: bool) -> None:
    """Structured content alone is a result, also of a tool that failed."""
    result: Object = {"structuredContent": {"degrees": 21}, "isError": is_error, **more}
    async with said({"tools/call": result}) as server:
        if not is_error:
            assert await Caller(server).call("plain") == '{"degrees":21}'
            return
        with pytest.raises(McpToolError, match=re.escape('{"degrees":21}')):
            await Caller(server).call("plain")


async def test_certificates_that_are_gone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing certificate file is reported with the variable that names it."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    async with said({}) as server:
        with pytest.raises(McpUnavailableError, match=r"SSL_CERT_FILE .* cannot be read \(No such file"):
            await server.list_tools(asker())


@asynccontextmanager
async def said(results: Object) -> AsyncGenerator[Plugin]:
    """Yield the tools of a server with these results by method."""

    async def answer(request: Request) -> Response:
        found: Object = await request.json() if request.method == "POST" else {}
        if result := results.get(str(found.get("method"))):
            return result_of(found, result)
        return plain(found)

    async with served(answer) as url, opened(mcp(url, name="odd")) as server:
        yield server


def result_of(asked: Object, result: JsonValue) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def plain(asked: Object) -> Response:
    """Return a well-behaved server's answer; it sends no notifications."""
    if not asked:
        return Response(status_code=405)
    if "id" not in asked:
        return Response(status_code=202)
    answered: Object = {"jsonrpc": "2.0", "id": asked["id"], **answer_to(asked)}
    return JSONResponse(answered, headers={"mcp-session-id": "one"})
