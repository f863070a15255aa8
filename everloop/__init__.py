"""What the author of an agent imports: `from everloop import Agent, prompt, tool, tools`.

Nothing is loaded before it is asked for: all modules of Everloop stand below this package, and the core, the
gateway and the commands do not need what agents are made of.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everloop.agents.agent import Agent, Responder, Skill, Turn
    from everloop.agents.artifact_tools import artifacts
    from everloop.agents.guard import budget, guard
    from everloop.agents.hooks import HookContext, ModelRequest, NeedsApproval, TaskOutcome, Veto
    from everloop.agents.limits import Limits, Retries
    from everloop.agents.mcp.plugin import mcp
    from everloop.agents.peer.plugin import peer
    from everloop.agents.plugins import (
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
    from everloop.agents.questions import AuthRequired, InputRequired
    from everloop.agents.tool import Tool, tool
    from everloop.agents.tool_context import ToolContext
    from everloop.workflows.contract.questions import Answer
    from everloop.workflows.contract.tasks import Compaction, Identity, Memory

__version__ = "0.1.0"

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

_HOMES = {
    "Agent": "everloop.agents.agent",
    "Answer": "everloop.workflows.contract.questions",
    "AuthRequired": "everloop.agents.questions",
    "Compaction": "everloop.workflows.contract.tasks",
    "HookContext": "everloop.agents.hooks",
    "Identity": "everloop.workflows.contract.tasks",
    "InputRequired": "everloop.agents.questions",
    "Limits": "everloop.agents.limits",
    "Memory": "everloop.workflows.contract.tasks",
    "ModelRequest": "everloop.agents.hooks",
    "NeedsApproval": "everloop.agents.hooks",
    "Plugin": "everloop.agents.plugins",
    "Responder": "everloop.agents.agent",
    "Retries": "everloop.agents.limits",
    "Skill": "everloop.agents.agent",
    "SystemPrompt": "everloop.agents.plugins",
    "TaskOutcome": "everloop.agents.hooks",
    "Tool": "everloop.agents.tool",
    "ToolContext": "everloop.agents.tool_context",
    "Turn": "everloop.agents.agent",
    "Veto": "everloop.agents.hooks",
    "artifacts": "everloop.agents.artifact_tools",
    "async_prompt": "everloop.agents.plugins",
    "budget": "everloop.agents.guard",
    "guard": "everloop.agents.guard",
    "handoff": "everloop.agents.plugins",
    "mcp": "everloop.agents.mcp.plugin",
    "narrator": "everloop.agents.plugins",
    "peer": "everloop.agents.peer.plugin",
    "prompt": "everloop.agents.plugins",
    "request_input": "everloop.agents.plugins",
    "sub_agent": "everloop.agents.plugins",
    "tool": "everloop.agents.tool",
    "tools": "everloop.agents.plugins",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
