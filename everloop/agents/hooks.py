"""What the hooks of plugins are given, and what they may decide."""

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
"""The names of all hooks, in the order in which a task comes to them."""


@dataclass(frozen=True)
class HookContext:
    """Where a task stands when a plugin is asked.

    `iteration` counts model calls from 1, 0 before the first one. `auth` is who started the task, where the
    call knows it (tools, requests and completion do). `usage` is what the task has used so far.
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
    """This may not go on; the model (or, where there is none to tell, the client) reads the reason."""

    reason: str


def _check_approvers(approvers: str) -> str:
    if problem := problem_of_approvers(approvers):
        raise ValueError(problem)
    return approvers


Approvers = Annotated[str, AfterValidator(_check_approvers)]
"""Who approves: the owner of the task or, in the owner's place, callers with this scope."""


@definition
class NeedsApproval:
    """A tool call may go on once people have approved it.

    Raises:
        AgentDefinitionError: nobody can have the scope of the approvers.
    """

    reason: str = ""
    """For the question."""
    approvers: Approvers = OWNER


@dataclass(frozen=True)
class TaskOutcome:
    """How a task ended. `answer` is the text of its answer; `reason` says why there is none."""

    state: TaskState
    iterations: int
    usage: Usage
    answer: str = ""
    reason: str = ""
