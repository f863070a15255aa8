"""Where a task stops by itself."""

from datetime import UTC, datetime, timedelta

import pytest

from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import TextPart, Usage, UserMessage
from everloop.workflows.contract.tasks import AgentSpec
from everloop.workflows.limits import TaskStoppedError, check_limits
from everloop.workflows.state import TaskRunState

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
    """Each has a name of its own, and says what to change; time counts from when a worker took the task."""
    now = START + timedelta(seconds=seconds)
    if failure is None:
        check_limits(LIMITED, reached, now)
        return
    with pytest.raises(TaskStoppedError, match=r"limit of agent 'agent'.*Limits\(") as error:
        check_limits(LIMITED, reached, now)
    assert error.value.type == failure


def test_an_agent_without_limits_goes_on() -> None:
    """Only the number of iterations is limited always."""
    much = state(29, 1000, Usage(input_tokens=10**9, cost=10**6))
    check_limits(AgentSpec(id="agent"), much, START + timedelta(days=1000))
