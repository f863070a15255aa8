"""Drafts of artifacts: which chunks belong to them, and what they come to."""

import pytest

from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import FINAL_ATTEMPT, ArtifactChunk
from everloop.workflows.contract.messages import DataPart, FilePart, Part, StoredPart, TextPart
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import artifact, chunk, data, status, stream_of, submitted, view_of

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
    "an extension keeps what stands there": ([chunk("a"), chunk("b", position=1, mode="extend")], "ab", 2),
    "an extension is continued": (
        [chunk("a"), chunk("b", position=1, mode="extend"), chunk("c", position=1, index=1)],
        "abc",
        3,
    ),
    "an extension of a later attempt": ([chunk("a"), chunk("b", attempt=2, mode="extend")], "ab", 2),
    "an extension that is repeated is dropped": (
        [chunk("a"), chunk("b", attempt=2, mode="extend"), chunk("b", attempt=2, mode="extend")],
        "ab",
        2,
    ),
    "what was extended is not continued": (
        [chunk("a"), chunk("b", attempt=2, mode="extend"), chunk("x", index=1)],
        "ab",
        2,
    ),
    "an extension needs something to extend": ([chunk("a", mode="extend")], None, 0),
    "what is complete is not extended": (
        [chunk("a", last=True), chunk("b", position=1, mode="extend")],
        "a",
        1,
    ),
    "a later attempt replaces also what is complete": (
        [chunk("a", last=True), chunk("b", attempt=2, mode="replace")],
        "b",
        2,
    ),
    "an earlier attempt replaces nothing": ([chunk("a", attempt=2), chunk("b", mode="replace")], "a", 1),
    "a draft that failed takes no more": (
        [chunk("a"), chunk("", index=1, failed=True), chunk("b", index=2)],
        "a",
        2,
    ),
    "what failed is not extended": (
        [chunk("a", failed=True), chunk("b", position=1, mode="extend")],
        "a",
        1,
    ),
    "a newer draft has not failed": ([chunk("a", failed=True), chunk("b", attempt=2)], "b", 2),
    "an empty extension may complete": (
        [chunk("a"), chunk("", position=1, mode="extend", last=True)],
        "a",
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


NOTES = TextPart(text="a", media_type="text/markdown", filename="notes.md")
LOG = FilePart(filename="log.txt", size=3, stored=StoredPart(artifact_id="x", index=2))
PARTS: dict[str, tuple[list[Part], tuple[Part, ...]]] = {
    "a text with a name begins a part": ([TextPart(text="b"), NOTES], (TextPart(text="b"), NOTES)),
    "a plain text continues it": (
        [NOTES, TextPart(text="b"), TextPart(text="c")],
        (NOTES.model_copy(update={"text": "abc"}),),
    ),
    "a file stands alone": ([LOG, LOG, TextPart(text="b")], (LOG, LOG, TextPart(text="b"))),
    "an empty text adds nothing": ([LOG, TextPart(text="")], (LOG,)),
    "an empty text with a name is a part": (
        [LOG, NOTES.model_copy(update={"text": ""})],
        (LOG, NOTES.model_copy(update={"text": ""})),
    ),
}


@pytest.mark.parametrize(("chunks", "parts"), PARTS.values(), ids=PARTS.keys())
async def test_chunks_come_to_parts(
    task_views: TaskViews, chunks: list[Part], parts: tuple[Part, ...]
) -> None:
    """What has a media type, a file name or a content of its own is a part; plain text continues a text."""
    view = submitted()
    await task_views.create(view)

    await task_views.publish(view.task_id, "run", [chunk("", index=n, part=p) for n, p in enumerate(chunks)])

    (found,) = (await view_of(task_views, view.task_id)).artifacts
    assert found.parts == parts


async def test_one_artifact_is_read_by_itself(task_views: TaskViews) -> None:
    """A writer sees what subscribers were shown of its artifact, and from which position."""
    view = submitted()
    await task_views.create(view)
    described = chunk("a", position=3).model_copy(update={"description": "what it is"})
    await task_views.publish(view.task_id, "run", [chunk("x", artifact_id="other"), described])
    await task_views.publish(view.task_id, "run", [chunk("b", position=3, index=1, last=True)])

    shown = await task_views.artifact(view.task_id, "response")

    assert shown
    assert (shown.position, shown.attempt) == (3, 1)
    assert shown.artifact == artifact("ab").model_copy(update={"description": "what it is"})
    assert shown.artifact in (await view_of(task_views, view.task_id)).artifacts
    assert await task_views.artifact(view.task_id, "unknown") is None
    assert await task_views.artifact("unknown", "response") is None


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
