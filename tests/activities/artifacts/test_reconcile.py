"""Reconciliation of artifacts at the end of a reply: after any loss, the fold has one complete content."""

from hypothesis import given
from hypothesis import strategies as st

from everloop.stores.artifacts.changes import Complete
from everloop.workflows.contract.events import ArtifactChunk
from everloop.workflows.contract.messages import FilePart
from tests.support.rigs.artifacts.drafting import CONTEXT, POSITION, TASK, Publish, Reader, update

CONTENT = st.one_of(st.text(), st.text('aé\n"\\😀\u2028'))
STEPS = st.lists(st.tuples(st.integers(1, 12), st.sampled_from(Publish)), max_size=15)


@given(CONTENT, st.booleans(), st.lists(STEPS, min_size=1, max_size=3), st.sampled_from(Publish))
async def test_a_whole_reply_leaves_the_whole_content(
    text: str, appends: object, attempts: list[list[tuple[int, Publish]]], last: Publish
) -> None:
    """A complete reply leaves the complete content after lost publishes, unseen effects and dead attempts."""
    reader = Reader()
    base = "base. " if appends else None
    await reader.begin(base)
    call = update({"text": text}, append=bool(appends))
    attempt = reader.attempt()
    for number, steps in enumerate(attempts, 1):
        attempt, written = reader.attempt(number), 0
        for length, how in steps:
            await attempt.write(call, call.arguments[written : written + 10 * length], how)
            written += 10 * length
            assert ((base or "") + text).startswith(await reader.text() or "")
    await attempt.end(call, how=last)

    assert await reader.text() == (base or "") + text
    shown = await reader.shown()
    assert shown
    assert (shown.name, shown.complete) == ("Doc", False)


@given(CONTENT, st.booleans(), STEPS)
async def test_a_call_that_failed_for_good_leaves_what_is_stored(
    text: str, appends: object, steps: list[tuple[int, Publish]]
) -> None:
    """Appends of a call that failed for good are taken back; an artifact that was never created is empty."""
    reader = Reader()
    await reader.begin("base. " if appends else None)
    call = update({"text": text}, append=bool(appends))
    attempt, written = reader.attempt(), 0
    for length, how in steps:
        await attempt.write(call, call.arguments[written : written + 10 * length], how)
        written += 10 * length
    await attempt.fail()

    assert await reader.text() in (["base. "] if appends else ["", None])


async def test_what_another_attempt_showed_is_taken_back() -> None:
    """Drafts of another attempt's reply are found in the view and taken back."""
    reader = Reader()
    await reader.begin("base")
    for artifact_id in ("doc", "new"):
        call = update({"text": "lost"}, append=artifact_id == "doc", artifact_id=artifact_id)
        await reader.attempt(1).write(call, call.arguments)
    assert (await reader.text("doc"), await reader.text("new")) == ("baselost", "lost")
    await reader.attempt(2).end(update({"text": "found"}, artifact_id="other"))
    assert [await reader.text(each) for each in ("doc", "new", "other")] == ["base", "", "found"]


async def test_an_overwritten_artifact_comes_back() -> None:
    """A complete artifact that a failed call was about to replace is shown again from the store."""
    reader = Reader()
    await reader.begin("old")
    await reader.artifacts.apply(CONTEXT, "doc", Complete())
    attempt, call = reader.attempt(), update({"text": "new"})
    await attempt.write(call, call.arguments)
    assert await reader.text() == "new"
    await attempt.fail()

    shown = await reader.shown()
    assert shown
    assert (await reader.text(), shown.complete) == ("old", True)

    await reader.attempt(2).end(update({"text": "old"}))

    shown = await reader.shown()
    assert shown
    assert not shown.complete


async def test_a_reply_whose_call_has_run_is_left_alone() -> None:
    """A late attempt leaves artifacts alone that the reply's tool has published since."""
    reader = Reader()
    await reader.begin("base and more")
    ran = ArtifactChunk(
        artifact_id="doc",
        mode="replace",
        position=POSITION + 1,
        attempt=1,
        index=0,
        part=FilePart(),
        last_chunk=True,
    )
    await reader.views.publish(TASK.task_id, TASK.run_id, [ran])
    await reader.attempt(2).end(update({"text": " and more"}, append=True))

    shown = await reader.shown()
    assert shown
    assert shown.parts == (FilePart(),)
    assert shown.complete
