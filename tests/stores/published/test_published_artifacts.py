"""Artifacts as subscribers see them: the store's content, once."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.artifact_errors import ArtifactError
from everloop.stores.artifacts.changes import AddParts, Append, Complete, Replace
from everloop.stores.artifacts.publisher import drafted_version, version_of
from everloop.stores.artifacts.rendering import RENDERED_BYTES
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import MAX_COMPLETE_BYTES
from everloop.workflows.contract.messages import FilePart, StoredPartRef, TextPart
from tests.stores.examples import chunk
from tests.stores.published.artifact_harness import ID, Harness, create, text
from tests.stores.published.artifact_histories import STEPS, Delete, Drafted, NextCall, Step


@pytest.fixture
def harness(redis: Redis) -> Harness:
    return Harness(TaskViews(redis))


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEPS, max_size=9))
async def test_the_fold_of_what_is_told_is_what_the_store_shows(
    redis_url: str, steps: Sequence[Step]
) -> None:
    """The fold of the published events is the store's content, for any calls and earlier drafts."""
    async with connect_redis(redis_url) as redis:
        await follow(Harness(TaskViews(redis)), steps)


async def follow(harness: Harness, steps: Sequence[Step]) -> None:
    """Make these steps, and compare view and store after each."""
    attempt = 0
    for step in [create(text("a")), *steps]:
        match step:
            case NextCall():
                # However a call ends, its drafts are corrected.
                await harness.writer.reconcile(harness.context, ID, drafted_at=harness.reply)
                harness.retry() if step.is_retry else harness.next_call()
            case Drafted():
                attempt += 1
                await harness.draft(*step.chunks(ID, harness.reply, attempt))
            case Delete():
                await harness.artifacts.delete_artifact(harness.context, ID)
            case _:
                with suppress(ArtifactError):
                    await harness.apply(step)
                await harness.writer.reconcile(harness.context, ID, drafted_at=harness.reply)
                if await harness.is_stored():
                    await harness.assert_shown_as_stored()


async def test_each_change_is_published_as_its_version(harness: Harness) -> None:
    """It extends the one before; a replacement, and the end of a small artifact, are published as a whole."""
    await harness.apply(
        create(text("a")), Append(b"b"), Append(b"c"), Replace(0, text("x")), Append(b"y"), Complete()
    )

    published = [
        (c.mode, c.position, c.attempt, c.index, c.part, c.last_chunk) for c in await harness.published()
    ]
    assert published == [
        ("replace", 2, 1, 0, TextPart(text="a"), False),
        ("extend", 2, 2, 0, TextPart(text="b"), False),
        ("extend", 2, 3, 0, TextPart(text="c"), False),
        ("replace", 2, 4, 0, TextPart(text="x"), False),
        ("extend", 2, 5, 0, TextPart(text="y"), False),
        ("replace", 2, 6, 0, TextPart(text="xy"), True),
    ]


@pytest.mark.parametrize(
    ("size", "is_repeated"), [(MAX_COMPLETE_BYTES // 2, True), (MAX_COMPLETE_BYTES, False)]
)
async def test_the_last_chunk_has_all_of_a_small_artifact(
    harness: Harness, size: int, *, is_repeated: bool
) -> None:
    """The last chunk has all of a small artifact, and of a large one its last piece.

    All of it would double the traffic.
    """
    await harness.apply(create(text("x" * size)), AddParts((text("y", "text/x"),), last_chunk=True))

    *_, last = await harness.published()
    assert last.part == TextPart(text="y", media_type="text/x")
    assert last.content == ((TextPart(text="x" * size), last.part) if is_repeated else ())


async def test_text_that_outgrows_the_view_becomes_a_link_once(harness: Harness) -> None:
    """A text that outgrows the view becomes a link once; then only its end is published, with the size."""
    half = b"x" * (RENDERED_BYTES // 2)
    await harness.apply(create(text("a")), Append(half), *[Append(half) for _ in range(5)], Complete())

    link = FilePart(media_type="text/plain", stored=StoredPartRef(artifact_id=ID))
    published = await harness.published()
    assert [(c.mode, c.last_chunk) for c in published[2:]] == [("replace", False), ("replace", True)]
    assert [c.part for c in published[2:]] == [link, link.model_copy(update={"size": 6 * len(half) + 1})]


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("appends", [False, True])
async def test_what_the_model_has_published_is_not_published_again(
    harness: Harness, *, complete: bool, appends: bool
) -> None:
    """Only an empty extension follows, which fences late chunks of the draft, or the end with all of it."""
    base, base_version = None, ""
    if appends:
        await harness.apply(create(text("a")))
        base = await harness.artifacts.get_artifact(harness.context, ID)
        base_version = version_of(base)
        harness.next_call()
    before = len(await harness.published())
    first = chunk("a", artifact_id=ID, position=harness.reply, mode="extend" if appends else "draft")
    last = chunk("b", artifact_id=ID, position=harness.reply, index=1, mode=first.mode)
    version = drafted_version("{}", base)
    await harness.draft(
        first.model_copy(update={"base": base_version}), last.model_copy(update={"version": version})
    )
    harness.writer = replace(harness.writer, arguments="{}")
    await harness.apply(
        Append(b"ab", last_chunk=complete) if appends else create(text("ab"), complete=complete)
    )
    await harness.draft(chunk("x", artifact_id=ID, position=harness.reply, index=2))

    published = [(c.mode, c.index, c.part, c.last_chunk) for c in await harness.published()]
    whole = TextPart(text="aab" if appends else "ab")
    confirmed = ("replace", 0, whole, True) if complete else ("extend", 0, TextPart(text=""), False)
    assert published[before + 2 :] == [confirmed]
    await harness.assert_shown_as_stored()


async def test_a_draft_of_anything_else_is_replaced(harness: Harness) -> None:
    """Plugins may have changed the arguments, or the model call has not come to its end."""
    for version in ("", drafted_version("other", None)):
        harness.next_call()
        draft = chunk("ab", artifact_id=ID, position=harness.reply)
        await harness.draft(draft.model_copy(update={"version": version}))
        harness.writer = replace(harness.writer, arguments="{}")
        await harness.apply(create(text("ac")))
        await harness.assert_shown_as_stored()
