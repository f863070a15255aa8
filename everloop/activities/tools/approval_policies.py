"""Decides whether a tool call may run: by plugins and by approvals."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from pydantic import BaseModel

from everloop.activities.hook_runner import Hooks, PluginFailedError, hook_context, together
from everloop.activities.tools.tool_results import message, not_repeated, rejected, withheld
from everloop.agents.agent import Agent
from everloop.agents.hooks import NeedsApproval, Veto
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import InvalidArgumentsError, as_json, parse_arguments
from everloop.runtime.printable import printable
from everloop.runtime.telemetry.logs import exception_fields
from everloop.runtime.user_code import translate_base_exceptions
from everloop.workflows.contract.calls import BUILT_IN_TOOLS, LoadAgentInput, ToolCallInput, ToolReply
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.names import call_key
from everloop.workflows.contract.questions import OWNER, Answer, Purpose, Question, QuestionKind


@dataclass(frozen=True)
class VettedCall:
    """A call that may run. `approval` is required regardless of the tool's own setting.

    `mark` is empty unless plugins changed the arguments; it distinguishes the changed ones from all others.
    """

    call: ToolCall
    arguments: BaseModel
    mark: str = ""
    approval: NeedsApproval | None = None


async def vet(agent: Agent, tool: Tool, call: ToolCallInput) -> VettedCall | ToolReply:
    """Return the call to run, the question for its approval, or the refusal for the model.

    The task's own rules for the call (`ToolCallInput.veto`, `approvers`) apply regardless of plugins.
    """
    try:
        arguments = await parse_arguments(tool, call.call.arguments)
    except InvalidArgumentsError as error:
        return message(call.call, str(error), "invalid")
    if call.call.name in BUILT_IN_TOOLS:  # they read data of the task
        return VettedCall(call.call, arguments)
    if call.veto:
        return message(call.call, call.veto, "rejected")
    vetted = await _ask_plugins(agent, tool, call, arguments)
    if isinstance(vetted, ToolMessage) or is_approved(call, vetted.mark):
        return vetted
    if vetted.approval or needs_approval(agent, tool, vetted.arguments):
        return approval_question(tool, call.call, vetted, len(call.answers))
    return vetted


async def _ask_plugins(
    agent: Agent, tool: Tool, call: ToolCallInput, arguments: BaseModel
) -> VettedCall | ToolMessage:
    written, mark = call.call, ""
    try:
        answer = await Hooks(agent, hook_context(call.task, call.identity)).before_tool(written)
        if isinstance(answer, Veto):
            return message(written, answer.reason, "rejected")
        changed, requested = answer
        if changed.arguments != written.arguments:
            if isinstance(call, LoadAgentInput):  # regardless of the current tool of that name
                problem = "a plugin changed its arguments, which a call of another agent cannot have"
                return _not_run(written, problem)
            arguments, mark = await parse_arguments(tool, changed.arguments), _mark_of(changed.arguments)
    except PluginFailedError as error:
        return _not_run(written, error.message)
    except InvalidArgumentsError as error:
        return _not_run(written, f"a plugin changed the call; {error}")
    of_call = NeedsApproval(approvers=call.approvers) if call.approvers else None
    return VettedCall(changed, arguments, mark, together([of_call, requested]))


def _not_run(call: ToolCall, problem: str) -> ToolMessage:
    return message(call, f"{call.name} was not run: {problem}", "error")


async def judge_result(
    agent: Agent, tool: Tool, call: ToolCallInput, vetted: ToolCall, result: ToolMessage
) -> ToolMessage:
    """Return the result after the plugins' changes. The artifacts of the call stay with it."""
    if tool.name in BUILT_IN_TOOLS:
        return result
    hooks = Hooks(agent, hook_context(call.task, call.identity))
    if not hooks.has("after_tool"):
        return result
    try:
        answer = await hooks.after_tool(vetted, result)
    except PluginFailedError as error:
        # An error would start the fallback, which would repeat the effects of the call.
        outcome = "unknown" if tool.fallback and result.outcome != "error" else "error"
        answer = message(vetted, withheld(error.message), outcome)
    if isinstance(answer, Veto):
        answer = message(vetted, answer.reason, "rejected")
    content = answer.content.encode(errors="replace").decode()
    return answer.model_copy(update={"content": content, "artifacts": result.artifacts})


async def report_error(agent: Agent, call: ToolCallInput, result: ToolMessage) -> None:
    """Notify plugins of a failed tool; after a crash they may be notified again."""
    if result.outcome == "error":
        failed = f"{result.name}: {result.content}"
        await Hooks(agent, hook_context(call.task, call.identity)).on_error(failed)


def _mark_of(arguments: str) -> str:
    """Return a digest of arguments that is independent of their order and spaces."""
    written = json.dumps(json.loads(arguments.strip() or "{}"), sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


# Calls that another agent executes: whether they may run, with the rules of other tools.


async def find_veto(agent: Agent, call: LoadAgentInput) -> ToolReply | None:
    """Return the question to answer first, or the refusal of the call; None if it may run."""
    tool = agent.tools.get(call.call.name) or _forgotten(call.call.name)
    reply = ending(call) or await vet(agent, tool, call)
    if isinstance(reply, ToolMessage):
        await report_error(agent, call, reply)
    return None if isinstance(reply, VettedCall) else reply


def _forgotten(name: str) -> Tool:
    """Return an empty tool for one that the task has pinned, and that its agent's definition lacks now."""

    async def nothing() -> None:
        """Do nothing; it is not called."""

    return Tool(nothing, name, "", schema={})


# Questions about a tool call itself: may it run, and may it run again.

_log = structlog.get_logger()


def phase_key(call: ToolCall, question_count: int) -> str:
    """Return the key of a call's phase after so many questions, and of the next question that it may ask.

    Each phase runs at most once. A question is named after its subject, not after its place alone, so that a
    late answer after a Reset does not apply to another call.
    """
    return f"{call_key(call)}.{question_count}" if question_count else call_key(call)


def needs_approval(agent: Agent, tool: Tool, arguments: BaseModel) -> bool:
    """True if people have to approve the call; also if a policy fails."""
    if isinstance(tool.needs_approval, bool) and isinstance(agent.needs_approval, bool):
        return tool.needs_approval or agent.needs_approval
    try:
        with translate_base_exceptions():
            return _wants(tool.needs_approval, arguments) or _wants(
                agent.needs_approval, arguments, tool.name
            )
    except Exception as error:  # noqa: BLE001 -- any exception of a policy requires an approval
        _log.warning("approval policy failed", tool=tool.name, **exception_fields(error))
        return True


def approval_id(call: ToolCall, question_count: int, mark: str) -> str:
    """Return the id of the question whether a call may run, which depends on arguments changed by plugins.

    An approval then applies only to the arguments that people saw.
    """
    return f"{phase_key(call, question_count)}~{mark}" if mark else phase_key(call, question_count)


def approval_question(tool: Tool, written: ToolCall, vetted: VettedCall, question_count: int) -> Question:
    """Return the question whether the model's call may run, with the arguments."""
    reason = printable(vetted.approval.reason, lines=True) if vetted.approval else ""
    text = "\n".join([f"Approve the call {vetted.call.name}?", *([reason] if reason else [])])
    return _confirmation("approval", approval_id(written, question_count, vetted.mark), text, tool, vetted)


def outcome_question(tool: Tool, written: ToolCall, vetted: VettedCall, question_count: int) -> Question:
    """Return the question whether the call may run again after a lost outcome."""
    lost = f"The call {vetted.call.name} was started but its end was lost. It may have taken effect."
    return _confirmation("outcome", phase_key(written, question_count), f"{lost} Run it again?", tool, vetted)


def _confirmation(purpose: Purpose, id_: str, text: str, tool: Tool, vetted: VettedCall) -> Question:
    """Return a question to the approvers that a plugin names, or else to those of the tool."""
    named = vetted.approval.approvers if vetted.approval else OWNER
    arguments = json.dumps(as_json(vetted.arguments), ensure_ascii=False, indent=2)
    return Question(
        id=id_,
        kind=QuestionKind.CONFIRMATION,
        purpose=purpose,
        text=f"{text}\n{printable(arguments, lines=True)}",
        call=vetted.call,
        approvers=tool.approvers if named == OWNER else named,
    )


def _wants(policy: bool | Callable[..., bool], arguments: BaseModel, *about: str) -> bool:  # noqa: FBT001 -- the agent's setting
    return policy if isinstance(policy, bool) else bool(policy(*about, as_json(arguments)))


# The answers of people to a tool call so far, and their consequences.


def is_approved(call: ToolCallInput, mark: str = "") -> bool:
    """True if this call was approved. An approval of the failed tool does not count.

    Nor does one of other arguments, if plugins change them (`VettedCall.mark`).
    """
    ids = {approval_id(call.call, count, mark) for count in range(len(call.answers))}
    return any(answer.approved and answer.question_id in ids for answer in _answers(call, "approval"))


def inputs(call: ToolCallInput) -> tuple[Answer, ...]:
    """Return the answers to the tool's own questions."""
    return _answers(call, "input")


def ending(call: ToolCallInput) -> ToolMessage | None:
    """Return the result of a call that people rejected; None if it continues."""
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
    """True if "no" answers the tool's own question, and does not reject the call."""
    wants_yes_or_no = answer.purpose == "input" and answer.kind is QuestionKind.CONFIRMATION
    return wants_yes_or_no and answer.value is False
