"""Calls of other agents of this deployment: the task of a sub-agent is a child workflow."""

import asyncio
import json

from temporalio import workflow
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError

from everloop.workflows import reporting
from everloop.workflows.contract import names
from everloop.workflows.contract.calls import LoadAgentInput, LoadedAgent, ToolReply
from everloop.workflows.contract.messages import TextPart, ToolCall, ToolMessage, Usage, UserMessage
from everloop.workflows.contract.names import call_key, child_task_id
from everloop.workflows.contract.parts import shorten
from everloop.workflows.contract.ports import AgentPort
from everloop.workflows.contract.tasks import AgentSpec, TaskInput, TaskResult, TaskState, ToolSpec
from everloop.workflows.reporting import tool_call_span
from everloop.workflows.scope import TaskScope, hooked_call, short_call
from everloop.workflows.task_limits import failure_text, stop_if_cancelled, within_budget

MAX_DEPTH = 5
"""Maximum depth of sub-agents: two agents that call each other would go on for ever."""


class AgentCalls:
    """Tool calls to other agents of this deployment: for a part of the work, or for the whole task.

    The workflow stores the results of these calls.
    """

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope
        self._state = scope.state
        self._depth = scope.task.depth

    async def take(self, tool: ToolSpec, call: ToolCall, position: int, warning: str) -> ToolReply:
        """Return the result of the call, or its question; the sub-agent's usage is added to ours.

        Raises:
            ChildWorkflowError: the task was cancelled, and the sub-agent with it.
        """
        with tool_call_span(self._scope.ref, call):
            return await self._take(tool, call, position, warning)

    async def _take(self, tool: ToolSpec, call: ToolCall, position: int, warning: str) -> ToolReply:
        agent = await self._load(tool, call, warning)
        stop_if_cancelled()
        if agent.question:
            return agent.question
        if agent.refused:
            result = agent.refused
        else:
            result = await self._ask(agent, call) if tool.agent else self._hand_over(agent, call)
        return await self._scope.store_result(
            position,
            result,
            f"result of {call.name}",
            key=call_key(call),
            has_fallback=tool.fallback is not None,
        )

    async def _load(self, tool: ToolSpec, call: ToolCall, warning: str) -> LoadedAgent:
        task_id = self._scope.ref.task_id
        # Plugins with tool hooks run for this call as well, and may be slow.
        options = hooked_call if "before_tool" in self._scope.agent.hooks else short_call
        with self._scope.outbox.carried() as statuses:
            load = LoadAgentInput(
                **dict(self._scope.call_input(call, statuses, warning)),
                agent_id=tool.agent or tool.handoff or "",
                child=child_task_id(task_id, call_key(call)) if tool.agent else task_id,
            )
            return await workflow.execute_activity_method(
                AgentPort.load_agent, load, **options(reporting.tool_summary(call))
            )

    async def _ask(self, agent: AgentSpec, call: ToolCall) -> ToolMessage:
        request = _request(call.arguments)
        if request is None:
            return call.result(f'invalid arguments for {call.name}: expected {{"request": "…"}}', "invalid")
        if refusal := self._refusal(call):
            return call.result(refusal, "error")
        return await self._run(agent, call, request)

    def _hand_over(self, agent: AgentSpec, call: ToolCall) -> ToolMessage:
        """Hand over the task to the agent as soon as all calls of this reply have ended."""
        if self._state.successor:
            return call.result(f"the task goes to {self._state.successor.id!r} already", "error")
        self._state.successor = agent
        return call.result(f"The agent {agent.id!r} goes on from here.")

    def _refusal(self, call: ToolCall) -> str:
        """Return why no sub-agent may be started any more; empty if one may."""
        limit = self._scope.agent.max_sub_agents
        if self._depth >= MAX_DEPTH:
            return f"agents may ask agents at most {MAX_DEPTH} deep; do this without {call.name}"
        if limit is not None and self._state.sub_agents >= limit:
            return f"this task has asked other agents {limit} times, as often as it may; go on without them"
        return ""

    async def _run(self, agent: AgentSpec, call: ToolCall, request: str) -> ToolMessage:
        """Return the sub-agent's answer as the call's result; its usage is added to ours."""
        state = self._state
        state.sub_agents += 1
        state.asked_agents[call.id] = child_task_id(self._scope.ref.task_id, call_key(call))
        try:
            result = await self._child(agent, call, request)
        except ChildWorkflowError as error:
            if _is_cancelled():
                raise
            self._close(call)
            state.usage += _usage_of(error)
            return call.result(f"{call.name} failed: {failure_text(error)}", "error")
        self._close(call)
        state.usage += result.usage
        if result.state is TaskState.REJECTED:
            return call.result(f"{call.name} rejected the task: {result.closing}", "error")
        content = "\n\n".join(filter(None, (result.answer, result.closing and f"[{result.closing}]")))
        return call.result(content, artifacts=result.artifacts)

    def _close(self, call: ToolCall) -> None:
        """Close the questions of a sub-agent that has ended."""
        del self._state.asked_agents[call.id]
        self._state.relayed.pop(call.id, None)
        self._state.relay_questions(call.id, ())

    async def _child(self, agent: AgentSpec, call: ToolCall, request: str) -> TaskResult:
        scope = self._scope
        # A request to another agent always becomes a task, without routing.
        limited_agent = within_budget(agent.model_copy(update={"routing": "task"}), scope.agent, self._state)
        task = TaskInput(
            context_id=scope.ref.context_id,
            owner=scope.ref.owner,
            agent=limited_agent,
            message=UserMessage(message_id=call_key(call), parts=(TextPart(text=request),)),
            created_at=workflow.now(),
            depth=self._depth + 1,
            guards=tuple(dict.fromkeys((*scope.task.guards, *scope.agent.guards))),
            identity=scope.task.identity,
            splits_queues=scope.task.splits_queues,
        )
        return await workflow.execute_child_workflow(
            names.WORKFLOW_TYPE,
            task,
            id=self._state.asked_agents[call.id],
            result_type=TaskResult,
            # Cancelled with its parent, not terminated: it has calls to close and a last status to publish.
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            # After a Reset of this task, the child of the run before may still be ending.
            id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
            search_attributes=_attributes(task),
            static_summary=shorten(f"{agent.id}: {request}", reporting.SUMMARY_LENGTH),
        )


def _is_cancelled() -> bool:
    """Return True if this call has to end; an operator may have cancelled its sub-agent alone."""
    call = asyncio.current_task()
    return call is not None and call.cancelling() > 0


def _usage_of(error: ChildWorkflowError) -> Usage:
    """Return the usage of a failed sub-agent (`limits.final_failure` adds it)."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    return Usage.model_validate(details[0]) if details else Usage()


def _attributes(task: TaskInput) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(names.AGENT_ID, task.agent.id),
            SearchAttributePair(names.CONTEXT_ID, task.context_id),
            SearchAttributePair(names.OWNER, task.owner),
            SearchAttributePair(names.TASK_STATE, TaskState.SUBMITTED),
        ]
    )


def _request(arguments: str) -> str | None:
    try:
        request: object = json.loads(arguments)["request"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return request if isinstance(request, str) else None
