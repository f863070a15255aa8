"""Agents that use all traced parts: tools, an MCP server, a sub-agent and a remote agent."""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from opentelemetry import trace

from everloop import Agent, mcp, peer, prompt, sub_agent, tool, tools
from tests.support.agents.acceptance import LONG, repeat
from tests.support.agents.marks import until_open
from tests.support.agents.peers import PEER_URL

MCP_SERVER = Path(__file__).parents[1] / "servers/mcp_servers/traced.py"
EXPORT = "OTEL_EXPORTER_OTLP_ENDPOINT"

_tracer = trace.get_tracer("tests")


@tool(idempotent=True, timeout=LONG)
async def look_up(gate: str) -> str:
    """Work in a span of the tool's own, as libraries do, then wait for a gate file."""
    with _tracer.start_as_current_span("look up"):
        await asyncio.sleep(0)
    await until_open(gate)
    return "found"


lead = Agent(
    id="lead",
    name="Lead",
    description="Lets others work.",
    model="lead",
    plugins=[
        prompt("Follow the script."),
        tools(repeat),
        mcp(
            command=[sys.executable, str(MCP_SERVER)],
            name="notes",
            env={EXPORT: os.environ.get(EXPORT, "http://127.0.0.1:1")},
        ),
        sub_agent("writer"),
        peer(os.environ.get(PEER_URL, "http://127.0.0.1:1"), name="colleague", timeout=timedelta(seconds=60)),
    ],
)
writer = Agent(
    id="writer", name="Writer", description="Writes.", model="writer", plugins=[tools(repeat, look_up)]
)
agents = [lead, writer]
elsewhere = Agent(id="elsewhere", name="Elsewhere", description="Answers.", model="elsewhere")
