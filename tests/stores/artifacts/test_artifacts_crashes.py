"""Whatever fails in the middle of a change, it is made or not made, and nothing stays behind for long."""

from dataclasses import replace
from itertools import count
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.cleanup import PENDING_TIME, Cleared
from everloop.stores.artifacts.interface import Append, ArtifactMissingError, Change, Create, Fail, NewPart
from everloop.workflows.contract.artifacts import ArtifactStatus
from tests.stores.artifacts.artifact_benches import ArtifactBench
from tests.stores.artifacts.artifact_faults import (
    apply,
    begin,
    contents,
    each_flush,
    expected_contents,
    housekeep,
    kept_blobs,
    local_bench,
    named_blobs,
    with_blobs,
)
from tests.stores.blobs.failing_blobs import DiedError, FailingBlobs, Moment, away


@pytest.fixture
def bench(own_redis: Redis, request: pytest.FixtureRequest) -> ArtifactBench:
    """A store whose blobs are in a directory, with a Redis of its own."""
    return local_bench(own_redis, request)


@pytest.mark.parametrize("moment", ["before", "after"])
@each_flush
async def test_process_may_die_at_any_blob(bench: ArtifactBench, change: Change, moment: Moment) -> None:
    """Dead before or after any call of the blob store, a change is made and told, or neither.

    An hour later housekeeping has deleted the blobs that nobody names, and no others; and the change, tried
    again, is made once.
    """
    for fatal in count(1):
        bench = replace(bench, context_id=f"owner:{uuid4()}", task_id=f"task-{uuid4()}")
        await begin(bench)
        before = await contents(bench)
        process = with_blobs(bench, FailingBlobs(bench.blobs, fatal, moment))
        try:
            await apply(process, change, "o")
            has_died = False
        except DiedError:
            has_died = True
        told = await bench.told()
        if told == ["0 → 1", "1 → 2"]:
            assert await contents(bench) == before
        else:
            assert told == ["0 → 1", "1 → 2", "2 → 3"]
            assert await contents(bench) == await expected_contents(change)
        await housekeep(bench)
        assert kept_blobs(bench) == await named_blobs(bench)

        await apply(bench, change, "o")
        assert await bench.told() == ["0 → 1", "1 → 2", "2 → 3"]
        assert await contents(bench) == await expected_contents(change)
        assert kept_blobs(bench) == await named_blobs(bench)
        await bench.artifacts.delete_artifact(bench.context_id, "a")
        assert kept_blobs(bench) == set()
        if not has_died:
            assert fatal > 1
            return


@each_flush
async def test_store_that_is_away_changes_nothing(bench: ArtifactBench, change: Change) -> None:
    """When a blob cannot be put, the change fails by that name, and content, version and events stay."""
    await begin(bench)
    before, record = await contents(bench), await bench.record("a")
    process = with_blobs(bench, FailingBlobs(bench.blobs, 1, error=away()))
    with pytest.raises(BlobsUnavailableError):
        await apply(process, change)
    assert await bench.record("a") == record
    assert await contents(bench) == before
    assert await bench.told() == ["0 → 1", "1 → 2"]


async def test_blob_that_cannot_be_deleted_now_is_deleted_later(bench: ArtifactBench) -> None:
    """A change that is made stays so when old blobs cannot be deleted; the housekeeping sees to them."""
    await begin(bench)
    process = with_blobs(bench, FailingBlobs(bench.blobs, 2, error=away()))
    await apply(process, Append(b"1" * 200))
    assert len(kept_blobs(bench)) == 2
    assert (await housekeep(bench, later=PENDING_TIME / 2)).blobs == 0
    assert await housekeep(bench, later=PENDING_TIME / 2) == Cleared(0, 1)
    assert kept_blobs(bench) == await named_blobs(bench)


async def test_process_may_die_while_it_deletes(bench: ArtifactBench) -> None:
    """An artifact whose deletion was cut short is gone; its blobs follow an hour later."""
    assert bench.redis
    await apply(bench, Create("task", (NewPart("file", b"0" * 900), NewPart("file", b"1" * 50))))
    process = with_blobs(bench, FailingBlobs(bench.blobs, 1))
    with pytest.raises(DiedError):
        await process.artifacts.delete_artifact(bench.context_id, "a")
    with pytest.raises(ArtifactMissingError):
        await bench.content("a")
    assert len(kept_blobs(bench)) == 2
    await housekeep(bench)
    assert kept_blobs(bench) == set()
    assert await bench.redis.keys("everloop:*artifact*") == []


async def test_other_writer_comes_between(bench: ArtifactBench) -> None:
    """A writer that finds another's change when its blobs are put begins again from there; both are whole."""
    await begin(bench)

    async def write_between() -> None:
        if blobs.calls == 1:
            await apply(bench, Append(b"2" * 500))

    blobs = FailingBlobs(bench.blobs, pause=write_between)
    await apply(with_blobs(bench, blobs), Append(b"1" * 500))
    assert await contents(bench) == [b"0" * 150 + b"tail" + b"2" * 500 + b"1" * 500]
    assert await bench.told() == ["0 → 1", "1 → 2", "2 → 3", "3 → 4"]
    assert kept_blobs(bench) == await named_blobs(bench)


async def test_other_writer_moves_what_is_read(bench: ArtifactBench) -> None:
    """A writer whose segment another has put anew while it was to be read begins again from there."""
    await begin(bench)
    others = iter([Append(b"2" * 200)])

    async def write_between() -> None:
        for change in others:
            await apply(bench, change)

    blobs = FailingBlobs(bench.blobs, before_get=write_between)
    await apply(with_blobs(bench, blobs), Append(b"1" * 200))
    assert await contents(bench) == [b"0" * 150 + b"tail" + b"2" * 200 + b"1" * 200]
    assert await bench.told() == ["0 → 1", "1 → 2", "2 → 3", "3 → 4"]
    assert kept_blobs(bench) == await named_blobs(bench)


async def test_blobs_that_waited_too_long_are_put_again(bench: ArtifactBench) -> None:
    """A record never names blobs that were put so long ago that they may have been cleared away since."""
    await begin(bench)
    waits = iter([PENDING_TIME])

    async def wait() -> None:
        for time in waits:
            bench.clock.at += time

    await apply(with_blobs(bench, blobs := FailingBlobs(bench.blobs, pause=wait)), Append(b"1" * 200))
    assert blobs.calls == 4  # two puts, and the deletion of the first of them and of the old segment
    assert await contents(bench) == [b"0" * 150 + b"tail" + b"1" * 200]
    assert kept_blobs(bench) == await named_blobs(bench)


async def test_override_leaves_no_tails(bench: ArtifactBench) -> None:
    """Parts that an override has no more leave nothing in Redis behind."""
    assert bench.redis
    parts = tuple(NewPart("file", b"x") for _ in range(3))
    await apply(bench, Create("task", parts))
    await apply(bench, Create("task", parts[:1], override=True))
    assert len(await bench.redis.keys("everloop:artifact-tail:*")) == 1


async def test_deleted_in_between(bench: ArtifactBench) -> None:
    """A writer whose artifact is deleted meanwhile fails by that name and leaves nothing behind."""
    await begin(bench)
    remove = bench.artifacts.delete_artifact
    blobs = FailingBlobs(bench.blobs, pause=lambda: remove(bench.context_id, "a"))
    with pytest.raises(ArtifactMissingError):
        await apply(with_blobs(bench, blobs), Append(b"1" * 500))
    assert kept_blobs(bench) == set()


@pytest.mark.parametrize("way", ["away", "lost"])
async def test_an_artifact_fails_without_its_blobs(bench: ArtifactBench, way: str) -> None:
    """A task has to come to its end, whatever became of the blobs; the content stays as it was."""
    await begin(bench)
    before = await bench.record("a")

    async def fail() -> None:
        raise away()

    if way == "lost":
        for key in kept_blobs(bench):
            await bench.blobs.delete(key)
    other = with_blobs(bench, FailingBlobs(bench.blobs, fatal=1, error=away(), before_get=fail))

    assert (await apply(other, Fail())).status is ArtifactStatus.FAILED
    assert (await bench.record("a")).contents == before.contents
    if way == "away":
        assert await bench.content("a") == b"0" * 150 + b"tail"
