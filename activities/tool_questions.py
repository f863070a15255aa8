"""The questions that a tool call asks by itself: may it run, and may it run again."""

import json
from collections.abc import Mapping

import structlog
from pydantic import BaseModel, JsonValue

from activities.tool_arguments import as_json
from activities.tool_hooks import VettedCall
from agents.agent import Agent
from agents.tool import Tool
from workflows.contract.messages import ToolCall
from workflows.contract.names import call_key
from workflows.contract.questions import Question, QuestionKind

_log = structlog.get_logger()


def question_id(call: ToolCall, asked: int) -> str:
    """Name the next question of a call that has asked so many."""
    return f"{call.id}.{asked}" if asked else call.id


def phase_key(call: ToolCall, asked: int) -> str:
    """Name what runs of a call after so many questions: each such phase runs at most once."""
    return f"{call_key(call)}.{asked}" if asked else call_key(call)


def needs_approval(agent: Agent, tool: Tool, arguments: BaseModel) -> bool:
    """Whether people are asked before the call runs; a policy that fails asks them."""
    if isinstance(tool.needs_approval, bool) and isinstance(agent.needs_approval, bool):
        return tool.needs_approval or agent.needs_approval
    shown = as_json(arguments)
    try:
        return _tool_wants(tool, shown) or _agent_wants(agent, tool, shown)
    except Exception as error:  # noqa: BLE001 -- whatever a policy raises, nothing runs unasked
        _log.warning("approval policy failed", tool=tool.name, error_type=type(error).__name__)
        return True


def approval_id(call: ToolCall, asked: int, mark: str) -> str:
    """Name the question whether a call may run. With arguments that plugins changed it is another one.

    An approval then holds for the arguments that people saw, and for no others.
    """
    return f"{question_id(call, asked)}~{mark}" if mark else question_id(call, asked)


def approval_question(vetted: VettedCall, asked: int) -> Question:
    """Ask whether the call may run, and show what with."""
    call, reason = vetted.call, vetted.approval.reason if vetted.approval else ""
    lines = [f"Approve the call {call.name}?", *([_printable(reason)] if reason else [])]
    return Question(
        id=approval_id(call, asked, vetted.mark),
        kind=QuestionKind.CONFIRMATION,
        purpose="approval",
        text="\n".join([*lines, _shown(as_json(vetted.arguments))]),
        call=call,
    )


def outcome_question(call: ToolCall, asked: int, arguments: BaseModel) -> Question:
    """Ask whether the call may run again, now that nobody knows whether it ran."""
    return Question(
        id=question_id(call, asked),
        kind=QuestionKind.CONFIRMATION,
        purpose="outcome",
        text=(
            f"The call {call.name} was started but its end was lost. It may have taken effect. "
            f"Run it again?\n{_shown(as_json(arguments))}"
        ),
        call=call,
    )


def _tool_wants(tool: Tool, arguments: Mapping[str, JsonValue]) -> bool:
    policy = tool.needs_approval
    return policy if isinstance(policy, bool) else bool(policy(arguments))


def _agent_wants(agent: Agent, tool: Tool, arguments: Mapping[str, JsonValue]) -> bool:
    policy = agent.needs_approval
    return policy if isinstance(policy, bool) else bool(policy(tool.name, arguments))


def _shown(arguments: Mapping[str, JsonValue]) -> str:
    """Return the arguments as JSON. What does not print is escaped: it could make them look like others."""
    return _printable(json.dumps(arguments, ensure_ascii=False, indent=2))


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() or sign == "\n" else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    return json.dumps(sign)[1:-1]
