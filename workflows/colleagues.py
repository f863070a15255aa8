"""Tool calls that other agents of this deployment take: a part of the work, or the whole task."""

import json

from temporalio import workflow
from temporalio.workflow import ActivityConfig

from everloop.workflows import display
from everloop.workflows.activity_options import hooked_call, short_call
from everloop.workflows.contract.calls import LoadAgentInput, LoadedAgent, StoreResultInput, ToolReply
from everloop.workflows.contract.messages import ToolCall, ToolMessage, ToolOutcome
from everloop.workflows.contract.names import call_key, child_task_id
from everloop.workflows.contract.ports import AgentPort, ToolPort
from everloop.workflows.contract.tasks import AgentSpec, ToolSpec
from everloop.workflows.scope import TaskScope
from everloop.workflows.spans import tool_call_span
from everloop.workflows.sub_agents import SubAgents


class Colleagues:
    """Finds the agent that a call names, and lets it work. The result of the call is our own to store."""

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope
        self._state = scope.state
        self._sub_agents = SubAgents(scope)

    async def take(self, tool: ToolSpec, call: ToolCall, position: int, warning: str) -> ToolReply:
        """Return what the call came to, or what it asks first; what a sub-agent used counts as ours.

        Raises:
            ChildWorkflowError: the task was cancelled, and the sub-agent with it.
        """
        with tool_call_span(self._scope.ref, call):
            return await self._take(tool, call, position, warning)

    async def _take(self, tool: ToolSpec, call: ToolCall, position: int, warning: str) -> ToolReply:
        agent = await self._load(tool, call, warning)
        if agent.question:
            return agent.question
        result = agent.refused or await self._work(tool, agent, call)
        await workflow.execute_activity_method(
            ToolPort.store_result,
            StoreResultInput(
                task=self._scope.ref,
                position=position,
                result=result,
                has_fallback=tool.fallback is not None,
            ),
            **short_call(f"result of {call.name}"),
        )
        return result

    async def _load(self, tool: ToolSpec, call: ToolCall, warning: str) -> LoadedAgent:
        task_id = self._scope.ref.task_id
        with self._scope.outbox.carried() as statuses:
            return await workflow.execute_activity_method(
                AgentPort.load_agent,
                LoadAgentInput(
                    task=self._scope.ref,
                    call=call,
                    agent_id=tool.agent or tool.handoff or "",
                    statuses=statuses,
                    warning=warning,
                    child=child_task_id(task_id, call_key(call)) if tool.agent else task_id,
                    answers=tuple(self._state.answers.get(call.id, ())),
                    identity=self._scope.task.identity,
                    veto=self._scope.veto(call.name),
                    approvers=self._scope.approvers(call.name),
                ),
                **self._patience(display.tool_summary(call)),
            )

    def _patience(self, summary: str) -> ActivityConfig:
        """Plugins that look at tools look at this call as well, and take their time."""
        looks = "before_tool" in self._scope.agent.hooks
        return hooked_call(summary) if looks else short_call(summary)

    async def _work(self, tool: ToolSpec, agent: AgentSpec, call: ToolCall) -> ToolMessage:
        return await self._ask(agent, call) if tool.agent else self._hand_over(agent, call)

    async def _ask(self, agent: AgentSpec, call: ToolCall) -> ToolMessage:
        request = _request(call.arguments)
        if request is None:
            return _result(call, "invalid", f'invalid arguments for {call.name}: expected {{"request": "…"}}')
        if refusal := self._sub_agents.refusal(call):
            return _result(call, "error", refusal)
        return await self._sub_agents.ask(agent, call, request)

    def _hand_over(self, agent: AgentSpec, call: ToolCall) -> ToolMessage:
        """Let the agent have the task as soon as all calls of this reply have ended."""
        if self._state.successor:
            return _result(call, "error", f"the task goes to {self._state.successor.id!r} already")
        self._state.successor = agent
        return _result(call, "ok", f"The agent {agent.id!r} goes on from here.")


def _result(call: ToolCall, outcome: ToolOutcome, content: str) -> ToolMessage:
    return ToolMessage(call_id=call.id, name=call.name, content=content, outcome=outcome)


def _request(arguments: str) -> str | None:
    try:
        request: object = json.loads(arguments)["request"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return request if isinstance(request, str) else None
