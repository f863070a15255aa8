"""Rules of the fold: the resulting view and the published events."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from pydantic import JsonValue

from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import Narrated, StatusChanged, TaskCreated, TaskEvent, Warned
from everloop.workflows.contract.messages import AgentMessage, TextPart
from everloop.workflows.contract.tasks import TaskState, TaskStatus
from tests.stores.examples import (
    Step,
    after,
    answered,
    artifact,
    asked,
    at,
    chunk,
    created,
    new_id,
    published,
    restored,
    said,
    status,
    stream_of,
    told,
    view_of,
)

WORKING, DONE, FAILED = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED
ASKING = TaskState.INPUT_REQUIRED
NOTE, NARRATION = Warned(text="w"), Narrated(text="Reading the minutes")
USAGE: dict[str, JsonValue] = {"usage": {"input_tokens": 3, "output_tokens": 4, "cost": 0.25}}
M1, M2, M3, QUESTION = said("m1"), said("m2"), said("m3"), told("question")
HALF, FAILED_HALF = chunk("half"), artifact("half", complete=False, failed=True)
ASKED = status(1, ASKING, message=QUESTION, received=(M2,))
OVERTAKEN = [status(8), chunk("x", position=9), Warned(text="late"), NARRATION]


def state(value: TaskState, seconds: float, message: AgentMessage | None = None) -> TaskStatus:
    return TaskStatus(state=value, at=at(seconds), message=message)


@dataclass(frozen=True)
class Batch:
    """The events of a run in one publish, and whether they pass."""

    run_id: str
    events: tuple[TaskEvent, ...]
    passes: bool


def says(run_id: str, *events: TaskEvent) -> Batch:
    return Batch(run_id, events, passes=True)


def late(run_id: str, *events: TaskEvent) -> Batch:
    return Batch(run_id, events, passes=False)


NEW: dict[str, object] = {"artifacts": (artifact("new", complete=False),)}
ASKING_TWICE = status(1, ASKING, questions=(asked("c1"), asked("c2")), metadata=USAGE)
# Published batches, and the resulting view.
RULES: dict[str, tuple[list[Batch], dict[str, object]]] = {
    "the same version": ([says("run", status(2)), late("run", status(2))], {"version": 2}),
    "another state": (
        [says("run", status(2)), late("run", status(2, FAILED))],
        {"status": state(WORKING, 2)},
    ),
    "the note of an activity leaves no trace": (
        [says("run", ASKED, status(1, step=1, message=told("wait")), status(2))],
        {"status": state(WORKING, 2), "history": (M1, M2, QUESTION)},
    ),
    "a new run takes over for good": (
        [
            says("first", status(7, FAILED), chunk("old", last=True)),
            says("second", status(2), chunk("new")),
            late("first", *OVERTAKEN),
        ],
        {"run_id": "second", "version": 2, "status": state(WORKING, 2), **NEW},
    ),
    "an event that is dropped overtakes no run": (
        [says("first", status(1)), late("second", chunk("no beginning", index=3)), says("first", status(2))],
        {"run_id": "first", "version": 2},
    ),
    "history gets the replaced message, then the received ones, once": (
        [
            says("run", status(1, received=(M1, M2)), status(2, message=QUESTION)),
            says(
                "run", status(3, received=(M3, M3)), status(4, message=QUESTION), status(5, message=told("t"))
            ),
        ],
        {"history": (M1, M2, QUESTION, M3)},
    ),
    "other events pass, each time": (
        [says("run", NOTE, NOTE), says("run")],
        {"version": 0, "history": (M1,)},
    ),
    "questions and usage come with the status": (
        [says("run", ASKING_TWICE)],
        {"status": TaskStatus(state=ASKING, at=at(1), questions=(asked("c1"), asked("c2")), metadata=USAGE)},
    ),
    "a narration follows neither a question nor the end": (
        [
            says("run", NARRATION, status(1), NARRATION, status(2, ASKING)),
            late("run", NARRATION),
            says("run", status(3), chunk("x"), NARRATION, status(4, DONE)),
            late("run", NARRATION),
        ],
        {"version": 4, "history": (M1,)},
    ),
    "a draft of a newer run has not failed": (
        [says("run", chunk("old"), status(1, FAILED)), says("after a reset", status(2), chunk("new"))],
        NEW,
    ),
}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("batches", "fields"), RULES.values(), ids=RULES.keys())
async def test_what_is_published_is_folded_into_the_view(
    task_views: TaskViews, batches: list[Batch], fields: dict[str, object], *, at_once: bool
) -> None:
    """A status or chunk that is not newer is dropped, and not published."""
    view = await after(task_views, created)
    for batch in batches:
        for events in [batch.events] if at_once else [[event] for event in batch.events]:
            await task_views.publish(view.task_id, batch.run_id, events)
    await task_views.create(view)  # it exists: nothing changes

    now = await view_of(task_views, view.task_id)
    assert {name: getattr(now, name) for name in fields} == fields
    passed = [event for batch in batches if batch.passes for event in batch.events]
    assert await stream_of(task_views, view.task_id) == [TaskCreated(), *passed]


async def test_a_worker_may_publish_before_the_task_is_created(task_views: TaskViews) -> None:
    """A worker may publish before the task is created: the view is None until then, and the events stay."""
    view = await after(task_views, published("run", status(1, received=(M2,)), HALF))
    assert await task_views.load(view.task_id) is None

    await task_views.create(view)

    draft = (artifact("half", complete=False),)
    expected = answered(view, "run", 1, history=(M1, M2), artifacts=draft)
    assert await view_of(task_views, view.task_id) == expected


LOST = TaskStatus(state=ASKING, at=at(9), message=QUESTION, questions=(asked("c1"),), metadata=USAGE)
WHOLE, DRAFT = (artifact("whole"),), (artifact("draft", complete=False),)
WAITED = restored("run", 4, status=state(ASKING, 4, QUESTION))
RESTORED: dict[str, tuple[Sequence[Step], dict[str, object]]] = {
    "a lost view comes back": (
        [
            restored(
                "run", 4, status=LOST, artifacts=(*WHOLE, FAILED_HALF.model_copy(update={"artifact_id": "h"}))
            )
        ],
        {"version": 4, "status": LOST, "history": (M1,), "run_id": "run"},
    ),
    "what was published meanwhile stays behind it": (
        [published("run", status(5, received=(M2, M3))), restored("run", 4, history=(M1, told("t1"), M2))],
        {"version": 5, "history": (M1, told("t1"), M2, M3)},
    ),
    "a later step stays": (
        [published("run", status(5, step=1)), restored("run", 5)],
        {"status": state(WORKING, 5)},
    ),
    "a stale answer does not shut the living run out": (
        [published("run", status(6)), restored("older", 5), published("run", status(7))],
        {"run_id": "run", "version": 7},
    ),
    "an overtaken run does not come back": (
        [created, published("first", status(5)), published("second", status(1)), restored("first", 9)],
        {"run_id": "second", "version": 1},
    ),
    "a restored run shuts the one before out, and goes on": (
        [
            created,
            published("first", status(1)),
            restored("second", 2),
            published("first", status(9)),
            published("second", status(2), status(3, step=1)),
        ],
        {"run_id": "second", "version": 3},
    ),
    **{
        f"a draft gives way to a newer view of a task that rests: {value} {version}": (
            [
                created,
                published("run", status(2), chunk("draft")),
                restored("run", version, status=state(value, version), artifacts=WHOLE),
            ],
            {"artifacts": artifacts},
        )
        for value, version, artifacts in [
            (DONE, 3, WHOLE),
            (ASKING, 3, WHOLE),
            (WORKING, 3, DRAFT),
            (DONE, 2, DRAFT),
        ]
    },
    "a message that was replaced meanwhile goes to the history": (
        [published("run", status(5)), WAITED],
        {"history": (M1, QUESTION), "status": state(WORKING, 5)},
    ),
    "a task that failed fails what it left behind": (
        [created, published("run", status(1), HALF), restored("run", 2, status=state(FAILED, 2))],
        {"artifacts": (FAILED_HALF,)},
    ),
}


@pytest.mark.parametrize(("steps", "fields"), RESTORED.values(), ids=RESTORED.keys())
async def test_what_was_lost_comes_back_and_what_is_newer_stays(
    task_views: TaskViews, steps: Sequence[Step], fields: dict[str, object]
) -> None:
    """A restore adds the static part, never sets a status back, and may be repeated."""
    view = await after(task_views, *steps)
    heard = await stream_of(task_views, view.task_id)
    now = await view_of(task_views, view.task_id)
    for step in steps[-1:]:
        await step(task_views, view)

    assert now.owner == view.owner
    assert {name: getattr(now, name) for name in fields} == fields
    assert await view_of(task_views, view.task_id) == now
    assert await stream_of(task_views, view.task_id) == heard


async def test_followers_hear_of_what_is_restored(task_views: TaskViews) -> None:
    """Followers get the restored artifact, then the status, which may be the last.

    A repeat publishes nothing.
    """
    view = await after(task_views, created, published("run", status(1), chunk("draf")))
    before = len(await stream_of(task_views, view.task_id))

    for step in (
        restored("run", 2, status=state(DONE, 2), artifacts=WHOLE),
        published("run", status(2, DONE)),
    ):
        await step(task_views, view)

    text, last = (await stream_of(task_views, view.task_id))[before:]
    assert getattr(text, "part", None) == TextPart(text="whole")
    assert last == status(2, DONE)


async def test_publishing_tells_which_states_the_task_took(task_views: TaskViews) -> None:
    """Publishing returns each new state once.

    None for repeated, late or equal statuses, or an overtaken run.
    """
    view = await after(task_views, created)
    for states, run_id, *events in (
        ([WORKING], "run", status(1), chunk("Hi")),
        ([], "run", status(1), status(1, step=1)),
        ([ASKING, WORKING], "run", status(1, step=1), status(2, ASKING), status(3)),
        ([DONE], "new run", status(3, DONE, seconds=100)),
        ([], "run", status(9)),
        ([], "new run"),
    ):
        assert list(await task_views.publish(view.task_id, run_id, events)) == states


@pytest.mark.parametrize("value", TaskState)
async def test_a_task_that_ends_badly_fails_its_drafts(task_views: TaskViews, value: TaskState) -> None:
    """A task that fails, is canceled or rejected fails its incomplete drafts, and no draft continues."""
    ends_badly = value in {FAILED, TaskState.CANCELED, TaskState.REJECTED}

    view = await after(
        task_views,
        created,
        published("run", chunk("whole", artifact_id="log", last=True), chunk("ha"), status(1, value)),
        published("run", chunk("lf", index=1, last=True)),
    )

    assert (await view_of(task_views, view.task_id)).artifacts == (
        artifact("whole", artifact_id="log"),
        artifact("ha", complete=False, failed=True) if ends_badly else artifact("half"),
    )
    assert len(await stream_of(task_views, view.task_id)) == 5 - ends_badly


LAST_STEP = 1_000


def ended(version: int, seconds: float) -> StatusChanged:
    return status(version, FAILED, step=LAST_STEP, seconds=seconds)


@pytest.mark.parametrize(
    ("run_id", "seconds", "applies"),
    [("run", 0, True), ("", 0, True), ("newer", 6, True), ("older", 4, False), ("overtaken", 9, False)],
)
async def test_a_last_status_does_not_shut_a_newer_run_out(
    task_views: TaskViews, run_id: str, seconds: float, *, applies: bool
) -> None:
    """A last status counts once: for the followed run, and for an unseen one if it is later."""
    view = await after(
        task_views, created, published("overtaken", status(1)), published("run", status(5), HALF)
    )

    did_it = [await task_views.end(view.task_id, run_id, ended(5, seconds)) for _ in range(2)]

    await task_views.publish(view.task_id, "run", [status(6)])
    now = await view_of(task_views, view.task_id)
    assert did_it == [applies, False]
    assert now.run_id == ("newer" if run_id == "newer" else "run")
    assert await task_views.state(view.task_id) == now.status.state
    assert (await stream_of(task_views, view.task_id)).count(ended(5, seconds)) == applies
    assert now.artifacts == (artifact("half", complete=False, failed=applies),)


async def test_only_an_open_task_is_given_an_end(task_views: TaskViews) -> None:
    """Only an open task gets an end: its own stays, a living run continues, and an unknown task gets none."""
    done = await after(task_views, created, published("run", status(2, DONE)))
    assert not await task_views.end(done.task_id, "newer", ended(2, 9))
    assert await task_views.state(done.task_id) is DONE

    unknown = new_id()
    assert not await task_views.end(unknown, "newer", ended(2, 9))
    assert await task_views.state(unknown) is None

    silent = await after(task_views, created)
    assert await task_views.end(silent.task_id, "", ended(0, 3))
    await task_views.publish(silent.task_id, "run", [status(1)])
    assert await task_views.state(silent.task_id) is WORKING
