"""Requests for the tools of an MCP server."""

import asyncio

import pytest
from mcp_types import ListToolsResult, Tool

from everloop.agents.mcp.mcp_definition import McpDefinition
from everloop.agents.mcp.mcp_errors import McpProtocolError
from everloop.agents.mcp.sessions import PAGES, ToolList

SERVER = McpDefinition(url="http://tools.example/mcp", name="tools")


def page(*names: str, cursor: str | None = None) -> ListToolsResult:
    tools = [Tool(name=name, input_schema={"type": "object"}) for name in names]
    return ListToolsResult(tools=tools, next_cursor=cursor)


class Pages:
    """A server with these pages, by their cursors."""

    def __init__(self, **pages: ListToolsResult) -> None:
        self.pages = pages
        self.asked: list[str | None] = []
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, cursor: str | None) -> ListToolsResult:
        self.asked.append(cursor)
        self.is_asked.set()
        await self.may_answer.wait()
        return self.pages[cursor or "first"]


async def test_all_pages_are_read_once() -> None:
    """After that the list is cached."""
    server = Pages(first=page("a", cursor="second"), second=page("b"))
    tools = ToolList(SERVER, server)

    assert list(await tools.get()) == list(await tools.get()) == ["a", "b"]
    assert server.asked == [None, "second"]


async def test_tasks_that_begin_together_share_a_list() -> None:
    """A cancelled one does not cancel it for the others."""
    server = Pages(first=page("a"))
    server.may_answer.clear()
    tools = ToolList(SERVER, server)
    asking = [asyncio.create_task(tools.ask()) for _ in range(3)]
    await server.is_asked.wait()
    asking[0].cancel()
    server.may_answer.set()

    assert [list(await task) for task in asking[1:]] == [["a"], ["a"]]
    assert len(server.asked) == 1


@pytest.mark.parametrize("back_to", ["second", "third"])
async def test_a_cursor_that_was_there_before_ends_the_list(back_to: str) -> None:
    """Some servers name a next page behind the last one."""
    pages = {"first": page("a", cursor="second"), "second": page("b", cursor="third")}
    server = Pages(**pages, third=page("c", cursor=back_to))

    assert list(await ToolList(SERVER, server).get()) == ["a", "b", "c"]
    assert server.asked == [None, "second", "third"]


async def test_a_list_without_end_is_refused() -> None:
    """A server with endless pages would block a task for ever."""
    pages = {f"page{number}": page("a", cursor=f"page{number + 1}") for number in range(PAGES + 1)}
    server = Pages(**pages, first=page("a", cursor="page0"))

    with pytest.raises(McpProtocolError, match="'tools' does not end"):
        await ToolList(SERVER, server).get()
    assert len(server.asked) == PAGES
