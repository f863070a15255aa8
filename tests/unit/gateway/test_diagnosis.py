"""Reasons why a task is stuck: the rules, as tables."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from everloop.gateway.extension.operator.diagnosis import (
    Facts,
    QueueKey,
    diagnose,
    diagnose_end,
    queues_of,
    waits_for,
)
from everloop.gateway.tasks.steering import Signature, signer_of, signer_of_reset
from everloop.runtime.temporal.describe import RunDescription
from everloop.runtime.temporal.inspection import REPORTED_PROBLEMS, CallState, Inspection, Pause, PendingCall
from everloop.runtime.temporal.queues import ACTIVITY, WORKFLOW, Poller, QueueState
from everloop.workflows.contract import failures
from everloop.workflows.contract.messages import Usage
from everloop.workflows.contract.tasks import TaskProgress, TaskState

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
NOBODY = QueueState((), 3, 20.0)
GONE = QueueState((Poller("w1", NOW - timedelta(seconds=91), ""),), 3, 20.0)
SOMEBODY = QueueState((Poller("w1", NOW - timedelta(seconds=30), ""),), 3, 20.0)
OF_ANOTHER_BUILD = QueueState((Poller("w1", NOW, "everloop:2"),), 0, 0.0)


def before(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def call(kind: str = "call_model", state: CallState = CallState.STARTED, **fields: object) -> PendingCall:
    known: dict[str, object] = {
        "activity_id": "1",
        "type": kind,
        "queue": "q",
        "state": state,
        "attempt": 1,
        "due_at": before(5),
        "started_at": before(5),
        "failed_at": None,
        "failure": "",
        "timeout": timedelta(hours=1),
        "pause": None,
    }
    return PendingCall(**{**known, **fields})  # pyright: ignore[reportArgumentType] -- as the tests name them


def inspection(*calls: PendingCall, attempt: int = 0, problems: bool = False, **fields: object) -> Inspection:
    pairs = [SearchAttributePair(REPORTED_PROBLEMS, ["cause=X"])] if problems else []
    run = RunDescription(
        workflow_id="t",
        run_id="r",
        workflow_type="AgentTask",
        status=WorkflowExecutionStatus.RUNNING,
        is_paused="pause" in fields,
        close_time=None,
        attempt=attempt,
        is_cancel_requested=False,
        search_attributes=TypedSearchAttributes(pairs),
    )
    known: dict[str, object] = {
        "run": run,
        "queue": "q",
        "summary": "",
        "began_at": before(600),
        "calls": calls,
        "children": (),
        "step_due_at": None,
        "is_stepping": False,
        "build": "",
        "pause": None,
    }
    return Inspection(**{**known, **fields})  # pyright: ignore[reportArgumentType] -- as the tests name them


def progress(**fields: object) -> TaskProgress:
    known = {"phase": "tools", "iteration": 2, "usage": Usage(), "transcript_length": 3}
    return TaskProgress.model_validate({**known, **fields})


STEP, CALL = ("q", WORKFLOW), ("q", ACTIVITY)
WAITS = CallState.SCHEDULED


def calling(kind: str = "call_model", state: CallState = CallState.STARTED, **fields: object) -> Inspection:
    """Return a run with one call."""
    return inspection(call(kind, state, **fields))


def since(seconds: float, build: str = "") -> Inspection:
    """Return a run whose step has been due for so long."""
    return inspection(step_due_at=before(seconds), build=build)


CASES: dict[str, tuple[Facts, str | None, tuple[str, ...]]] = {}


def case(  # noqa: PLR0913 -- one row of the table
    name: str,
    run: Inspection,
    why: str | None = None,
    actions: str = "",
    queues: Mapping[QueueKey, QueueState] | None = None,
    *,
    told: TaskProgress | None = None,
    cause: str = "",
) -> None:
    CASES[name] = Facts(run, queues or {}, NOW, before(60), told, cause), why, tuple(actions.split())


IN_9_S = NOW + timedelta(seconds=9)
RETRIED = "the model cannot answer: 503 (attempt 2, the next at 2026-11-26T12:00:09.000Z)"
UNTAKEN = "no worker takes work from the task queue 'q'; start one"
BEHIND = "its work waits behind other work: 1 worker takes from the task queue 'q', 3 wait in it"
PAUSE = Pause(before(9), "eve", "a look")
HANGS = progress(pending_tools=("hang",), pending_calls=("c1",))
BROKEN = "its workflow's code fails at each attempt: RuntimeError; "

case("a model that writes", calling())
case("a retry that is under way", calling(attempt=2, failure="503"), "the model cannot", "resume cancel")
case(
    "a call that waits for its next attempt",
    calling(state=WAITS, attempt=2, failure="503", due_at=IN_9_S, failed_at=before(1)),
    RETRIED,
    "resume cancel",
)
case(
    "a plugin that is away",
    calling("prepare_task", WAITS, attempt=2, failure="docs is away"),
    "a plugin cannot list its tools: docs is away",
    "resume cancel",
)
case(
    "a tool that is tried again",
    calling("run_tool", WAITS, attempt=3, failure="no"),
    "a tool fails, and is tried again: no",
    "resume skip cancel",
)
case(
    "a step of our own that fails",
    calling("publish", WAITS, attempt=3, failure="Redis is away"),
    "the step publish fails, and is tried again: Redis is away",
    "resume cancel",
)
case("a tool that runs for a while", calling("run_tool", started_at=before(59)))
case(
    "a tool that runs for long",
    calling("run_tool", started_at=before(61)),
    "a tool (hang) has run for 61 s; it is stopped after 3600 s at the latest",
    "skip cancel",
    told=HANGS,
)
case("a narrator, which nobody waits for", calling("narrate", failure="no"))
case(
    "a paused call",
    calling("run_tool", CallState.PAUSED, pause=PAUSE),
    "a call (run_tool) is paused by eve (a look)",
    "resume skip cancel",
)
case(
    "a paused task",
    inspection(pause=Pause(before(9), "eve", "")),
    "the task is paused by eve; ",
    "resume cancel",
)
case("a step that failed twice", inspection(attempt=2))
case("a step that fails", inspection(attempt=3), BROKEN, cause="RuntimeError")
case("problems that the server reports", inspection(problems=True), "its workflow's code fails at each")
case("a step that waits for a moment", since(9), queues={STEP: NOBODY})
case("a step that no worker takes", since(11), UNTAKEN, "cancel", {STEP: NOBODY})
case("a step whose worker has died", since(11), "no worker takes work", "cancel", {STEP: GONE})
case(
    "a step of a build whose workers are gone",
    since(11, build="everloop:1"),
    "no worker of build 'everloop:1' takes work",
    "cancel",
    {STEP: OF_ANOTHER_BUILD},
)
case("a step behind others", since(59), queues={STEP: SOMEBODY})
case("a step that is behind others for long", since(61), BEHIND, "cancel", {STEP: SOMEBODY})
case(
    "a call that no worker takes",
    calling("run_tool", WAITS, due_at=before(11)),
    UNTAKEN,
    "skip cancel",
    {CALL: NOBODY},
)
case("a quick tool that runs in a step", inspection(is_stepping=True))
case(
    "a task that waits for an operator",
    inspection(),
    "it waits for an operator: wrong key",
    "resume cancel",
    told=progress(waits_for_resume="wrong key"),
)


@pytest.mark.parametrize("name", CASES)
def test_a_task_that_does_not_go_on_says_why(name: str) -> None:
    """Reason and actions follow the table of the page for operators; tasks in progress are not stuck."""
    facts, why, actions = CASES[name]
    stuck = diagnose(facts)

    if why is None:
        assert stuck is None
    else:
        assert stuck
        assert why in stuck.why
        assert stuck.actions == actions
        assert stuck.since < NOW


def test_the_only_call_that_can_be_skipped_is_named() -> None:
    """With several calls, no call is named."""
    slow = calling("run_tool", started_at=before(61))
    one, two = progress(pending_calls=("c1",)), progress(pending_calls=("c1", "c2"))
    found = [diagnose(Facts(slow, {}, NOW, NOW, told)) for told in (one, two, None)]

    assert [stuck and stuck.call_id for stuck in found] == ["c1", "", ""]


def test_only_queues_in_which_something_waits_are_looked_at() -> None:
    """And only after a while: each is one more query to Temporal."""
    run = inspection(
        call(queue="runs"),
        call(state=WAITS, queue="waits", due_at=before(11)),
        call(state=WAITS, queue="later", due_at=NOW + timedelta(seconds=5)),
        step_due_at=before(11),
    )

    assert queues_of(run, NOW) == {("waits", ACTIVITY), STEP}
    assert queues_of(inspection(step_due_at=before(9)), NOW) == set()


@pytest.mark.parametrize(
    ("task_id", "reason", "helps"),
    [
        ("t", failures.MODEL_REFUSED, True),
        ("t", "", True),
        ("t", failures.ITERATION_LIMIT, False),
        ("t", failures.COST_LIMIT, False),
        ("t/r00001-1f", failures.MODEL_REFUSED, False),
    ],
)
def test_a_reset_is_offered_where_it_helps(task_id: str, reason: str, *, helps: bool) -> None:
    """A limit would end the task again, and a sub-agent's parent has gone on."""
    stuck = diagnose_end(task_id, "why", reason, NOW)

    assert (stuck.actions if stuck else None) == (("reset",) if helps else None)


@pytest.mark.parametrize(
    ("run", "state", "told", "awaited"),
    [
        (calling(), TaskState.WORKING, None, "the model"),
        (calling("run_tool"), TaskState.WORKING, None, "a tool"),
        (calling("run_tool"), TaskState.WORKING, progress(pending_tools=("pay",)), "pay"),
        (calling("publish"), TaskState.WORKING, None, None),
        (inspection(children=("t/c",)), TaskState.WORKING, None, "sub-agent t/c"),
        (inspection(), TaskState.SUBMITTED, None, "a worker"),
        (inspection(), TaskState.INPUT_REQUIRED, None, "people"),
        (inspection(), TaskState.WORKING, progress(waits_for_resume="x"), "an operator"),
        (inspection(pause=Pause(None, "", "")), TaskState.INPUT_REQUIRED, None, "an operator"),
    ],
)
def test_what_a_task_waits_for_is_named(
    run: Inspection, state: TaskState, told: TaskProgress | None, awaited: str | None
) -> None:
    """In a word or two."""
    assert waits_for(run, state, told) == awaited


def test_who_acts_is_read_from_the_signature_of_a_gateway_alone() -> None:
    """Temporal's own tools sign as user and host, which clients do not get."""
    sign = Signature("root (k1)", "1")

    assert signer_of(sign.identity) == "root (k1)"
    assert signer_of("temporal-cli:root@host") == ""
    assert signer_of_reset("the key is right now") == ""
