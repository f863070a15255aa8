"""Schemas of models, peers and MCP servers: while they are looked at, a worker does its other work."""

from collections.abc import AsyncGenerator

import pytest_asyncio

from everloop import mcp, request_input
from everloop.workflows.contract.questions import QuestionKind
from tests.support.doubling import while_checks_wait
from tests.support.rigs.mcp_rig import SMALL_STDIO, asker
from tests.support.rigs.peer_rig import PeerRig, ann
from tests.support.rigs.tool_rig import ToolRig
from tests.support.servers.peer_agent import Town
from tests.support.servers.peer_server import running_peer


@pytest_asyncio.fixture
async def town() -> AsyncGenerator[Town]:
    async with running_peer() as running:
        yield running


async def test_a_question_of_the_model() -> None:
    """It wants data that fits a schema."""
    rig = ToolRig(*request_input().tools)
    arguments = '{"question": "Which?", "kind": "data", "schema": {"type": "object"}}'
    question = await while_checks_wait(rig.ask(rig.call("request_input", arguments)))
    assert question.json_schema == {"type": "object"}


async def test_the_tools_of_an_mcp_server() -> None:
    """Those that it lists, and one that is called."""
    server = mcp(command=SMALL_STDIO, name="own")
    try:
        listed = await server.list_tools(asker())
        again = await while_checks_wait(server.list_tools(asker()))
        one = await while_checks_wait(server.get_tool(listed[0].name, asker()))
    finally:
        await server.close()
    assert [tool.name for tool in again] == [tool.name for tool in listed]
    assert one


async def test_a_question_of_a_peer(town: Town) -> None:
    """It wants data that fits a schema of its own."""
    rig = PeerRig(ann(town))
    question = await while_checks_wait(rig.ask("want object"))
    assert (question.kind, question.json_schema) == (QuestionKind.DATA, {"type": "object"})
