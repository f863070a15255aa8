"""The size of a stored task, and partial loading of a large one."""

import pytest

from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import TaskQuery
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import AGENT_ID, artifact, chunk, said, status, submitted

LONG = "x" * 100_000


async def create(views: TaskViews, *texts: str) -> TaskView:
    """Create a task with these messages."""
    messages = tuple(said(f"m{number}", text) for number, text in enumerate(texts, 1))
    view = submitted().model_copy(update={"history": messages})
    await views.create(view)
    return view


async def test_what_is_too_large_comes_without_messages_and_artifacts(task_views: TaskViews) -> None:
    """A task that is too large is loaded with state, owner, position and message ids, without contents."""
    view = await create(task_views, LONG, "short")
    await task_views.publish(view.task_id, "run", [status(1), chunk("Hi"), chunk(LONG, index=1)])
    whole = await task_views.load(view.task_id)
    assert whole

    cut = await task_views.load(view.task_id, most=whole.size - 1)
    same = await task_views.load(view.task_id, most=whole.size)

    assert same == whole
    assert whole.is_complete
    assert cut
    assert not cut.is_complete
    assert (cut.position, cut.size) == (whole.position, whole.size)
    assert cut.view == whole.view.model_copy(update={"history": (), "artifacts": ()})
    assert cut.view.status.state is TaskState.WORKING
    assert cut.message_ids == whole.message_ids == {"m1", "m2"}


async def test_only_the_newest_messages_are_loaded_and_counted(task_views: TaskViews) -> None:
    """A task can be loaded and counted with its newest messages only, and its artifacts."""
    view = await create(task_views, LONG, LONG, "new", "newest")
    await task_views.publish(view.task_id, "run", [chunk("Hi", last=True)])

    tails = [await task_views.load(view.task_id, history_length=length) for length in (0, 1, 2, 3, 9)]
    bounded = await task_views.load(view.task_id, most=50_000, history_length=2)
    refused = await task_views.load(view.task_id, most=50_000, history_length=3)

    assert [len(tail.view.history) for tail in tails if tail] == [0, 1, 2, 3, 4]
    assert bounded
    assert bounded.view.history == view.history[2:]
    assert bounded.view.artifacts == (artifact("Hi"),)
    assert bounded.is_complete
    assert bounded.size < len(LONG)
    assert refused
    assert not refused.is_complete
    assert refused.size > len(LONG)


@pytest.mark.parametrize("texts", [("short",), ("short", LONG), (LONG, "short"), ()])
async def test_messages_are_read_alike_wherever_they_are_kept(
    task_views: TaskViews, texts: tuple[str, ...]
) -> None:
    """Messages in the view and in the log are read alike, each once, also after a restore."""
    view = await create(task_views, *texts)
    later = said("later")
    await task_views.publish(view.task_id, "run", [status(1, received=(later,))])
    everything = (*view.history, later)

    for history in (view.history, (), everything):
        for length in (None, 0, 1, 2, 9):
            newest = everything if length is None else everything[max(len(everything) - length, 0) :]
            for most in (None, 10_000_000):
                found = await task_views.load(view.task_id, most=most, history_length=length)
                assert found
                assert found.view.history == newest
            page = await task_views.list_tasks(TaskQuery(view.owner, AGENT_ID, with_history=length))
            assert page.views[0].history == newest
        await task_views.restore(view.model_copy(update={"history": history}))
