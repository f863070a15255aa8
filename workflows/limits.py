"""Where a task stops by itself."""

from workflows.contract import failures
from workflows.contract.tasks import AgentSpec


class LimitReachedError(Exception):
    """A limit of the agent ends the task. `type` is its name in `workflows.contract.failures`."""

    def __init__(self, failure_type: str, message: str) -> None:
        super().__init__(message)
        self.type = failure_type


def check_limits(agent: AgentSpec, *, iteration: int) -> None:
    """Raise if the task may not begin another iteration; `iteration` is how many it had.

    Raises:
        LimitReachedError: with the name of the limit and its value.
    """
    if iteration >= agent.max_iterations:
        raise LimitReachedError(
            failures.ITERATION_LIMIT,
            f"stopped after {iteration} iterations without an answer (limit of agent {agent.id!r}: "
            f"{agent.max_iterations}); raise Limits(iterations=...) or ask for less at once",
        )
