"""An MCP server with a calendar: the events stand in `calendar.json` of the directory that it starts in."""

import json
from datetime import datetime
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

FILE = Path("calendar.json")

server = MCPServer("calendar")


class Event(BaseModel):
    """Something that takes place."""

    title: str
    start: datetime


def events() -> list[Event]:
    """Return all events."""
    return [Event.model_validate(each) for each in json.loads(FILE.read_text())] if FILE.exists() else []


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_events(day: str) -> list[Event]:
    """List the events of a day, which is written as 2026-07-01."""
    return [event for event in events() if event.start.date().isoformat() == day]


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def add_event(event: Event) -> str:
    """Put an event into the calendar. The same one again changes nothing."""
    known = events()
    if event not in known:
        written = [each.model_dump(mode="json") for each in (*known, event)]
        FILE.write_text(json.dumps(written, indent=2))
    return "it stands in the calendar"


if __name__ == "__main__":
    server.run("stdio")
