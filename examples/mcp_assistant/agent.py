"""An assistant whose tools are those of two MCP servers: a calendar and notes."""

import sys
from pathlib import Path

from everloop import Agent, mcp, prompt

HERE = Path(__file__).parent

agent = Agent(
    id="assistant",
    name="Assistant",
    description="Keeps a calendar and notes.",
    plugins=[
        prompt("You keep the user's calendar and notes. Look before you answer, and say what you changed."),
        mcp(
            command=[sys.executable, str(HERE / "calendar_server.py")],
            name="calendar",
            prefix="calendar_",
            needs_approval=["add_*"],  # other tools follow the hints of the server
        ),
        mcp(
            command=[sys.executable, str(HERE / "notes_server.py")],
            name="notes",
            prefix="notes_",
        ),
    ],
)
