"""Asking another agent of this deployment: its task is a child workflow."""

import asyncio
import json

from temporalio import workflow
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError

from workflows import display
from workflows.activity_options import short_call
from workflows.contract import names
from workflows.contract.calls import LoadAgentInput, StoreResultInput
from workflows.contract.events import StatusChanged
from workflows.contract.messages import TextPart, ToolCall, ToolMessage, ToolOutcome, Usage, UserMessage
from workflows.contract.ports import AgentPort, ToolPort
from workflows.contract.tasks import AgentSpec, TaskInput, TaskRef, TaskResult, TaskState
from workflows.endings import failure_text
from workflows.state import TaskRunState

MAX_DEPTH = 5
"""How deep agents may ask agents; two that ask each other would go on for ever."""


class SubAgentTurn:
    """Runs a tool call as the task of another agent. The call's argument `request` is its message."""

    def __init__(self, ref: TaskRef, task: TaskInput, state: TaskRunState) -> None:
        self._task = ref
        self._depth = task.depth
        self._identity = task.identity
        self._state = state

    async def ask(
        self, agent_id: str, call: ToolCall, position: int, status: StatusChanged | None, warning: str
    ) -> ToolMessage:
        """Return the sub-agent's answer as the call's result; what it used counts as ours.

        Raises:
            ChildWorkflowError: the task was cancelled, and the sub-agent with it.
        """
        agent = await workflow.execute_activity_method(
            AgentPort.load_agent,
            LoadAgentInput(task=self._task, call=call, agent_id=agent_id, status=status, warning=warning),
            **short_call(display.tool_summary(call)),
        )
        # What another agent is asked to do is a task: nobody waits for less.
        result = await self._answer(agent.model_copy(update={"routing": "task"}), call)
        await workflow.execute_activity_method(
            ToolPort.store_result,
            StoreResultInput(task=self._task, position=position, result=result),
            **short_call(f"result of {call.name}"),
        )
        return result

    async def _answer(self, agent: AgentSpec, call: ToolCall) -> ToolMessage:
        request = _request(call.arguments)
        if request is None:
            return _result(call, "invalid", f'invalid arguments for {call.name}: expected {{"request": "…"}}')
        if self._depth >= MAX_DEPTH:
            too_deep = f"agents may ask agents at most {MAX_DEPTH} deep; do this without {call.name}"
            return _result(call, "error", too_deep)
        try:
            result = await self._run(agent, call, request)
        except ChildWorkflowError as error:
            if _is_cancelled():
                raise
            self._state.usage += _usage_of(error)
            return _result(call, "error", f"{call.name} failed: {failure_text(error)}")
        self._state.usage += result.usage
        return _result(call, "ok", result.answer, result.artifacts)

    async def _run(self, agent: AgentSpec, call: ToolCall, request: str) -> TaskResult:
        task = TaskInput(
            context_id=self._task.context_id,
            owner=self._task.owner,
            agent=agent,
            message=UserMessage(message_id=call.id, parts=(TextPart(text=request),)),
            created_at=workflow.now(),
            depth=self._depth + 1,
            identity=self._identity,
        )
        return await workflow.execute_child_workflow(
            names.WORKFLOW_TYPE,
            task,
            id=names.child_task_id(self._task.task_id, call.id),
            result_type=TaskResult,
            # Ended with its parent, but by itself: it has calls to close and a last status to publish.
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            # When this task is reset, the child of the run before may still be on its way out.
            id_reuse_policy=WorkflowIDReusePolicy.TERMINATE_IF_RUNNING,
            search_attributes=_attributes(task),
            static_summary=display.shorten(f"{agent.id}: {request}", display.SUMMARY_LENGTH),
        )


def _result(
    call: ToolCall, outcome: ToolOutcome, content: str, artifacts: tuple[str, ...] = ()
) -> ToolMessage:
    return ToolMessage(call_id=call.id, name=call.name, content=content, outcome=outcome, artifacts=artifacts)


def _request(arguments: str) -> str | None:
    try:
        request: object = json.loads(arguments)["request"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return request if isinstance(request, str) else None


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
