"""What the author of an agent imports."""

from agents.agent import Agent
from agents.artifact_tools import artifacts
from agents.budget import budget
from agents.guard import guard
from agents.hooks import HookContext, ModelRequest, NeedsApproval, TaskOutcome, Veto
from agents.limits import Compaction, Limits
from agents.mcp.plugin import mcp
from agents.memory import Memory
from agents.peer.plugin import peer
from agents.plugins import (
    Plugin,
    SystemPrompt,
    async_prompt,
    handoff,
    narrator,
    prompt,
    request_input,
    sub_agent,
    tools,
)
from agents.questions import AuthRequired, InputRequired
from agents.responder import Responder, Turn
from agents.retries import Retries
from agents.skills import Skill
from agents.tool import Tool, tool
from agents.tool_context import ToolContext
from workflows.contract.questions import Answer
from workflows.contract.tasks import Identity

__all__ = [
    "Agent",
    "Answer",
    "AuthRequired",
    "Compaction",
    "HookContext",
    "Identity",
    "InputRequired",
    "Limits",
    "Memory",
    "ModelRequest",
    "NeedsApproval",
    "Plugin",
    "Responder",
    "Retries",
    "Skill",
    "SystemPrompt",
    "TaskOutcome",
    "Tool",
    "ToolContext",
    "Turn",
    "Veto",
    "artifacts",
    "async_prompt",
    "budget",
    "guard",
    "handoff",
    "mcp",
    "narrator",
    "peer",
    "prompt",
    "request_input",
    "sub_agent",
    "tool",
    "tools",
]
