"""What the author of an agent imports."""

from agents.agent import Agent, Limits
from agents.plugins import Plugin, prompt, tools
from agents.tool import Tool, tool
from agents.tool_context import ToolContext

__all__ = ["Agent", "Limits", "Plugin", "Tool", "ToolContext", "prompt", "tool", "tools"]
