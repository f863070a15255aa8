"""Calls that another agent takes: whether they may be made, which is asked like with any other tool."""

from everloop.activities.tools.hooks import ToolHooks, report_error
from everloop.activities.tools.messages import message
from everloop.activities.tools.questions import approval_question, ending, is_approved, needs_approval
from everloop.agents.agent import Agent
from everloop.agents.tool import Tool
from everloop.agents.tool_arguments import InvalidArgumentsError, parse_arguments
from everloop.workflows.contract.calls import LoadAgentInput, RunToolInput, ToolReply
from everloop.workflows.contract.messages import ToolMessage


async def find_veto(agent: Agent, call: LoadAgentInput) -> ToolReply | None:
    """Return what has to be answered first, or why the agent may not make the call; None if it may."""
    run = RunToolInput(
        task=call.task,
        call=call.call,
        position=0,
        timeout=0,
        answers=call.answers,
        identity=call.identity,
        veto=call.veto,
        approvers=call.approvers,
    )
    reply = await _vet(agent, run)
    if isinstance(reply, ToolMessage):
        await report_error(agent, run, reply)
    return reply


async def _vet(agent: Agent, call: RunToolInput) -> ToolReply | None:
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
