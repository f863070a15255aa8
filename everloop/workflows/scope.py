"""A running task: its input, agent and state; timeouts and retries of each kind of activity."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import cast

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig, LocalActivityConfig

from everloop.workflows.contract import names
from everloop.workflows.contract.calls import QUICK_TIME, StoreResultInput, ToolCallInput
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.messages import ToolCall, ToolMessage
from everloop.workflows.contract.ports import ToolPort
from everloop.workflows.contract.questions import OWNER
from everloop.workflows.contract.tasks import AgentSpec, TaskRef, ToolSpec, approvers_of, refusal
from everloop.workflows.state import CarriedTask, TaskRunState
from everloop.workflows.task_limits import seconds_left

# Unconfirmed statuses: calls carry them to the view, in order and without loss.


class Outbox:
    """Passes `TaskRunState.outbox` to calls, in order of version, until one that carried it has ended.

    A view with a status accepts no older one, so a call with a newer status carries all earlier
    unconfirmed ones. A call that failed, or was cancelled before it began, confirms nothing: the next
    one carries the same again, and the view applies each version once.
    """

    def __init__(self, state: TaskRunState) -> None:
        self._state = state
        self._riding: list[int] = []

    @contextmanager
    def carried(self) -> Generator[tuple[StatusChanged, ...]]:
        """Return the statuses that a call has to publish before it begins; the call is made inside.

        Empty while another call carries all of them: it may not have begun, but no newer status is
        published meanwhile, and each status enters the history once.
        """
        statuses = tuple(self._state.outbox)
        newest = statuses[-1].version if statuses else 0
        if newest <= max(self._riding, default=0):
            yield ()
            return
        self._riding.append(newest)
        try:
            yield statuses
            self._state.outbox = [status for status in self._state.outbox if status.version > newest]
        finally:
            self._riding.remove(newest)


def parked() -> AbstractContextManager[object]:
    """Mark the workflow as idle until people act, so that the worker may evict it from its cache."""
    functions = cast(
        "Mapping[str, Callable[[str], AbstractContextManager[object]]]", workflow.extern_functions()
    )
    return functions.get(names.PARKED, nullcontext)(workflow.info().run_id)


class TaskScope:
    """Context of every turn of the loop. `ref` and `agent` change at a handoff.

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
        """The agent that works on the task now; clients address the task by its first agent."""
        return self.state.agent or self.task.agent

    @property
    def ref(self) -> TaskRef:
        """The task, for an activity of its agent."""
        agent = self.agent
        if (self._ref.agent_id, self._ref.agent_version) != (agent.id, agent.version):
            self._ref = self._ref.model_copy(update={"agent_id": agent.id, "agent_version": agent.version})
        return self._ref

    @property
    def has_hidden_task(self) -> bool:
        """Whether clients do not see the task: its message may be answered at once."""
        return self.task.agent.routing == "auto" and not self.state.is_routed

    def queue(self, kind: str) -> str | None:
        """Return the queue for a kind of call, or None for the workflow's own queue.

        On that one Temporal may give a call to the worker that has just scheduled it, which saves a
        step.
        """
        own = names.task_queue_of(kind, workflow.info().task_queue) if self.task.splits_queues else None
        return self.agent.task_queue or own

    def set_wall_clock(self) -> None:
        """Set the wall clock to the time limit of the current agent, counted from the task's start."""
        allowed, loop = self.agent.wall_clock, asyncio.get_running_loop()
        left = None if allowed is None else seconds_left(allowed, self.state, workflow.now())
        self.wall_clock.reschedule(None if left is None else loop.time() + left)

    def tool(self, name: str) -> ToolSpec:
        """Return the pinned definition of a tool: the agent's own, or one that a plugin has listed."""
        return self.agent.tools.get(name) or self.state.listed_tools.get(name) or ToolSpec()

    def veto(self, tool: str) -> str:
        """Return the veto of the parent agents for a tool; empty without one."""
        return refusal(self.task.guards, tool)

    def approvers(self, tool: str) -> str:
        """Return who approves a call: by the parent agents' rules, or by the tool's when it was listed.

        Empty without such rules; the agent's own plugins, and the current definition of the tool, may
        add some.
        """
        pinned = OWNER if self.tool(tool).needs_approval else ""
        return approvers_of(self.task.guards, tool) or pinned

    def call_input(self, call: ToolCall, statuses: tuple[StatusChanged, ...], warning: str) -> ToolCallInput:
        """Return the fields that every recipient of a tool call needs; `warning` is published with it."""
        return ToolCallInput(
            task=self.ref,
            call=call,
            statuses=statuses,
            answers=tuple(self.state.answers.get(call.id, ())),
            warning=warning,
            identity=self.task.identity,
            veto=self.veto(call.name),
            approvers=self.approvers(call.name),
        )

    async def store_result(
        self, position: int, result: ToolMessage, summary: str, *, key: str = "", has_fallback: bool = False
    ) -> ToolMessage:
        """Store and publish the result of a call without a tool activity; return the result for the model.

        `key` is that of a call whose result may be long.
        """
        call = StoreResultInput(
            task=self.ref, position=position, result=result, key=key, has_fallback=has_fallback
        )
        stored = await workflow.execute_activity_method(ToolPort.store_result, call, **short_call(summary))
        return stored or result


# Timeouts and retries of each kind of side effect.
#
# `queue` None is the one on which the workflow itself waits.

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""Time until the loss of a worker with an activity is detected."""

GIVE_UP = HEARTBEAT_TIMEOUT + timedelta(seconds=2)
"""Timeout of a cancelled tool: until Temporal would detect the loss of its worker. After a Pause or Reset
of the activity the attempt is not notified of a cancellation: it would use all of the tool's time."""

_UNTIL_IT_WORKS = RetryPolicy(maximum_interval=timedelta(seconds=60))
"""Unlimited attempts: lost workers and an unreachable Redis are waited out. An activity with a permanent
error ends with a failure that is not retryable. The first retry comes after 1 s, each later one after
twice the time, which are Temporal's defaults."""

_TOOL_MARGIN = timedelta(minutes=3)
"""The tool activity enforces the tool's timeout; this is the margin for it and for hooks."""

_QUICK_MARGIN = timedelta(seconds=2)
"""The same for a quick tool, which ends after `QUICK_TIME`."""


def model_call(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of a model call, with its line in the Temporal UI."""
    return _heartbeating(timedelta(minutes=30), summary, queue)


def tool_call(queue: str | None, tool: ToolSpec, summary: str) -> ActivityConfig:
    """Return the options for a tool: its timeout, and its own task queue if it has one."""
    return _heartbeating(timedelta(seconds=tool.timeout) + _TOOL_MARGIN, summary, tool.task_queue or queue)


def quick_call(summary: str) -> LocalActivityConfig:
    """Return the options for a quick tool, with one attempt here; after that it is run like any other.

    While it runs, Temporal's server does not see it, and waits for the end of the workflow task.
    """
    return LocalActivityConfig(
        start_to_close_timeout=timedelta(seconds=QUICK_TIME) + _QUICK_MARGIN,
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )


def plugin_call(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of a call to plugins, which may call servers.

    It waits for a worker that has the agent. The activity limits the calls of a plugin.
    """
    return _heartbeating(timedelta(minutes=2), summary, queue)


def post_completion(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of a follow-up after the end of a task. It is dropped if it fails."""
    options = _heartbeating(timedelta(minutes=10), summary, queue)
    options["retry_policy"] = RetryPolicy(maximum_interval=timedelta(seconds=10), maximum_attempts=5)
    options["schedule_to_close_timeout"] = timedelta(hours=1)
    return options


def narration(queue: str) -> ActivityConfig:
    """Return the options of the narrator, which ends with its task."""
    options = _heartbeating(timedelta(hours=24), "narrator", queue)
    options["cancellation_type"] = ActivityCancellationType.ABANDON
    return options


def short_call(summary: str) -> ActivityConfig:
    """Return the options of a short call with a small payload: a chunk of a transcript, a result."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(seconds=30), retry_policy=_UNTIL_IT_WORKS, summary=summary
    )


def hooked_call(summary: str) -> ActivityConfig:
    """Return the options of a short call with hooks of plugins before it."""
    return _heartbeating(_TOOL_MARGIN, summary, None)


def _heartbeating(start_to_close: timedelta, summary: str, queue: str | None) -> ActivityConfig:
    """Return the options of a long call: a lost worker is detected, and cancellation waits for its end."""
    return ActivityConfig(
        task_queue=queue,
        start_to_close_timeout=start_to_close,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_UNTIL_IT_WORKS,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )


def publish(summary: str) -> ActivityConfig:
    """Return the options of a status without another call: it waits for Redis without limit."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)
        ),
        summary=summary,
    )
