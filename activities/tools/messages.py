"""What the model reads when a tool call did not end with the tool's own result."""

from collections.abc import Iterable

from everloop.agents.tool_arguments import render_result
from everloop.workflows.contract.messages import ToolCall, ToolMessage, ToolOutcome
from everloop.workflows.contract.questions import Answer

_WHO = {
    "user": "by the user",
    "approver": "by an approver",
    "operator": "by the operator",
    "timeout": "because nobody answered in time",
}


def message(call: ToolCall, content: str, outcome: ToolOutcome = "ok") -> ToolMessage:
    """Return what a call came to; a content that is too long is cut."""
    return call.result(render_result(content), outcome)


def unknown_tool(call: ToolCall, known: Iterable[str]) -> ToolMessage:
    """Say that the model invented a tool, and which ones there are."""
    available = ", ".join(known) or "none"
    return message(call, f"there is no tool {call.name!r}; available tools: {available}", "invalid")


def tool_is_gone(call: ToolCall, plugin: str) -> ToolMessage:
    """Say that a tool is no longer there that was listed when the task began."""
    gone = f"the tool {call.name!r} is no longer there: the plugin {plugin!r} does not list it any more"
    return message(call, f"{gone}; go on without it", "invalid")


def withheld(problem: str) -> str:
    """Say that the tool ran, and that nobody may read what it came to, as a plugin failed."""
    return f"the tool ran, but {problem}; what it came to is withheld, and it was not run again"


def rejected(call: ToolCall, answer: Answer) -> ToolMessage:
    """Say that people do not want this call."""
    return message(call, f"rejected {_decided(answer)}", "rejected")


def unknown_outcome(call: ToolCall) -> ToolMessage:
    """Say that the call may have taken effect."""
    content = f"{_lost(call)} It may or may not have taken effect, and it was not run again. "
    return message(call, f"{content}Check before you repeat it.", "unknown")


def not_repeated(call: ToolCall, answer: Answer) -> ToolMessage:
    """Say that the call may have taken effect, and that people do not want it repeated."""
    content = f"{_lost(call)} It may or may not have taken effect. Running it again was rejected "
    return message(call, content + _decided(answer), "unknown")


def _lost(call: ToolCall) -> str:
    return f"{call.name} was started, but the process that ran it was lost before it reported."


def _decided(answer: Answer) -> str:
    if answer.by == "timeout" or not answer.note:
        return _WHO[answer.by]
    return f"{_WHO[answer.by]}: {answer.note}"
