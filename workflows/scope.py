"""A task, and the agent that works on it now."""

import asyncio

from temporalio import workflow

from everloop.workflows.contract import names
from everloop.workflows.contract.guards import approvers_of, refusal
from everloop.workflows.contract.questions import OWNER
from everloop.workflows.contract.tasks import AgentSpec, TaskRef, ToolSpec
from everloop.workflows.limits import seconds_left
from everloop.workflows.outbox import Outbox
from everloop.workflows.state import CarriedTask, TaskRunState


class TaskScope:
    """What every turn of the loop has to know. `ref` and `agent` change when the task is handed over.

    `wall_clock` stops the loop; it has no end before `set_wall_clock`.
    """

    def __init__(self, ref: TaskRef, task: CarriedTask, state: TaskRunState) -> None:
        self._ref = ref
        self.task = task
        self.state = state
        self.outbox = Outbox(state)
        self.wall_clock = asyncio.timeout(None)

    @property
    def agent(self) -> AgentSpec:
        """The agent that works on the task now; clients know the task by the one that it began with."""
        return self.state.agent or self.task.agent

    @property
    def ref(self) -> TaskRef:
        """The task, for an activity that works for its agent."""
        return self._ref.model_copy(update={"agent_id": self.agent.id, "agent_version": self.agent.version})

    @property
    def has_hidden_task(self) -> bool:
        """Whether clients do not see the task: its message may be answered at once."""
        return self.task.agent.routing == "auto" and not self.state.is_routed

    @property
    def narrator_queue(self) -> str:
        """Where its narrator waits."""
        return names.task_queue_of(names.NARRATOR_QUEUE, workflow.info().task_queue)

    def queue(self, kind: str) -> str | None:
        """Return where calls of a kind wait: with others of it, or None, on the workflow's own queue.

        On that one Temporal may hand a call to the worker that has just asked for it, which saves a step.
        """
        own = names.task_queue_of(kind, workflow.info().task_queue) if self.task.splits_queues else None
        return self.agent.task_queue or own

    def set_wall_clock(self) -> None:
        """Let the time of the agent that works now run out when it should, counted from the task's start."""
        allowed, loop = self.agent.wall_clock, asyncio.get_running_loop()
        left = None if allowed is None else seconds_left(allowed, self.state, workflow.now())
        self.wall_clock.reschedule(None if left is None else loop.time() + left)

    def tool(self, name: str) -> ToolSpec:
        """Return what is pinned of a tool: of the agent's own, or of one that a plugin has listed."""
        return self.agent.tools.get(name) or self.state.listed_tools.get(name) or ToolSpec()

    def veto(self, tool: str) -> str:
        """Return why the agents above let nobody below them call a tool; empty if they do."""
        return refusal(self.task.guards, tool)

    def approvers(self, tool: str) -> str:
        """Return who approves a call: for the agents above, or as it was when the tool was listed.

        Empty if they ask nobody; the agent's own plugins, and the tool as it is now, still may.
        """
        pinned = OWNER if self.tool(tool).needs_approval else ""
        return approvers_of(self.task.guards, tool) or pinned
