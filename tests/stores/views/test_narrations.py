"""What a narrator says passes by: the view knows nothing of it, and nobody hears it too late."""

import pytest

from everloop.stores.views.interface import START, TaskViews
from everloop.workflows.contract.events import Narrated
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import chunk, status, stream_of, submitted

NARRATION = Narrated(text="Reading the minutes")


@pytest.mark.parametrize("state", TaskState)
async def test_a_narration_passes_only_while_the_task_is_at_work(
    task_views: TaskViews, state: TaskState
) -> None:
    """It never follows a question of the task or its end, and leaves the view as it was."""
    task_id = submitted().task_id
    await task_views.create(submitted(task_id))
    await task_views.publish(task_id, "run", [status(1, state)])
    before = await task_views.load(task_id)
    assert before

    await task_views.publish(task_id, "run", [NARRATION])

    after = await task_views.load(task_id)
    assert after
    assert after.view == before.view
    told = [streamed.event for streamed in await task_views.read({task_id: before.position}, wait=0)]
    assert told == ([NARRATION] if state in {TaskState.SUBMITTED, TaskState.WORKING} else [])


async def test_a_narration_that_comes_with_the_end_is_dropped(task_views: TaskViews) -> None:
    """What was said in one batch counts one by one; after an answer the task is at work again."""
    task_id = submitted().task_id
    batch = [
        status(1),
        NARRATION,
        status(2, TaskState.INPUT_REQUIRED),
        NARRATION,
        status(3),
        chunk("x"),
        NARRATION,
    ]

    await task_views.publish(task_id, "run", batch)

    told = await stream_of(task_views, task_id)
    assert told == [
        status(1),
        NARRATION,
        status(2, TaskState.INPUT_REQUIRED),
        status(3),
        chunk("x"),
        NARRATION,
    ]


async def test_a_narration_of_an_unknown_task_passes(task_views: TaskViews) -> None:
    """Redis may have lost the view: whoever follows the task still hears that it works."""
    task_id = submitted().task_id

    await task_views.publish(task_id, "run", [NARRATION])

    assert [each.event for each in await task_views.read({task_id: START}, wait=0)] == [NARRATION]


async def test_a_narration_of_an_overtaken_run_is_dropped(task_views: TaskViews) -> None:
    """An operator reset the task: who narrates the run before is late."""
    task_id = submitted().task_id
    await task_views.publish(task_id, "run-a", [status(1)])
    await task_views.publish(task_id, "run-b", [status(1)])

    await task_views.publish(task_id, "run-a", [NARRATION])

    assert await stream_of(task_views, task_id) == [status(1), status(1)]
