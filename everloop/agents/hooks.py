"""Arguments and results of plugins' hooks."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator

from everloop.agents.errors import definition
from everloop.workflows.contract.messages import Usage
from everloop.workflows.contract.questions import OWNER, problem_of_approvers
from everloop.workflows.contract.tasks import Identity, TaskState

ANYBODY = Identity()

HOOKS = (
    "before_request",
    "before_model_call",
    "after_model_call",
    "before_tool",
    "after_tool",
    "after_completion",
    "on_error",
)
"""The names of all hooks, in the order of their calls in a task."""


@dataclass(frozen=True)
class HookContext:
    """State of a task in the call of a hook.

    `iteration` counts model calls from 1, 0 before the first one. `auth` is who started the task, if
    the call has it (tools, requests and completion do). `usage` is that of the task until now.
    """

    task_id: str
    context_id: str
    owner: str
    agent_id: str
    iteration: int = 0
    auth: Identity = ANYBODY
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Veto:
    """Stops the call or the task; the model (or, without one, the client) gets the reason."""

    reason: str


def _check_approvers(approvers: str) -> str:
    if problem := problem_of_approvers(approvers):
        raise ValueError(problem)
    return approvers


Approvers = Annotated[str, AfterValidator(_check_approvers)]
"""Who approves: the owner of the task or, in the owner's place, callers with this scope."""


@definition
class NeedsApproval:
    """A tool call has to be approved by people before it runs.

    Raises:
        AgentDefinitionError: the approvers are not a valid scope.
    """

    reason: str = ""
    """For the question."""
    approvers: Approvers = OWNER


@dataclass(frozen=True)
class TaskOutcome:
    """End of a task. `answer` is the text of its answer; `reason` the cause of a missing answer."""

    state: TaskState
    iterations: int
    usage: Usage
    answer: str = ""
    reason: str = ""
