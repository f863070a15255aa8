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
from everloop.workflows.limits import seconds_left
from everloop.workflows.state import CarriedTask, TaskRunState

# Statuses on their way to the view: they ride on calls, and none is lost or overtaken.


class Outbox:
    """Hands `TaskRunState.outbox` to calls, in order of version, until one that carried it has ended.

    A view that has a status takes no older one, so what carries a newer status carries all before it that
    nobody knows to be published. A call that failed, or was cancelled before it began, proves nothing: the
    next one carries the same again, and the view takes each version once.
    """

    def __init__(self, state: TaskRunState) -> None:
        self._state = state
        self._riding: list[int] = []

    @contextmanager
    def carried(self) -> Generator[tuple[StatusChanged, ...]]:
        """Return what a call has to publish before it begins; the call is made inside.

        Nothing, while another call carries all that there is: it may not have begun, but nothing newer is
        said meanwhile, and each status enters the history once.
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
    """Let the worker know that nothing happens inside until people act: it may forget the task meanwhile."""
    functions = cast(
        "Mapping[str, Callable[[str], AbstractContextManager[object]]]", workflow.extern_functions()
    )
    return functions.get(names.PARKED, nullcontext)(workflow.info().run_id)


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
        agent = self.agent
        if (self._ref.agent_id, self._ref.agent_version) != (agent.id, agent.version):
            self._ref = self._ref.model_copy(update={"agent_id": agent.id, "agent_version": agent.version})
        return self._ref

    @property
    def has_hidden_task(self) -> bool:
        """Whether clients do not see the task: its message may be answered at once."""
        return self.task.agent.routing == "auto" and not self.state.is_routed

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

    def call_input(self, call: ToolCall, statuses: tuple[StatusChanged, ...], warning: str) -> ToolCallInput:
        """Return what whoever takes a tool call has to know; `warning` is published with it."""
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
        """Store and announce the result of a call that no tool activity ran; return what the model reads.

        `key` is that of a call whose result may be long.
        """
        call = StoreResultInput(
            task=self.ref, position=position, result=result, key=key, has_fallback=has_fallback
        )
        stored = await workflow.execute_activity_method(ToolPort.store_result, call, **short_call(summary))
        return stored or result


# How long each kind of side effect may take, and how it is retried.
#
# `queue` None is the one on which the workflow itself waits.

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""How long a dead worker goes unnoticed while it holds an activity."""

GIVE_UP = HEARTBEAT_TIMEOUT + timedelta(seconds=2)
"""How long a cancelled tool is waited for: until Temporal would know that its worker is dead.

After a Pause or Reset of the activity nothing tells the attempt of a cancellation: it would take all of the
tool's time."""

_UNTIL_IT_WORKS = RetryPolicy(maximum_interval=timedelta(seconds=60))
"""No last attempt: lost workers and an unreachable Redis are waited out. An activity that knows better ends
itself with a failure that is not retryable. The first retry comes after 1 s, each later one after twice the
time, which are Temporal's defaults."""

_TOOL_MARGIN = timedelta(minutes=3)
"""The tool activity ends a tool that takes too long by itself; this is what it and hooks need besides."""

_QUICK_MARGIN = timedelta(seconds=2)
"""The same for a quick tool, which ends itself after `QUICK_TIME`."""


def model_call(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of a model call, with its line in the Temporal UI."""
    return _heartbeating(timedelta(minutes=30), summary, queue)


def tool_call(queue: str | None, tool: ToolSpec, summary: str) -> ActivityConfig:
    """Return the options for a tool: its own time, and its own task queue if it has one."""
    return _heartbeating(timedelta(seconds=tool.timeout) + _TOOL_MARGIN, summary, tool.task_queue or queue)


def quick_call(summary: str) -> LocalActivityConfig:
    """Return the options for a quick tool, which has one attempt here; after that it is called as any other.

    While it runs, Temporal's server knows nothing of it, and waits for the end of the workflow task.
    """
    return LocalActivityConfig(
        start_to_close_timeout=timedelta(seconds=QUICK_TIME) + _QUICK_MARGIN,
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )


def plugin_call(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of a call that asks plugins, which may ask servers.

    It waits for a worker that has the agent. The activity knows how often a plugin is asked.
    """
    return _heartbeating(timedelta(minutes=2), summary, queue)


def post_completion(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of what follows the end of a task: it is dropped if it does not work."""
    options = _heartbeating(timedelta(minutes=10), summary, queue)
    options["retry_policy"] = RetryPolicy(maximum_interval=timedelta(seconds=10), maximum_attempts=5)
    options["schedule_to_close_timeout"] = timedelta(hours=1)
    return options


def narration(queue: str) -> ActivityConfig:
    """Return the options of the narrator, which ends by itself, with its task."""
    options = _heartbeating(timedelta(hours=24), "narrator", queue)
    options["cancellation_type"] = ActivityCancellationType.ABANDON
    return options


def short_call(summary: str) -> ActivityConfig:
    """Return the options of a call that moves something small: a chunk of a transcript, a result."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(seconds=30), retry_policy=_UNTIL_IT_WORKS, summary=summary
    )


def hooked_call(summary: str) -> ActivityConfig:
    """Return the options of a short call about which plugins are asked first."""
    return _heartbeating(_TOOL_MARGIN, summary, None)


def _heartbeating(start_to_close: timedelta, summary: str, queue: str | None) -> ActivityConfig:
    """A long call: a lost worker is noticed, and a cancelled one has ended before the task goes on."""
    return ActivityConfig(
        task_queue=queue,
        start_to_close_timeout=start_to_close,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_UNTIL_IT_WORKS,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )


def publish(summary: str) -> ActivityConfig:
    """Return the options of a status that no other call carries: it waits for Redis as long as it takes."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)
        ),
        summary=summary,
    )
