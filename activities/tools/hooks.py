"""What the plugins of an agent have to say to one tool call."""

import hashlib
import json
from dataclasses import dataclass

from pydantic import BaseModel

from everloop.activities.hooks import Hooks, PluginFailedError, hook_context, together
from everloop.activities.tools.messages import message, withheld
from everloop.agents.agent import Agent
from everloop.agents.hooks import NeedsApproval, Veto
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import InvalidArgumentsError, parse_arguments, render_result
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.messages import ToolCall, ToolMessage


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

    What the task says of the call (`RunToolInput.veto`, `approvers`) holds whatever they say.
    """

    def __init__(self, agent: Agent, call: RunToolInput, tool: Tool) -> None:
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


async def report_error(agent: Agent, call: RunToolInput, result: ToolMessage) -> None:
    """Let plugins know of a tool that failed; after a crash they may be called for it again."""
    if result.outcome == "error":
        failed = f"{result.name}: {result.content}"
        await Hooks(agent, hook_context(call.task, call.identity)).on_error(failed)


def _mark_of(arguments: str) -> str:
    """Return a digest of arguments, whatever order and spaces they are written in."""
    written = json.dumps(json.loads(arguments.strip() or "{}"), sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:16]
