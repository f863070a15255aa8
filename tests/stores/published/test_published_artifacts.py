"""What subscribers are shown of artifacts: what the store holds, once."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.changes import AddParts, Append, Complete, Replace
from everloop.stores.artifacts.errors import ArtifactError
from everloop.stores.artifacts.rendering import RENDERED_BYTES
from everloop.stores.log.store import TaskViews
from everloop.workflows.contract.events import MAX_WHOLE_BYTES
from everloop.workflows.contract.messages import FilePart, StoredPart, TextPart
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
    """Whatever calls do in whatever order, and whatever models have shown before."""
    async with connect_redis(redis_url) as redis:
        await follow(Harness(TaskViews(redis)), steps)


async def follow(harness: Harness, steps: Sequence[Step]) -> None:
    """Take these steps; compare view and store after each."""
    attempt = 0
    for step in [create(text("a")), *steps]:
        match step:
            case NextCall():
                # However a call has ended, what was shown of it is put right.
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


async def test_what_one_writer_appends_is_one_draft(harness: Harness) -> None:
    """Position of the result, attempt by version, index by index; only a replacement begins a new attempt."""
    await harness.apply(
        create(text("a")), Append(b"b"), Append(b"c"), Replace(0, text("x")), Append(b"y"), Complete()
    )

    published = [
        (c.mode, c.position, c.attempt, c.index, c.part, c.last_chunk) for c in await harness.published()
    ]
    assert published == [
        ("replace", 2, 1, 0, TextPart(text="a"), False),
        ("extend", 2, 1, 1, TextPart(text="b"), False),
        ("extend", 2, 1, 2, TextPart(text="c"), False),
        ("replace", 2, 4, 0, TextPart(text="x"), False),
        ("extend", 2, 4, 1, TextPart(text="y"), False),
        ("extend", 2, 4, 2, TextPart(text=""), True),
    ]


@pytest.mark.parametrize(("size", "is_repeated"), [(MAX_WHOLE_BYTES // 2, True), (MAX_WHOLE_BYTES, False)])
async def test_the_last_chunk_has_all_of_a_small_artifact(
    harness: Harness, size: int, *, is_repeated: bool
) -> None:
    """A large one ends with its last piece: it would cost its length twice on every connection."""
    await harness.apply(create(text("x" * size)), AddParts((text("y", "text/x"),), last_chunk=True))

    *_, last = await harness.published()
    assert last.part == TextPart(text="y", media_type="text/x")
    assert last.content == ((TextPart(text="x" * size), last.part) if is_repeated else ())


async def test_text_that_outgrows_the_view_becomes_a_link_once(harness: Harness) -> None:
    """From then on nothing is published but the end, with the size."""
    half = b"x" * (RENDERED_BYTES // 2)
    await harness.apply(create(text("a")), Append(half), *[Append(half) for _ in range(5)], Complete())

    link = FilePart(media_type="text/plain", stored=StoredPart(artifact_id=ID))
    published = await harness.published()
    assert [(c.mode, c.last_chunk) for c in published[2:]] == [("replace", False), ("replace", True)]
    assert [c.part for c in published[2:]] == [link, link.model_copy(update={"size": 6 * len(half) + 1})]


@pytest.mark.parametrize("complete", [False, True])
async def test_what_the_model_has_shown_is_not_told_again(harness: Harness, *, complete: bool) -> None:
    """Only an empty extension follows, which fences late chunks of the draft."""
    await harness.draft(
        chunk("a", artifact_id=ID, position=1), chunk("b", artifact_id=ID, position=1, index=1)
    )
    await harness.apply(create(text("ab"), complete=complete))
    await harness.draft(chunk("x", artifact_id=ID, position=1, index=2))

    published = [(c.mode, c.position, c.index, c.part, c.last_chunk) for c in await harness.published()]
    assert published[2:] == [("extend", 2, 0, TextPart(text=""), complete)]
    await harness.assert_shown_as_stored()
