"""Limits at which a task stops."""

import asyncio
from datetime import datetime
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError

from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import Usage, UserMessage
from everloop.workflows.contract.tasks import AgentSpec
from everloop.workflows.state import TaskRunState

MAX_UNREAD_BYTES = 4_000_000
"""Size of the messages for the next model call: a task works on all of them in one step, for which the SDK
allows 2 s. Some 0.1 s for texts, 0.6 s for data."""

MAX_CARRIED_BYTES = 32_000_000
"""A new run reads its input within a workflow task: 200 MB took 0.9 s, the SDK allows 2 s."""

Amount = TypeVar("Amount", int, float)


class TaskStoppedError(Exception):
    """The task ends without being done. `type` is a name of `everloop.workflows.contract.failures`.

    `limit` is the reached limit as text, if a last call may still produce an answer.
    """

    def __init__(self, failure_type: str, message: str, limit: str = "") -> None:
        super().__init__(message)
        self.type = failure_type
        self.limit = limit


def check_limits(agent: AgentSpec, state: TaskRunState, now: datetime) -> None:
    """Raise if the task may not begin another iteration.

    Raises:
        TaskStoppedError: with the name of the limit and its value.
    """
    check_size(state)
    cost, tokens = state.usage.cost_or_zero, state.usage.input_tokens + state.usage.output_tokens
    if state.iteration >= agent.max_iterations:
        used, limit = f"{state.iteration} iterations", f"{agent.max_iterations} iterations"
        raise _used_up(agent, failures.ITERATION_LIMIT, "iterations", used, limit)
    if agent.max_tokens is not None and tokens >= agent.max_tokens:
        used, limit = f"{tokens} tokens", f"{agent.max_tokens} tokens"
        raise _used_up(agent, failures.TOKEN_LIMIT, "tokens", used, limit)
    if agent.max_cost is not None and cost >= agent.max_cost:
        raise _used_up(agent, failures.COST_LIMIT, "cost", f"${cost:.4f}", f"${agent.max_cost:g}")
    # One more than allowed, if the model was warned (`tells_of_failures`).
    most = agent.max_tool_failures
    if most is not None and state.tool_failures >= most + agent.last_call:
        raise TaskStoppedError(
            failures.TOOL_FAILURE_LIMIT,
            f"stopped: in the last {state.tool_failures} iterations no tool call worked (limit of agent "
            f"{agent.id!r}: {agent.max_tool_failures}); see the results of the tools, or raise "
            "Limits(tool_failures=...)",
        )
    if agent.wall_clock is not None and seconds_left(agent.wall_clock, state, now) <= 0:
        raise time_is_up(agent)


def allows_last_call(stopped: TaskStoppedError, agent: AgentSpec, state: TaskRunState) -> bool:
    """Return True if the model may give a last answer, once, where the task would end.

    Not before the first iteration, and not where an answer is not enough: an artifact is missing.
    """
    is_enough = agent.artifact_tool is None or bool(state.artifact_ids)
    return bool(agent.last_call and stopped.limit and state.iteration and is_enough and not state.last_call)


def tells_of_failures(agent: AgentSpec, state: TaskRunState) -> bool:
    """Return True if the task would end unless the model is told that none of its tool calls works."""
    return agent.last_call and state.tool_failures == agent.max_tool_failures


def has_room(state: TaskRunState, message: UserMessage) -> bool:
    """Return True if the task may take a message beside those that wait for the next model call."""
    return sum(each.size for each in (*state.inbox, message)) <= MAX_UNREAD_BYTES


def check_size(state: TaskRunState) -> None:
    """Raise if the state of the task is too large for a new run.

    Raises:
        TaskStoppedError: with the size and the limit.
    """
    if (size := state.carried_size) > MAX_CARRIED_BYTES:
        raise TaskStoppedError(
            failures.TRANSCRIPT_LIMIT,
            f"stopped: messages and tool results of the task have {size / 1e6:.1f} MB, more than the "
            f"{MAX_CARRIED_BYTES / 1e6:.0f} MB that a task may have (compaction makes prompts shorter, "
            "but the task keeps all); let tools put what is large into artifacts, or split the work "
            "over several tasks",
        )


def within_budget(agent: AgentSpec, asking: AgentSpec, state: TaskRunState) -> AgentSpec:
    """Return an agent whose limits are at most the remaining tokens and money of the calling task."""
    used = state.usage
    tokens = _least(agent.max_tokens, asking.max_tokens, used.input_tokens + used.output_tokens)
    return agent.model_copy(
        update={"max_tokens": tokens, "max_cost": _least(agent.max_cost, asking.max_cost, used.cost_or_zero)}
    )


def invalid_output(agent: AgentSpec, problem: str) -> TaskStoppedError:
    """Return the error of a task whose answer does not match its output model."""
    return TaskStoppedError(
        failures.OUTPUT_INVALID,
        f"the answer of the agent {agent.id!r} does not fit its output model, not even after it was told so: "
        f"{problem}",
    )


def no_artifact(agent: AgentSpec) -> TaskStoppedError:
    """Return the error of a task without its required artifact."""
    return TaskStoppedError(
        failures.NO_ARTIFACT,
        f"the agent {agent.id!r} has to leave an artifact, and its model wrote none when it was made to call "
        f"{agent.artifact_tool!r}; see the result of that call",
    )


def seconds_left(wall_clock: float, state: TaskRunState, now: datetime) -> float:
    """Return the seconds until the wall clock ends; it counts from the first run of the task."""
    return wall_clock - (now - state.started_at).total_seconds()


def time_is_up(agent: AgentSpec) -> TaskStoppedError:
    """Return the error of a task that reached its wall clock."""
    return TaskStoppedError(
        failures.TIME_LIMIT,
        f"stopped after {agent.wall_clock:g} s without an answer (limit of agent {agent.id!r}); raise "
        "Limits(wall_clock=...) or ask for less at once",
    )


def _used_up(agent: AgentSpec, failure: str, setting: str, used: str, limit: str) -> TaskStoppedError:
    return TaskStoppedError(
        failure,
        f"stopped after {used} without an answer (limit of agent {agent.id!r}: {limit}); raise "
        f"Limits({setting}=...) or ask for less at once",
        f"the task has reached its limit of {limit}",
    )


def _least(own: Amount | None, of_asking: Amount | None, used: Amount) -> Amount | None:
    """Return the lower of an agent's own limit and the rest of the caller's; None without limits."""
    left = None if of_asking is None else max(of_asking - used, 0)
    return min((limit for limit in (own, left) if limit is not None), default=None)


# Failures of calls, as failures of the task.


def failure_type(error: ActivityError) -> str | None:
    """Return the name of the failure (`everloop.workflows.contract.failures`) of an activity."""
    return error.cause.type if isinstance(error.cause, ApplicationError) else None


def failure_text(error: ActivityError | ChildWorkflowError) -> str:
    """Return the message of the original failure."""
    cause = error.cause or error
    return cause.message if isinstance(cause, ApplicationError) else f"{type(cause).__name__}: {cause}"


def final_failure(error: BaseException, usage: Usage) -> ApplicationError:
    """Return the named failure that ends the workflow, with the message for the client.

    It includes the usage of the task, which the parent of a sub-agent counts.
    """
    if isinstance(error, TaskStoppedError):
        return ApplicationError(str(error), usage, type=error.type, non_retryable=True)
    if isinstance(error, ActivityError):
        return ApplicationError(failure_text(error), usage, type=failure_type(error), non_retryable=True)
    return ApplicationError(f"{type(error).__name__}: {error}", usage, non_retryable=True)


def stop_if_cancelled() -> None:
    """Raise a cancellation that was hidden by the end of a call. Use it after every call.

    Raises:
        CancelledError: the task was cancelled, or its wall clock has ended.
    """
    this = asyncio.current_task()
    if workflow.cancellation_reason() is not None or (this and this.cancelling()):
        raise asyncio.CancelledError
