"""Views and streams: the rules of the fold, and what create, restore and load promise."""

import pytest
from pydantic import JsonValue

from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import TaskCreated, TaskEvent, Warned
from everloop.workflows.contract.messages import AgentMessage, TextPart
from everloop.workflows.contract.tasks import Route, TaskState, TaskStatus
from tests.stores.examples import (
    artifact,
    asked,
    at,
    chunk,
    new_id,
    said,
    status,
    stream_of,
    submitted,
    told,
    view_of,
)


async def test_a_created_task_is_loaded_as_it_was_created(task_views: TaskViews) -> None:
    """`load` returns what `create` wrote, and the position of the event that tells of it."""
    view = submitted()

    await task_views.create(view)

    snapshot = await task_views.load(view.task_id)
    assert snapshot
    assert snapshot.view == view
    assert await task_views.read({view.task_id: snapshot.position}, wait=0) == []
    assert await stream_of(task_views, view.task_id) == [TaskCreated()]


async def test_an_unknown_task_has_no_view(task_views: TaskViews) -> None:
    """`load` of a task that nobody wrote returns None."""
    assert await task_views.load(new_id()) is None


async def test_an_answer_without_a_task_is_kept(task_views: TaskViews) -> None:
    """What became of a message that has no task is no view, and is kept as long as one."""
    task_id = new_id()
    route = Route(message=AgentMessage(message_id="a", parts=(TextPart(text="Four."),)), digest="d")
    assert await task_views.route(task_id) is None

    await task_views.keep_route(task_id, route)

    assert await task_views.route(task_id) == route
    assert await task_views.load(task_id) is None


async def test_creating_twice_changes_nothing(task_views: TaskViews) -> None:
    """A second `create` neither publishes nor sets the status back."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "run", [status(1)])

    await task_views.create(view)

    assert (await view_of(task_views, view.task_id)).status.state is TaskState.WORKING
    assert await stream_of(task_views, view.task_id) == [TaskCreated(), status(1)]


async def test_a_worker_may_publish_before_the_task_is_created(task_views: TaskViews) -> None:
    """The view is None until `create` fills the static part; what was published before stays."""
    view = submitted()
    await task_views.publish(view.task_id, "run", [status(1, received=(said("m2"),)), chunk("Hi")])
    assert await task_views.load(view.task_id) is None

    await task_views.create(view)

    assert await view_of(task_views, view.task_id) == view.model_copy(
        update={
            "run_id": "run",
            "version": 1,
            "status": TaskStatus(state=TaskState.WORKING, at=at(1)),
            "history": (said("m1"), said("m2")),
            "artifacts": (artifact("Hi", complete=False),),
        }
    )


@pytest.mark.parametrize(
    ("second", "applies"),
    [
        (status(3), True),
        (status(2, step=1), True),
        (status(2), False),
        (status(1, step=5), False),
        (status(2, TaskState.FAILED), False),
    ],
)
async def test_a_status_applies_when_its_version_and_step_are_greater(
    task_views: TaskViews, second: TaskEvent, *, applies: bool
) -> None:
    """A status that is not newer is dropped and does not reach the stream."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "run", [status(2)])

    await task_views.publish(view.task_id, "run", [second])

    events = await stream_of(task_views, view.task_id)
    assert events == [TaskCreated(), status(2), *([second] if applies else [])]


async def test_a_passing_note_leaves_no_trace(task_views: TaskViews) -> None:
    """The message of a status stays in the history once it is replaced; a note of an activity does not."""
    view = submitted()
    await task_views.create(view)

    asked = status(1, TaskState.INPUT_REQUIRED, message=told("question"), received=(said("m2"),))
    notes = [status(1, step=step, message=told(f"wait-{step}")) for step in (1, 2)]
    await task_views.publish(view.task_id, "run", [asked, *notes, status(2)])

    now = await view_of(task_views, view.task_id)
    assert now.status.message is None
    assert now.history == (said("m1"), said("m2"), told("question"))


async def test_a_new_run_takes_over_for_good(task_views: TaskViews) -> None:
    """A new run starts its versions again; nothing of an overtaken run passes any more."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "first", [status(7, TaskState.FAILED), chunk("old", last=True)])

    await task_views.publish(view.task_id, "second", [status(2), chunk("new")])
    await task_views.publish(view.task_id, "first", [status(8), chunk("x", position=9), Warned(text="late")])

    now = await view_of(task_views, view.task_id)
    assert (now.run_id, now.version, now.status.state) == ("second", 2, TaskState.WORKING)
    assert now.artifacts == (artifact("new", complete=False),)
    assert (await stream_of(task_views, view.task_id))[3:] == [status(2), chunk("new")]


async def test_a_run_takes_over_even_with_an_event_that_is_dropped(task_views: TaskViews) -> None:
    """Any event shows that its run exists, and so overtakes the run before."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "first", [status(1)])

    await task_views.publish(view.task_id, "second", [chunk("lost its beginning", index=3)])
    await task_views.publish(view.task_id, "first", [status(2)])

    assert await stream_of(task_views, view.task_id) == [TaskCreated(), status(1)]
    assert (await view_of(task_views, view.task_id)).run_id == "first"


async def test_history_gets_the_replaced_message_then_the_received_ones_once(task_views: TaskViews) -> None:
    """A status hands the message of the one before and what it received to the history, each id once."""
    view = submitted()
    await task_views.create(view)

    await task_views.publish(
        view.task_id,
        "run",
        [
            status(1, received=(said("m1"), said("m2"))),
            status(2, message=told("question")),
            status(3, received=(said("m3"), said("m3"))),
            status(4, message=told("question")),
            status(5, message=told("current")),
        ],
    )

    history = (await view_of(task_views, view.task_id)).history
    assert history == (said("m1"), said("m2"), told("question"), said("m3"))


async def test_other_events_pass_without_changing_the_view(task_views: TaskViews) -> None:
    """What is neither a status nor a chunk stands in the stream only."""
    view = submitted()
    await task_views.create(view)

    await task_views.publish(view.task_id, "run", [Warned(text="a"), Warned(text="a")])
    await task_views.publish(view.task_id, "run", [])

    assert await view_of(task_views, view.task_id) == view
    assert await stream_of(task_views, view.task_id) == [TaskCreated(), Warned(text="a"), Warned(text="a")]


async def test_questions_and_usage_are_part_of_the_status(task_views: TaskViews) -> None:
    """What a task asks and what it has used come with the view, and go with the next status."""
    view = submitted()
    await task_views.create(view)
    usage: dict[str, JsonValue] = {"usage": {"input_tokens": 3, "output_tokens": 4, "cost": 0.25}}
    asking = status(1, TaskState.INPUT_REQUIRED, questions=(asked("c1"), asked("c2")), metadata=usage)
    await task_views.publish(view.task_id, "run", [asking])
    waiting = (await view_of(task_views, view.task_id)).status
    await task_views.publish(view.task_id, "run", [status(2)])

    assert (waiting.questions, waiting.metadata) == ((asked("c1"), asked("c2")), usage)
    assert (await view_of(task_views, view.task_id)).status == TaskStatus(state=TaskState.WORKING, at=at(2))


async def test_publishing_tells_which_states_the_task_took(task_views: TaskViews) -> None:
    """Each once: not what is repeated, came too late, says more of the same, or is of an overtaken run."""
    view = submitted()
    await task_views.create(view)
    first, more, asks = status(1), status(1, step=1), status(2, TaskState.INPUT_REQUIRED)
    new_run = status(3, TaskState.COMPLETED, seconds=100)

    taken = [
        await task_views.publish(view.task_id, run_id, events)
        for run_id, events in [
            ("run", [first, chunk("Hi")]),
            ("run", [first, more]),
            ("run", [more, asks, status(3)]),
            ("new run", [new_run]),
            ("run", [status(9)]),
            ("new run", []),
        ]
    ]

    assert [list(states) for states in taken] == [
        [TaskState.WORKING],
        [],
        [TaskState.INPUT_REQUIRED, TaskState.WORKING],
        [TaskState.COMPLETED],
        [],
        [],
    ]
    assert (await view_of(task_views, view.task_id)).status.state is TaskState.COMPLETED
