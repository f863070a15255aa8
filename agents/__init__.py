"""What the author of an agent imports."""

from agents.agent import Agent
from agents.artifact_tools import artifacts
from agents.limits import Compaction, Limits
from agents.plugins import Plugin, prompt, request_input, sub_agent, tools
from agents.questions import AuthRequired, InputRequired
from agents.responder import Responder, Turn
from agents.retries import Retries
from agents.skills import Skill
from agents.tool import Tool, tool
from agents.tool_context import ToolContext
from workflows.contract.questions import Answer

__all__ = [
    "Agent",
    "Answer",
    "AuthRequired",
    "Compaction",
    "InputRequired",
    "Limits",
    "Plugin",
    "Responder",
    "Retries",
    "Skill",
    "Tool",
    "ToolContext",
    "Turn",
    "artifacts",
    "prompt",
    "request_input",
    "sub_agent",
    "tool",
    "tools",
]
