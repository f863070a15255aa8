"""An MCP server that knows what other libraries have. Everloop starts it."""

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("branches")

BRANCHES = {"Kim": ["Harbour", "Old Town"]}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def branches_with(title: str) -> list[str]:
    """Name the branches that have a copy of a book."""
    return BRANCHES.get(title, [])


if __name__ == "__main__":
    server.run()
