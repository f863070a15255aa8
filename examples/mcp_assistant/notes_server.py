"""An MCP server with notes: files of Markdown in the folder `notes` of the directory that it starts in."""

import re
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

FOLDER = Path("notes")

server = MCPServer("notes")


def place(title: str) -> Path:
    """Return the file of a note."""
    if not re.fullmatch(r"\w[\w -]{0,60}", title):
        raise ToolError(f"no note can be called {title!r}: use letters, digits, '-' and spaces, 61 at most")
    return FOLDER / f"{title}.md"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_notes() -> list[str]:
    """List the titles of all notes."""
    return sorted(file.stem for file in FOLDER.glob("*.md"))


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def read_note(title: str) -> str:
    """Return the text of a note."""
    return place(title).read_text(encoding="utf-8")


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def write_note(title: str, text: str) -> str:
    """Write a note; one of the same title is replaced."""
    FOLDER.mkdir(exist_ok=True)
    place(title).write_text(text, encoding="utf-8")
    return "written"


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def delete_note(title: str) -> str:
    """Delete a note."""
    place(title).unlink()
    return "deleted"


if __name__ == "__main__":
    server.run("stdio")
