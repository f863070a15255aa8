"""Views and streams: the rules of the fold, and what create, restore and load promise."""

import pytest
from pydantic import JsonValue

from stores.task_views import TaskViews
from tests.stores.examples import (
    artifact,
    asked,
    at,
    chunk,
    data,
    new_id,
    said,
    status,
    stream_of,
    submitted,
    told,
    view_of,
)
from workflows.contract.events import FINAL_ATTEMPT, ArtifactChunk, TaskCreated, TaskEvent, Warned
from workflows.contract.messages import DataPart, TextPart
from workflows.contract.tasks import TaskState, TaskStatus


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


DRAFTS = {
    "chunks append in order": ([chunk("a"), chunk("b", index=1)], "ab", 2),
    "a repeated chunk is dropped": ([chunk("a"), chunk("a"), chunk("b", index=1)], "ab", 2),
    "a gap is dropped": ([chunk("a"), chunk("c", index=2)], "a", 1),
    "a draft needs its beginning": ([chunk("b", index=1)], None, 0),
    "a later attempt replaces": ([chunk("a"), chunk("b", index=1), chunk("c", attempt=2)], "c", 3),
    "an earlier attempt is dropped": ([chunk("a", attempt=2), chunk("b"), chunk("c", index=1)], "a", 1),
    "a later position replaces": ([chunk("a", attempt=3), chunk("b", position=2)], "b", 2),
    "an earlier position is dropped": ([chunk("a", position=2), chunk("b", position=1, attempt=9)], "a", 1),
    "a later position replaces what was complete": ([chunk("a", last=True), chunk("b", position=2)], "b", 2),
    "a complete position stays": ([chunk("a", last=True), chunk("b", attempt=FINAL_ATTEMPT)], "a", 1),
    "a complete draft takes no more": ([chunk("a", last=True), chunk("b", index=1)], "a", 1),
    "the workflow completes a draft": (
        [chunk("a"), chunk("abc", attempt=FINAL_ATTEMPT, last=True)],
        "abc",
        2,
    ),
    "an empty chunk may complete": ([chunk("a"), chunk("", index=1, last=True)], "a", 2),
}


@pytest.mark.parametrize(("chunks", "text", "accepted"), DRAFTS.values(), ids=DRAFTS.keys())
async def test_a_draft_is_ordered_by_position_and_attempt(
    task_views: TaskViews, chunks: list[ArtifactChunk], text: str | None, accepted: int
) -> None:
    """A chunk continues the current draft, replaces it with a newer one, or is dropped."""
    view = submitted()
    await task_views.create(view)

    for each in chunks:
        await task_views.publish(view.task_id, "run", [each])

    artifacts = (await view_of(task_views, view.task_id)).artifacts
    assert [part.parts for part in artifacts] == ([] if text is None else [(TextPart(text=text),)])
    assert len(await stream_of(task_views, view.task_id)) == 1 + accepted


async def test_texts_join_and_data_stands_alone(task_views: TaskViews) -> None:
    """Texts in a row become one part, each data part is one of its own, and artifacts keep their order."""
    view = submitted()
    await task_views.create(view)
    parts = [TextPart(text="a"), TextPart(text="b"), data(x="1"), data(x="2"), TextPart(text="c")]
    chunks = [chunk("", index=n, part=part, artifact_id="report") for n, part in enumerate(parts)]

    await task_views.publish(view.task_id, "run", [chunk("z", artifact_id="zero"), *chunks])
    await task_views.publish(view.task_id, "run", [chunk("again", artifact_id="zero", attempt=2)])

    zero, report = (await view_of(task_views, view.task_id)).artifacts
    assert zero == artifact("again", complete=False, artifact_id="zero")
    assert report.parts == (TextPart(text="ab"), data(x="1"), data(x="2"), TextPart(text="c"))


async def test_content_comes_back_exactly(task_views: TaskViews) -> None:
    """No character, number or empty collection is changed on its way through the store."""
    view = submitted()
    await task_views.create(view)
    odd = DataPart(data={"empty": [], "none": {}, "big": 2**63, "float": 0.1, "null": None, "/": "\x00\x7f"})
    text = 'quotes " \\ / \x00 \x1b é 漢 🙂 \u2028'
    chunks = [chunk(text, index=n, artifact_id="a:b:🙂") for n in range(2)]

    await task_views.publish(
        view.task_id, "run", [*chunks, chunk("", index=2, artifact_id="a:b:🙂", part=odd)]
    )

    (found,) = (await view_of(task_views, view.task_id)).artifacts
    assert found.artifact_id == "a:b:🙂"
    assert found.parts == (TextPart(text=text * 2), odd)
    assert (await stream_of(task_views, view.task_id))[1:3] == chunks


async def test_a_long_text_keeps_every_chunk_in_order(task_views: TaskViews) -> None:
    """A text of many chunks, longer than any block it is stored in, is read back whole."""
    view = submitted()
    await task_views.create(view)
    words = [f"wörd {n} " for n in range(2_000)]

    await task_views.publish(view.task_id, "run", [chunk(word, index=n) for n, word in enumerate(words)])
    assert (await view_of(task_views, view.task_id)).artifacts == (artifact("".join(words), complete=False),)

    await task_views.publish(view.task_id, "run", [chunk("short", attempt=2, last=True)])
    assert (await view_of(task_views, view.task_id)).artifacts == (artifact("short"),)


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


@pytest.mark.parametrize("state", TaskState)
async def test_a_task_that_ends_badly_fails_its_drafts(task_views: TaskViews, state: TaskState) -> None:
    """Failed, canceled and rejected mark what is not complete; nothing continues such a draft any more."""
    view = submitted()
    await task_views.create(view)
    drafts = [chunk("whole", artifact_id="log", last=True), chunk("ha")]
    ends_badly = state in {TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}

    await task_views.publish(view.task_id, "run", [*drafts, status(1, state)])
    await task_views.publish(view.task_id, "run", [chunk("lf", index=1, last=True)])

    assert (await view_of(task_views, view.task_id)).artifacts == (
        artifact("whole", artifact_id="log"),
        artifact("ha", complete=False, failed=True) if ends_badly else artifact("half"),
    )
    assert len(await stream_of(task_views, view.task_id)) == 5 - ends_badly


@pytest.mark.parametrize(("run_id", "attempt"), [("run", 2), ("after a Reset", 1)])
async def test_a_newer_draft_takes_the_place_of_a_failed_one(
    task_views: TaskViews, run_id: str, attempt: int
) -> None:
    """A task that an operator resets shows the new draft, which has not failed."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "run", [chunk("old"), status(1, TaskState.FAILED)])

    await task_views.publish(view.task_id, run_id, [status(2), chunk("new", attempt=attempt)])

    assert (await view_of(task_views, view.task_id)).artifacts == (artifact("new", complete=False),)


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
