"""Whether a tool call may run: what plugins say of it, and what people are asked."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from pydantic import BaseModel, JsonValue

from everloop.activities.hooks import Hooks, PluginFailedError, hook_context, together
from everloop.activities.tools.messages import message, not_repeated, rejected, withheld
from everloop.agents.agent import Agent
from everloop.agents.hooks import NeedsApproval, Veto
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import InvalidArgumentsError, as_json, parse_arguments, render_result
from everloop.runtime.telemetry.logs import exception_fields
from everloop.workflows.contract.calls import LoadAgentInput, ToolCallInput, ToolReply
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.names import call_key
from everloop.workflows.contract.questions import OWNER, Answer, Purpose, Question, QuestionKind


@dataclass(frozen=True)
class VettedCall:
    """A call as it is to run. `approval` is what people are to be asked, whatever the tool itself says.

    `mark` is empty unless plugins changed the arguments; it distinguishes the changed ones from all others.
    """

    call: ToolCall
    arguments: BaseModel
    mark: str = ""
    approval: NeedsApproval | None = None


class ToolHooks:
    """Asks the plugins before and after one attempt at a call. Whatever goes wrong there is a result, too.

    What the task says of the call (`ToolCallInput.veto`, `approvers`) holds whatever they say.
    """

    def __init__(self, agent: Agent, call: ToolCallInput, tool: Tool) -> None:
        self._hooks = Hooks(agent, hook_context(call.task, call.identity))
        self._call = call.call
        self._tool = tool
        self._veto = call.veto
        self._approval = NeedsApproval(approvers=call.approvers) if call.approvers else None

    async def before(self, arguments: BaseModel) -> VettedCall | ToolMessage:
        """Return the call as it is to run, or what the model reads if it may not."""
        call = self._call
        if self._veto:
            return message(call, self._veto, "rejected")
        if not self._hooks.has("before_tool"):
            return VettedCall(call, arguments, approval=self._approval)
        try:
            return await self._ask(arguments)
        except PluginFailedError as error:
            return message(call, f"{call.name} was not run: {error}", "error")
        except InvalidArgumentsError as error:
            return message(call, f"{call.name} was not run: a plugin changed the call; {error}", "error")

    async def after(self, call: ToolCall, result: ToolMessage) -> ToolMessage:
        """Return the result as the model is to read it. What the call has written stays with it."""
        if not self._hooks.has("after_tool"):
            return result
        try:
            answer = await self._hooks.after_tool(call, result)
        except PluginFailedError as error:
            # An error would bring the fallback, which would do again what was done.
            outcome = "unknown" if self._tool.fallback and result.outcome != "error" else "error"
            answer = message(call, withheld(error), outcome)
        if isinstance(answer, Veto):
            answer = message(call, answer.reason, "rejected")
        return answer.model_copy(
            update={"content": render_result(answer.content), "artifacts": result.artifacts}
        )

    async def _ask(self, arguments: BaseModel) -> VettedCall | ToolMessage:
        answer = await self._hooks.before_tool(self._call)
        if answer.veto:
            return message(self._call, answer.veto.reason, "rejected")
        approval = together([self._approval, answer.approval])
        if answer.call.arguments == self._call.arguments:
            return VettedCall(self._call, arguments, approval=approval)
        changed = await parse_arguments(self._tool, answer.call.arguments)
        return VettedCall(answer.call, changed, _mark_of(answer.call.arguments), approval)


async def report_error(agent: Agent, call: ToolCallInput, result: ToolMessage) -> None:
    """Let plugins know of a tool that failed; after a crash they may be called for it again."""
    if result.outcome == "error":
        failed = f"{result.name}: {result.content}"
        await Hooks(agent, hook_context(call.task, call.identity)).on_error(failed)


def _mark_of(arguments: str) -> str:
    """Return a digest of arguments, whatever order and spaces they are written in."""
    written = json.dumps(json.loads(arguments.strip() or "{}"), sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


# Calls that another agent takes: whether they may be made, which is asked like with any other tool.


async def find_veto(agent: Agent, call: LoadAgentInput) -> ToolReply | None:
    """Return what has to be answered first, or why the agent may not make the call; None if it may."""
    reply = await _vet(agent, call)
    if isinstance(reply, ToolMessage):
        await report_error(agent, call, reply)
    return reply


async def _vet(agent: Agent, call: ToolCallInput) -> ToolReply | None:
    tool = agent.tools.get(call.call.name) or _forgotten(call.call.name)
    try:
        arguments = await parse_arguments(tool, call.call.arguments)
    except InvalidArgumentsError as error:
        return message(call.call, str(error), "invalid")
    if ended := ending(call):
        return ended
    vetted = await ToolHooks(agent, call, tool).before(arguments)
    if isinstance(vetted, ToolMessage):
        return vetted
    if vetted.mark:
        changed = "a plugin changed its arguments, which a call of another agent cannot have"
        return message(call.call, f"{call.call.name} was not run: {changed}", "error")
    if not is_approved(call) and (vetted.approval or needs_approval(agent, tool, arguments)):
        return approval_question(tool, call.call, vetted, len(call.answers))
    return None


def _forgotten(name: str) -> Tool:
    """Return an empty tool for one that the task has pinned, and that its agent's definition has no more."""

    async def nothing() -> None:
        """Do nothing: it is not called."""

    return Tool(nothing, name, "", schema={})


# The questions that a tool call asks by itself: may it run, and may it run again.

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


def is_approved(call: ToolCallInput, mark: str = "") -> bool:
    """Whether somebody has approved this very call; a yes to the tool that failed is none.

    Nor is a yes to other arguments, where plugins change them (`VettedCall.mark`).
    """
    asked = {approval_id(call.call, count, mark) for count in range(len(call.answers))}
    return any(answer.approved and answer.question_id in asked for answer in _answers(call, "approval"))


def inputs(call: ToolCallInput) -> tuple[Answer, ...]:
    """Return the answers to what the tool itself has asked."""
    return _answers(call, "input")


def ending(call: ToolCallInput) -> ToolMessage | None:
    """Return the result of a call that people do not want to go on; None if it goes on."""
    answer = call.answers[-1] if call.answers else None
    if answer is None or answer.tool != call.call.name or answer.approved or _is_plain_no(answer):
        return None
    if answer.purpose == "outcome":
        return not_repeated(call.call, answer)
    return rejected(call.call, answer)


def _answers(call: ToolCallInput, purpose: Purpose) -> tuple[Answer, ...]:
    mine = (answer for answer in call.answers if answer.tool == call.call.name)
    return tuple(answer for answer in mine if answer.purpose == purpose)


def _is_plain_no(answer: Answer) -> bool:
    """Whether "no" is what the tool wanted to know, rather than the end of the call."""
    wants_yes_or_no = answer.purpose == "input" and answer.kind is QuestionKind.CONFIRMATION
    return wants_yes_or_no and answer.value is False
