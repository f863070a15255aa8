"""Public names for authors of agents: `from everloop import Agent, prompt, tool, tools`.

Names are imported on first use: all modules of Everloop are below this package, and the core, the
gateway and the commands do not need the modules of agents.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from everloop.version import __version__ as __version__

if TYPE_CHECKING:
    from everloop.agents.agent import Agent, Responder, Skill, Turn
    from everloop.agents.artifact_tools import artifacts
    from everloop.agents.delegation import handoff, sub_agent
    from everloop.agents.guard import budget, guard
    from everloop.agents.hooks import HookContext, NeedsApproval, TaskOutcome, Veto
    from everloop.agents.limits import Compaction, Limits, Memory, ModelSettings, Retries
    from everloop.agents.mcp.plugin import mcp
    from everloop.agents.peer.plugin import peer
    from everloop.agents.plugins import (
        Plugin,
        SystemPrompt,
        async_prompt,
        narrator,
        prompt,
        request_input,
        tools,
    )
    from everloop.agents.questions import AuthRequired, InputRequired
    from everloop.agents.tool import Tool, tool
    from everloop.agents.tool_context import ToolContext
    from everloop.models.interface import (
        CallDelta,
        Ended,
        Model,
        ModelRequest,
        Opaque,
        OutputSchema,
        ProviderToolDelta,
        RefusalDelta,
        TextDelta,
        ThoughtDelta,
    )
    from everloop.testing.run import run
    from everloop.workflows.contract.questions import Answer
    from everloop.workflows.contract.tasks import Identity


__all__ = ["Agent", "Answer", "AuthRequired", "CallDelta", "Compaction", "Ended", "HookContext", "Identity"]
__all__ += ["InputRequired", "Limits", "Memory", "Model", "ModelRequest", "ModelSettings", "NeedsApproval"]
__all__ += ["Opaque", "OutputSchema", "Plugin", "ProviderToolDelta", "RefusalDelta", "Responder", "Retries"]
__all__ += ["Skill", "SystemPrompt", "TaskOutcome", "TextDelta", "ThoughtDelta", "Tool", "ToolContext"]
__all__ += ["Turn", "Veto"]
__all__ += ["artifacts", "async_prompt", "budget", "guard", "handoff", "mcp", "narrator", "peer"]
__all__ += ["prompt", "request_input", "run", "sub_agent", "tool", "tools"]

_HOMES = {
    name: module
    for module, names in {
        "everloop.agents.agent": "Agent Responder Skill Turn",
        "everloop.workflows.contract.questions": "Answer",
        "everloop.agents.questions": "AuthRequired InputRequired",
        "everloop.workflows.contract.tasks": "Identity",
        "everloop.agents.hooks": "HookContext NeedsApproval TaskOutcome Veto",
        "everloop.agents.limits": "Compaction Limits Memory ModelSettings Retries",
        "everloop.agents.delegation": "handoff sub_agent",
        "everloop.agents.plugins": "Plugin SystemPrompt async_prompt narrator prompt request_input tools",
        "everloop.agents.tool": "Tool tool",
        "everloop.models.interface": (
            "CallDelta Ended Model ModelRequest Opaque OutputSchema ProviderToolDelta RefusalDelta TextDelta "
            "ThoughtDelta"
        ),
        "everloop.agents.tool_context": "ToolContext",
        "everloop.agents.artifact_tools": "artifacts",
        "everloop.agents.guard": "budget guard",
        "everloop.agents.mcp.plugin": "mcp",
        "everloop.agents.peer.plugin": "peer",
        "everloop.testing.run": "run",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
