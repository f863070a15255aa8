"""Restoring a view that the workflow answered: what is lost comes back, what is newer stays."""

import pytest

from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import ArtifactChunk, TaskEvent
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView
from tests.stores.examples import (
    answered,
    artifact,
    asked,
    at,
    chunk,
    said,
    status,
    stream_of,
    submitted,
    told,
    view_of,
)

FAILED_DRAFT = (artifact("ha", complete=False, failed=True, artifact_id="half"),)


async def test_restore_puts_a_lost_view_back(task_views: TaskViews) -> None:
    """A view that the store lost comes back as the workflow answered it; restoring it again is nothing."""
    question = TaskStatus(
        state=TaskState.AUTH_REQUIRED,
        at=at(9),
        message=told("which one?"),
        questions=(asked("c1"),),
        metadata={"usage": {"input_tokens": 3}},
    )
    artifacts = (artifact("Hi"), artifact("x", artifact_id="log"), *FAILED_DRAFT)
    view = answered(submitted(), "run", 4, status=question, artifacts=artifacts)

    await task_views.restore(view)
    restored = await stream_of(task_views, view.task_id)
    await task_views.restore(view)

    assert await view_of(task_views, view.task_id) == view
    assert await stream_of(task_views, view.task_id) == restored


async def test_restore_completes_what_a_worker_began(task_views: TaskViews) -> None:
    """Restoring adds the static part and the history in front of what was published meanwhile."""
    view = answered(submitted(), "run", 4, history=(said("m1"), told("t1"), said("m2")))
    await task_views.publish(view.task_id, "run", [status(5, received=(said("m2"), said("m3")))])
    assert await task_views.load(view.task_id) is None

    await task_views.restore(view)

    now = await view_of(task_views, view.task_id)
    assert (now.version, now.owner) == (5, view.owner)
    assert now.history == (said("m1"), told("t1"), said("m2"), said("m3"))


@pytest.mark.parametrize(
    ("published", "answer", "applies"),
    [
        (("run", status(5)), ("run", 6), True),
        (("run", status(5)), ("run", 5), False),
        (("run", status(5, step=1)), ("run", 5), False),
        (("run", status(5)), ("run", 4), False),
        (("run", status(5)), ("newer run", 6), True),
        (("run", status(5)), ("older run", 4), False),
    ],
)
async def test_restore_never_sets_a_status_back(
    task_views: TaskViews, published: tuple[str, TaskEvent], answer: tuple[str, int], *, applies: bool
) -> None:
    """The restored status applies if it is newer; of two runs, the later status is newer."""
    view = answered(submitted(), *answer, artifacts=(artifact("answer"),))
    run_id, event = published
    await task_views.publish(view.task_id, run_id, [event])

    await task_views.restore(view)

    now = await view_of(task_views, view.task_id)
    assert (now.run_id, now.version) == (answer if applies else (run_id, 5))
    assert now.artifacts == (artifact("answer"),)


async def test_an_overtaken_run_is_not_restored(task_views: TaskViews) -> None:
    """A view of a run that was overtaken does not come back, whatever its version and time."""
    view = submitted()
    await task_views.create(view)
    for run_id, version in (("first", 5), ("second", 1)):
        await task_views.publish(view.task_id, run_id, [status(version)])

    await task_views.restore(answered(view, "first", 9))

    assert (await view_of(task_views, view.task_id)).run_id == "second"


async def test_a_stale_restore_does_not_shut_the_living_run_out(task_views: TaskViews) -> None:
    """After the store was emptied, an answer of the run before arrives late: the new run goes on."""
    view = submitted()
    await task_views.publish(view.task_id, "second", [status(6)])

    await task_views.restore(answered(view, "first", 5))
    await task_views.publish(view.task_id, "second", [status(7)])

    now = await view_of(task_views, view.task_id)
    assert (now.run_id, now.version) == ("second", 7)


async def test_a_restored_run_is_overtaken_and_fenced_like_any_other(task_views: TaskViews) -> None:
    """After a restore the same run goes on from its version; a run seen before it is shut out."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "first", [status(1)])
    await task_views.restore(answered(view, "second", 2))

    await task_views.publish(view.task_id, "first", [status(9)])
    await task_views.publish(view.task_id, "second", [status(2), status(3, step=1)])

    assert (await view_of(task_views, view.task_id)).version == 3
    assert (await stream_of(task_views, view.task_id))[-2:] == [status(2), status(3, step=1)]


async def test_followers_of_the_stream_hear_of_a_restored_status(task_views: TaskViews) -> None:
    """Whoever follows the stream hears of a restored artifact, and then of the status: it may be the last."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "run", [status(1), chunk("draf")])
    snapshot = await task_views.load(view.task_id)
    assert snapshot
    done = TaskStatus(state=TaskState.COMPLETED, at=at(2))

    await task_views.restore(answered(view, "run", 2, status=done, artifacts=(artifact("all of it"),)))
    await task_views.publish(view.task_id, "run", [status(2, TaskState.COMPLETED)])

    heard = [e.event for e in await task_views.read({view.task_id: snapshot.position}, wait=0)]
    assert [e.part for e in heard[:-1] if isinstance(e, ArtifactChunk)] == [TextPart(text="all of it")]
    assert heard[-1] == status(2, TaskState.COMPLETED)
    assert len(heard) == 2


@pytest.mark.parametrize(
    ("state", "version", "text"),
    [
        (TaskState.COMPLETED, 3, "whole"),
        (TaskState.INPUT_REQUIRED, 3, "whole"),
        (TaskState.WORKING, 3, "draft"),
        (TaskState.COMPLETED, 2, "draft"),
    ],
)
async def test_restore_replaces_a_draft_only_when_no_model_can_be_writing_it(
    task_views: TaskViews, state: TaskState, version: int, text: str
) -> None:
    """A draft gives way to a newer view of a task that rests, and to nothing else."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "run", [status(2), chunk("draft")])

    newer = TaskStatus(state=state, at=at(version))
    await task_views.restore(answered(view, "run", version, status=newer, artifacts=(artifact("whole"),)))

    (found,) = (await view_of(task_views, view.task_id)).artifacts
    assert found.parts == (TextPart(text=text),)


async def test_a_restored_artifact_gives_way_to_the_next_draft(task_views: TaskViews) -> None:
    """After a restore a worker's next draft, of whatever position, is accepted."""
    view = answered(submitted(), "run", 1, artifacts=(artifact("before"),))
    await task_views.restore(view)

    await task_views.publish(view.task_id, "run", [chunk("next", position=0)])

    assert (await view_of(task_views, view.task_id)).artifacts == (artifact("next", complete=False),)


@pytest.mark.parametrize("current", [None, told("newer")])
async def test_a_message_replaced_while_the_view_was_lost_is_kept(
    task_views: TaskViews, current: object
) -> None:
    """The message of a restored status that is already overtaken goes to the history, where it belongs."""
    question = TaskStatus(state=TaskState.INPUT_REQUIRED, at=at(4), message=told("which one?"))
    view: TaskView = answered(submitted(), "run", 4, status=question)
    newer = status(5).model_copy(update={"message": current})
    await task_views.publish(view.task_id, "run", [newer])

    await task_views.restore(view)

    assert (await view_of(task_views, view.task_id)).history == (said("m1"), told("which one?"))


async def test_restoring_a_failed_task_fails_what_it_left_behind(task_views: TaskViews) -> None:
    """A draft is marked as well when the news that its task failed comes from the workflow."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "run", [status(1), chunk("half")])

    await task_views.restore(answered(view, "run", 2, status=TaskStatus(state=TaskState.FAILED, at=at(2))))

    assert (await view_of(task_views, view.task_id)).artifacts == (
        artifact("half", complete=False, failed=True),
    )
