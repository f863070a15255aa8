"""Agents that work together, and with plugins; each asks a model of its own name.

A test may give the address of an MCP server in the environment; otherwise one is started.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, Field

from everloop import (
    Agent,
    AuthRequired,
    InputRequired,
    Memory,
    Plugin,
    ToolContext,
    guard,
    handoff,
    mcp,
    narrator,
    prompt,
    sub_agent,
    tool,
    tools,
)
from tests.support.agents.acceptance import repeat, write_line, write_once

LONG = timedelta(seconds=60)
MCP_SERVER = Path(__file__).parents[1] / "servers/mcp_servers/ledger.py"
MCP_URL = "EVERLOOP_TEST_MCP_URL"


class Sum(BaseModel):
    """The counting agent's answer."""

    total: int = Field(ge=0)
    words: list[str] = []


@tool(idempotent=True, timeout=LONG)
async def ask_title(context: ToolContext) -> str:
    """Ask people for a title."""
    if context.answer is None:
        raise InputRequired("Which title?")
    return f"the title is {context.answer}"


@tool(idempotent=True)
async def log_in(context: ToolContext) -> str:
    """Ask for a password, and return its length."""
    password = await context.secret("password")
    if not isinstance(password, str):
        raise AuthRequired("Which password?", "password")
    return f"it has {len(password)} characters"


def _ledger() -> Plugin:
    url = os.environ.get(MCP_URL)
    if url:
        return mcp(url, name="ledger")
    return mcp(command=[sys.executable, str(MCP_SERVER), "stdio"], name="ledger")


agents = [
    Agent(
        id="lead",
        name="Lead",
        description="Lets others work.",
        model="lead",
        plugins=[
            sub_agent("writer"),
            handoff("closer"),
            tools(write_line, write_once, repeat),
            guard(deny=["repeat"], approve=["write_line"]),
        ],
        memory=Memory(max_messages=50),
    ),
    Agent(
        id="writer",
        name="Writer",
        description="Writes, and asks people.",
        model="writer",
        plugins=[tools(ask_title, log_in, write_line, write_once, repeat)],
    ),
    Agent(
        id="closer",
        name="Closer",
        description="Goes on with what others began.",
        model="closer",
        plugins=[prompt("You close."), tools(write_once)],
    ),
    Agent(
        id="counter",
        name="Counter",
        description="Counts.",
        model="counter",
        output=Sum,
        plugins=[prompt("Count.")],
    ),
    Agent(
        id="told",
        name="Told",
        description="Tells what it does.",
        model="told",
        plugins=[tools(write_once), narrator(interval=1, model="narrator")],
    ),
    Agent(id="served", name="Served", description="Uses an MCP server.", model="served", plugins=[_ledger()]),
    Agent(
        id="summary",
        name="Summary",
        description="Keeps in mind what was said long ago.",
        model="summary",
        plugins=[tools(write_once)],
        memory=Memory(max_messages=4, strategy="summary"),
    ),
]
