"""The questions that a tool call asks by itself: may it run, and may it run again."""

import json
from collections.abc import Mapping

import structlog
from pydantic import BaseModel, JsonValue

from everloop.activities.tools.hooks import VettedCall
from everloop.activities.tools.messages import not_repeated, rejected
from everloop.agents.agent import Agent
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import as_json
from everloop.runtime.telemetry.logs import exception_fields
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.names import call_key
from everloop.workflows.contract.questions import OWNER, Answer, Purpose, Question, QuestionKind

_log = structlog.get_logger()


def phase_key(call: ToolCall, asked: int) -> str:
    """Name what runs of a call after so many questions, and the question that it may ask next.

    Each such phase runs at most once. A question is named after what it asks about, not after its place
    alone: after a Reset an answer that comes late is for no other call.
    """
    return f"{call_key(call)}.{asked}" if asked else call_key(call)


def needs_approval(agent: Agent, tool: Tool, arguments: BaseModel) -> bool:
    """Whether people are asked before the call runs; a policy that fails asks them."""
    if isinstance(tool.needs_approval, bool) and isinstance(agent.needs_approval, bool):
        return tool.needs_approval or agent.needs_approval
    arguments_text = as_json(arguments)
    try:
        return _tool_wants(tool, arguments_text) or _agent_wants(agent, tool, arguments_text)
    except Exception as error:  # noqa: BLE001 -- whatever a policy raises, nothing runs unasked
        _log.warning("approval policy failed", tool=tool.name, **exception_fields(error))
        return True


def approval_id(call: ToolCall, asked: int, mark: str) -> str:
    """Name the question whether a call may run. With arguments that plugins changed it is another one.

    An approval then holds for the arguments that people saw, and for no others.
    """
    return f"{phase_key(call, asked)}~{mark}" if mark else phase_key(call, asked)


def approval_question(tool: Tool, written: ToolCall, vetted: VettedCall, asked: int) -> Question:
    """Ask whether the call may run that the model has written, and show what with."""
    call, reason = vetted.call, vetted.approval.reason if vetted.approval else ""
    lines = [f"Approve the call {call.name}?", *([_printable(reason)] if reason else [])]
    return Question(
        id=approval_id(written, asked, vetted.mark),
        kind=QuestionKind.CONFIRMATION,
        purpose="approval",
        text="\n".join([*lines, _shown(as_json(vetted.arguments))]),
        call=call,
        approvers=_approvers(tool, vetted),
    )


def outcome_question(tool: Tool, written: ToolCall, vetted: VettedCall, asked: int) -> Question:
    """Ask whether the call may run again, now that nobody knows whether it ran."""
    call = vetted.call
    return Question(
        id=phase_key(written, asked),
        kind=QuestionKind.CONFIRMATION,
        purpose="outcome",
        text=(
            f"The call {call.name} was started but its end was lost. It may have taken effect. "
            f"Run it again?\n{_shown(as_json(vetted.arguments))}"
        ),
        call=call,
        approvers=_approvers(tool, vetted),
    )


def _approvers(tool: Tool, vetted: VettedCall) -> str:
    """Return who is asked: whom a plugin names that wants an approval, or else whom the tool names."""
    named = vetted.approval.approvers if vetted.approval else OWNER
    return tool.approvers if named == OWNER else named


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


# What people have answered to a tool call so far, and what follows from it.


def is_approved(call: RunToolInput, mark: str = "") -> bool:
    """Whether somebody has approved this very call; a yes to the tool that failed is none.

    Nor is a yes to other arguments, where plugins change them (`VettedCall.mark`).
    """
    asked = {approval_id(call.call, count, mark) for count in range(len(call.answers))}
    return any(answer.approved and answer.question_id in asked for answer in _answers(call, "approval"))


def inputs(call: RunToolInput) -> tuple[Answer, ...]:
    """Return the answers to what the tool itself has asked."""
    return _answers(call, "input")


def ending(call: RunToolInput) -> ToolMessage | None:
    """Return the result of a call that people do not want to go on; None if it goes on."""
    answer = call.answers[-1] if call.answers else None
    if answer is None or answer.tool != call.call.name or answer.approved or _is_plain_no(answer):
        return None
    if answer.purpose == "outcome":
        return not_repeated(call.call, answer)
    return rejected(call.call, answer)


def _answers(call: RunToolInput, purpose: Purpose) -> tuple[Answer, ...]:
    mine = (answer for answer in call.answers if answer.tool == call.call.name)
    return tuple(answer for answer in mine if answer.purpose == purpose)


def _is_plain_no(answer: Answer) -> bool:
    """Whether "no" is what the tool wanted to know, rather than the end of the call."""
    wants_yes_or_no = answer.purpose == "input" and answer.kind is QuestionKind.CONFIRMATION
    return wants_yes_or_no and answer.value is False
