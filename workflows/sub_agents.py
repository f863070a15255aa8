"""Asking another agent of this deployment: its task is a child workflow."""

import asyncio

from temporalio import workflow
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError

from everloop.workflows import display
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import TextPart, ToolCall, ToolMessage, Usage, UserMessage
from everloop.workflows.contract.tasks import AgentSpec, TaskInput, TaskResult, TaskState
from everloop.workflows.endings import failure_text
from everloop.workflows.limits import within_budget
from everloop.workflows.scope import TaskScope

MAX_DEPTH = 5
"""How deep agents may ask agents; two that ask each other would go on for ever."""


class SubAgents:
    """Runs a tool call as the task of another agent."""

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope
        self._state = scope.state
        self._depth = scope.task.depth

    def refusal(self, call: ToolCall) -> str:
        """Return why no sub-agent may be asked any more; empty if one may."""
        limit = self._scope.agent.max_sub_agents
        if self._depth >= MAX_DEPTH:
            return f"agents may ask agents at most {MAX_DEPTH} deep; do this without {call.name}"
        if limit is not None and self._state.sub_agents >= limit:
            return f"this task has asked other agents {limit} times, as often as it may; go on without them"
        return ""

    async def ask(self, agent: AgentSpec, call: ToolCall, request: str) -> ToolMessage:
        """Return the sub-agent's answer as the call's result; what it used counts as ours.

        Raises:
            ChildWorkflowError: the task was cancelled, and the sub-agent with it.
        """
        state = self._state
        state.sub_agents += 1
        state.asked_agents[call.id] = names.child_task_id(self._scope.ref.task_id, names.call_key(call))
        try:
            result = await self._run(agent, call, request)
        except ChildWorkflowError as error:
            if _is_cancelled():
                raise
            self._close(call)
            state.usage += _usage_of(error)
            failed = f"{call.name} failed: {failure_text(error)}"
            return ToolMessage(call_id=call.id, name=call.name, content=failed, outcome="error")
        self._close(call)
        state.usage += result.usage
        return ToolMessage(call_id=call.id, name=call.name, content=result.answer, artifacts=result.artifacts)

    def _close(self, call: ToolCall) -> None:
        """Ask nothing any more for a sub-agent that has ended."""
        del self._state.asked_agents[call.id]
        self._state.relayed.pop(call.id, None)
        self._state.relay_questions(call.id, ())

    async def _run(self, agent: AgentSpec, call: ToolCall, request: str) -> TaskResult:
        scope = self._scope
        # What another agent is asked to do is a task: nobody waits for less.
        asked = within_budget(agent.model_copy(update={"routing": "task"}), scope.agent, self._state)
        task = TaskInput(
            context_id=scope.ref.context_id,
            owner=scope.ref.owner,
            agent=asked,
            message=UserMessage(message_id=names.call_key(call), parts=(TextPart(text=request),)),
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
            # Ended with its parent, but by itself: it has calls to close and a last status to publish.
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            # When this task is reset, the child of the run before may still be on its way out.
            id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
            search_attributes=_attributes(task),
            static_summary=display.shorten(f"{agent.id}: {request}", display.SUMMARY_LENGTH),
        )


def _is_cancelled() -> bool:
    """Whether this call itself is to end; an operator may have cancelled its sub-agent alone."""
    call = asyncio.current_task()
    return call is not None and call.cancelling() > 0


def _usage_of(error: ChildWorkflowError) -> Usage:
    """Return what a sub-agent used that failed (`workflows.endings.final_failure` sends it along)."""
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
