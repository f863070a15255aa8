"""Limits at which a task ends by itself."""

from datetime import UTC, datetime, timedelta

import pytest

from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import TextPart, Usage, UserMessage
from everloop.workflows.contract.tasks import AgentSpec
from everloop.workflows.state import TaskRunState
from everloop.workflows.task_limits import TaskStoppedError, allows_last_call, check_limits, tells_of_failures

START = datetime(2026, 1, 1, tzinfo=UTC)
LIMITED = AgentSpec(
    id="agent", max_iterations=30, max_tokens=1000, max_cost=2.5, wall_clock=60, max_tool_failures=3
)


def state(iteration: int = 0, tool_failures: int = 0, usage: Usage | None = None) -> TaskRunState:
    message = UserMessage(message_id="m1", parts=(TextPart(text="Hi"),))
    begun = TaskRunState.begin(message, START - timedelta(hours=1), START)
    return begun.model_copy(
        update={"iteration": iteration, "tool_failures": tool_failures, "usage": usage or Usage()}
    )


CASES: list[tuple[TaskRunState, float, str | None]] = [
    (state(29), 0, None),
    (state(30), 0, failures.ITERATION_LIMIT),
    (state(31), 0, failures.ITERATION_LIMIT),
    (state(usage=Usage(input_tokens=900, output_tokens=99)), 0, None),
    (state(usage=Usage(input_tokens=900, output_tokens=100)), 0, failures.TOKEN_LIMIT),
    (state(usage=Usage(cost=2.49)), 0, None),
    (state(usage=Usage(cost=2.5)), 0, failures.COST_LIMIT),
    (state(tool_failures=2), 0, None),
    (state(tool_failures=3), 0, failures.TOOL_FAILURE_LIMIT),
    (state(), 59, None),
    (state(), 60, failures.TIME_LIMIT),
]


@pytest.mark.parametrize(("reached", "seconds", "failure"), CASES)
def test_a_limit_is_reached_at_its_value(reached: TaskRunState, seconds: float, failure: str | None) -> None:
    """Each has a name of its own, and a remedy; time counts from the worker's start of the task."""
    now = START + timedelta(seconds=seconds)
    if failure is None:
        check_limits(LIMITED, reached, now)
        return
    with pytest.raises(TaskStoppedError, match=r"limit of agent 'agent'.*Limits\(") as error:
        check_limits(LIMITED, reached, now)
    assert error.value.type == failure


def test_an_agent_without_limits_goes_on() -> None:
    """Only the number of iterations always has a limit."""
    much = state(29, 1000, Usage(input_tokens=10**9, cost=10**6))
    check_limits(AgentSpec(id="agent"), much, START + timedelta(days=1000))


ANSWERS = LIMITED.model_copy(update={"last_call": True})


@pytest.mark.parametrize(
    ("agent", "changes", "limit", "may"),
    [
        (ANSWERS, {"iteration": 1}, "its limit of", True),
        (LIMITED, {"iteration": 1}, "its limit of", False),
        (ANSWERS, {"iteration": 1}, "", False),
        (ANSWERS, {}, "its limit of", False),
        (ANSWERS, {"iteration": 1, "last_call": "a limit"}, "its limit of", False),
        (ANSWERS.model_copy(update={"artifact_tool": "w"}), {"iteration": 1}, "its limit of", False),
        (
            ANSWERS.model_copy(update={"artifact_tool": "w"}),
            {"iteration": 1, "artifact_ids": ["a"]},
            "its limit of",
            True,
        ),
    ],
    ids=["yes", "not wanted", "another end", "nothing done", "once", "owes an artifact", "has written it"],
)
def test_a_last_call_may_be_enough(
    agent: AgentSpec, changes: dict[str, object], limit: str, *, may: bool
) -> None:
    """If the agent enables it: once, at a usage limit, when only an answer is missing."""
    stopped = TaskStoppedError(failures.COST_LIMIT, "stopped", limit)
    assert allows_last_call(stopped, agent, state().model_copy(update=changes)) == may


def test_an_agent_that_is_told_of_its_failures_has_one_iteration_more() -> None:
    """The model reads of them where the task would have ended."""
    now = START + timedelta(seconds=1)
    told = [n for n in range(6) if tells_of_failures(ANSWERS, state(tool_failures=n))]
    check_limits(ANSWERS, state(tool_failures=3), now)
    with pytest.raises(TaskStoppedError, match="in the last 4 iterations"):
        check_limits(ANSWERS, state(tool_failures=4), now)
    assert told == [3]
    assert not tells_of_failures(LIMITED, state(tool_failures=3))
