"""MCP servers that keep to no specification, over both transports."""

import sys
from collections.abc import Mapping

import pytest
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from everloop import mcp
from everloop.agents.mcp.errors import (
    McpError,
    McpProtocolError,
    McpSessionGoneError,
    McpUnavailableError,
)
from tests.support.rigs.mcp_rig import SERVERS, Caller, asker, opened, served
from tests.support.servers.mcp_servers.odd import TOOLS, answer_to

Object = dict[str, JsonValue]

ODD = [sys.executable, str(SERVERS / "odd.py")]


async def test_what_a_server_writes_beside_messages_is_no_matter() -> None:
    """Lines of a log, before the session and within a call, in whatever encoding."""
    async with opened(mcp(command=ODD)) as server:
        assert [tool.name for tool in await server.list_tools(asker())] == [*TOOLS]
        assert await Caller(server).call("log") == "done"
        assert await Caller(server).call("plain") == "done"


async def test_a_result_that_cannot_be_read_says_that_the_tool_ran() -> None:
    """Else the model would take the call for one that had no effect. What was wrong is named."""
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
    """Only if the session is gone the call is made again, in a new one."""
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
    """Where there is no more of an explanation."""

    async def answer(request: Request) -> Response:
        found: Object = await request.json() if request.method == "POST" else {}
        return response if found.get("method") == "tools/call" else plain(found)

    async with served(answer) as url, opened(mcp(url, name="odd")) as server:
        with pytest.raises(error, match=said):
            await Caller(server).call("refuse")


def plain(asked: Object) -> Response:
    """Return the answer of a server that is in order; it tells of nothing by itself."""
    if not asked:
        return Response(status_code=405)
    if "id" not in asked:
        return Response(status_code=202)
    answered: Object = {"jsonrpc": "2.0", "id": asked["id"], **answer_to(asked)}
    return JSONResponse(answered, headers={"mcp-session-id": "one"})
