"""Reasons for which a task is stuck, and an operator's options. Pure.

These are the rules of docs/operation/when-a-task-is-stuck.md, in code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pydantic import JsonValue
from temporalio.api.enums.v1 import TaskQueueType

from everloop.gateway.tasks.workflow_runs import STUCK_ATTEMPTS
from everloop.runtime.protocol.a2a_tasks import timestamp
from everloop.runtime.temporal.inspection import CallState, Inspection, Pause, PendingCall
from everloop.runtime.temporal.queues import ACTIVITY, WORKFLOW, QueueState
from everloop.workflows.contract import failures
from everloop.workflows.contract.names import is_child_task_id
from everloop.workflows.contract.ports import AgentPort, ContextPort, ModelPort, NarratorPort, ToolPort
from everloop.workflows.contract.tasks import TaskProgress, TaskState

Action = Literal["resume", "skip", "reset", "cancel"]

UNTAKEN = timedelta(seconds=10)
"""Time that work may wait for a worker before the queue is checked for workers."""

SLOW = timedelta(minutes=1)
"""Time that a tool may run, or work may wait behind other work, before it is reported."""

QueueKey = tuple[str, TaskQueueType.ValueType]
"""The name of a task queue, and its kind."""

_WORDS = {
    ModelPort.call_model.__name__: ("the model", "the model cannot answer"),
    ModelPort.compact_context.__name__: ("the model", "the model cannot sum up older messages"),
    ContextPort.compact_conversation.__name__: ("the model", "the model cannot sum up the conversation"),
    ToolPort.run_tool.__name__: ("a tool", "a tool fails, and is tried again"),
    AgentPort.prepare_task.__name__: ("plugins", "a plugin cannot list its tools"),
}
"""Texts for an activity: while the task waits for it, and when it fails."""

_TOOL = ToolPort.run_tool.__name__

_BESIDE = NarratorPort.narrate.__name__
"""Runs as long as the task, which does not wait for it."""


@dataclass(frozen=True)
class StuckReason:
    """Reason for which a task is stuck, its time, and the remedy. `call_id`: the call that `skip` ends."""

    why: str
    since: datetime
    actions: tuple[Action, ...] = ()
    call_id: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "why": self.why,
            "since": timestamp(self.since),
            "actions": list(self.actions),
            "callId": self.call_id or None,
        }


def calls_of(run: Inspection) -> tuple[PendingCall, ...]:
    """Return the calls that the task waits for."""
    return tuple(call for call in run.calls if call.type != _BESIDE)


def is_idle(run: Inspection) -> bool:
    """Whether nothing runs: the task waits for people, or for an operator."""
    return not (calls_of(run) or run.children or run.step_due_at or run.is_stepping)


def is_broken(run: Inspection) -> bool:
    """Whether its next step fails again and again."""
    return run.run.attempt >= STUCK_ATTEMPTS or bool(run.problems)


def queues_of(run: Inspection, now: datetime) -> set[QueueKey]:
    """Return the queues in which work has waited for a while."""
    found = {(call.queue, ACTIVITY) for call in calls_of(run) if _is_untaken(call, now)}
    if run.step_due_at and now - run.step_due_at >= UNTAKEN:
        found.add((run.queue, WORKFLOW))
    return found


def waits_for(run: Inspection, state: TaskState, progress: TaskProgress | None = None) -> str | None:
    """Return a short phrase for the awaited thing of an open task; None if it is unknown."""
    if run.pause or (progress and progress.waits_for_resume):
        return "an operator"
    if state.is_interrupted:
        return "people"
    if run.step_due_at or state is TaskState.SUBMITTED:
        return "a worker"
    if run.children:
        return f"sub-agent {run.children[0]}"
    if progress and progress.pending_tools:
        return ", ".join(progress.pending_tools)
    words = dict.fromkeys(_WORDS[call.type][0] for call in calls_of(run) if call.type in _WORDS)
    return ", ".join(words) or None


# Open tasks.


@dataclass(frozen=True)
class Facts:
    """Input of the rules. `changed_at`: time of the last status. `cause`: error of a broken run's steps."""

    run: Inspection
    queues: Mapping[QueueKey, QueueState]
    now: datetime
    changed_at: datetime
    progress: TaskProgress | None = None
    cause: str = ""


def diagnose(facts: Facts) -> StuckReason | None:
    """Return the reason for which an open task is stuck; None if it runs, or waits for people."""
    found = next(filter(None, (rule(facts) for rule in _RULES)), None)
    progress = facts.progress
    if found and "skip" in found.actions and progress and len(progress.pending_calls) == 1:
        return StuckReason(found.why, found.since, found.actions, progress.pending_calls[0])
    return found


def _paused(facts: Facts) -> StuckReason | None:
    run = facts.run
    if not run.run.is_paused:
        return None
    why = f"the task is paused{_by(run.pause)}; a cancellation takes effect when it goes on"
    return StuckReason(why, (run.pause and run.pause.at) or run.began_at, ("resume", "cancel"))


def _broken(facts: Facts) -> StuckReason | None:
    run = facts.run
    if not is_broken(run):
        return None
    why = (
        f"its workflow's code fails at each attempt: {facts.cause or 'unknown cause'}; "
        "roll out mended code, and it goes on by itself"
    )
    return StuckReason(why, run.step_due_at or facts.changed_at)


def _untaken_step(facts: Facts) -> StuckReason | None:
    run = facts.run
    if run.step_due_at is None or facts.now - run.step_due_at < UNTAKEN:
        return None
    return _unserved(facts, run.queue, WORKFLOW, run.step_due_at, run.build)


def _paused_call(facts: Facts) -> StuckReason | None:
    call = next((call for call in calls_of(facts.run) if call.state is CallState.PAUSED), None)
    if call is None:
        return None
    at = call.pause.at if call.pause else None
    why = f"a call ({call.type}) is paused{_by(call.pause)}"
    return StuckReason(why, at or call.due_at, ("resume", *_skipping(call), "cancel"))


def _failing(facts: Facts) -> StuckReason | None:
    call = next((call for call in calls_of(facts.run) if call.failure), None)
    if call is None:
        return None
    _, words = _WORDS.get(call.type, ("", f"the step {call.type} fails, and is tried again"))
    why = f"{words}: {call.failure} (attempt {call.attempt}"
    why += f", the next at {timestamp(call.due_at)})" if call.due_at > facts.now else ")"
    return StuckReason(why, call.failed_at or call.due_at, ("resume", *_skipping(call), "cancel"))


def _untaken_call(facts: Facts) -> StuckReason | None:
    for call in calls_of(facts.run):
        if _is_untaken(call, facts.now) and (
            stuck := _unserved(facts, call.queue, ACTIVITY, call.due_at, "", *_skipping(call))
        ):
            return stuck
    return None


def _slow(facts: Facts) -> StuckReason | None:
    for call in calls_of(facts.run):
        began = call.started_at
        if call.type == _TOOL and call.state is CallState.STARTED and began and facts.now - began >= SLOW:
            tools = facts.progress and ", ".join(facts.progress.pending_tools)
            limit = f"; it is stopped after {_seconds(call.timeout)} at the latest" if call.timeout else ""
            why = f"a tool{f' ({tools})' if tools else ''} has run for {_seconds(facts.now - began)}{limit}"
            return StuckReason(why, began, ("skip", "cancel"))
    return None


def _waits_for_resume(facts: Facts) -> StuckReason | None:
    if not (facts.progress and facts.progress.waits_for_resume):
        return None
    why = f"it waits for an operator: {facts.progress.waits_for_resume}"
    return StuckReason(why, facts.changed_at, ("resume", "cancel"))


_RULES: tuple[Callable[[Facts], StuckReason | None], ...] = (
    _paused,
    _broken,
    _untaken_step,
    _paused_call,
    _failing,
    _untaken_call,
    _waits_for_resume,
    _slow,
)
"""The first rule with a result decides."""


def _unserved(
    facts: Facts, queue: str, kind: TaskQueueType.ValueType, since: datetime, build: str, *skip: Action
) -> StuckReason | None:
    """Return the reason for work in a queue without workers."""
    state = facts.queues.get((queue, kind))
    if state is None:
        return None
    workers = {each.identity for each in state.serving(facts.now, build)}
    actions: tuple[Action, ...] = (*skip, "cancel")
    if not workers:
        of_build = f" of build {build!r}" if build else ""
        return StuckReason(
            f"no worker{of_build} takes work from the task queue {queue!r}; start one", since, actions
        )
    if facts.now - since < SLOW:
        return None
    are = f"{len(workers)} workers take" if len(workers) > 1 else "1 worker takes"
    why = f"its work waits behind other work: {are} from the task queue {queue!r}, {state.backlog} wait in it"
    return StuckReason(why, since, actions)


def _is_untaken(call: PendingCall, now: datetime) -> bool:
    return call.state is CallState.SCHEDULED and now - call.due_at >= UNTAKEN


def _skipping(call: PendingCall) -> tuple[Action, ...]:
    return ("skip",) if call.type == _TOOL else ()


def _by(pause: Pause | None) -> str:
    if pause is None:
        return ""
    return "".join((pause.by and f" by {pause.by}", pause.reason and f" ({pause.reason})"))


def _seconds(time: timedelta) -> str:
    return f"{time.total_seconds():.0f} s"


# Ended tasks.


def diagnose_end(task_id: str, why: str, reason: str, at: datetime) -> StuckReason | None:
    """Return the remedy for a task that failed or was terminated; `reason` names the failure.

    None without a remedy: a limit ended the task, and would end it again.
    """
    if reason in failures.LIMITS:
        return None
    if is_child_task_id(task_id):  # the task above has already received the failure
        return None
    return StuckReason(why or "the task failed", at, ("reset",))
