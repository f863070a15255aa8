"""Whatever fails in the middle of a change, it is made or not made, and nothing stays behind for long."""

from dataclasses import replace
from itertools import count
from uuid import uuid4

import pytest

from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.blobs import PENDING_TIME
from everloop.stores.artifacts.changes import Append, Change, Create, Fail, NewPart
from everloop.stores.artifacts.errors import ArtifactMissingError
from everloop.workflows.contract.artifacts import ArtifactStatus
from tests.stores.artifacts.artifact_failures import (
    apply,
    begin,
    contents,
    each_flush,
    expected_contents,
    housekeep,
    kept_blobs,
    named_blobs,
    with_blobs,
)
from tests.stores.artifacts.artifact_rig import ArtifactRig
from tests.stores.blobs.failing_blobs import DiedError, FailingBlobs, Moment, away


@pytest.mark.parametrize("moment", ["before", "after"])
@each_flush
async def test_process_may_die_at_any_blob(rig: ArtifactRig, change: Change, moment: Moment) -> None:
    """Dead before or after any call of the blob store, a change is made and published, or neither.

    An hour later housekeeping has deleted the blobs that nobody names, and no others; and the change, tried
    again, is made once.
    """
    for fatal in count(1):
        rig = replace(rig, context_id=f"owner:{uuid4()}", task_id=f"task-{uuid4()}")
        await begin(rig)
        before = await contents(rig)
        process = with_blobs(rig, FailingBlobs(rig.blobs, fatal, moment))
        try:
            await apply(process, change, "o")
            has_died = False
        except DiedError:
            has_died = True
        published = await rig.published()
        if published == ["0 → 1", "1 → 2"]:
            assert await contents(rig) == before
        else:
            assert published == ["0 → 1", "1 → 2", "2 → 3"]
            assert await contents(rig) == await expected_contents(change)
        await housekeep(rig)
        assert kept_blobs(rig) == await named_blobs(rig)

        await apply(rig, change, "o")
        assert await rig.published() == ["0 → 1", "1 → 2", "2 → 3"]
        assert await contents(rig) == await expected_contents(change)
        assert kept_blobs(rig) == await named_blobs(rig)
        await rig.artifacts.delete_artifact(rig.context_id, "a")
        assert kept_blobs(rig) == set()
        if not has_died:
            assert fatal > 1
            return


@each_flush
async def test_store_that_is_away_changes_nothing(rig: ArtifactRig, change: Change) -> None:
    """When a blob cannot be put, the change fails by that name, and content, version and events stay."""
    await begin(rig)
    before, record = await contents(rig), await rig.record("a")
    process = with_blobs(rig, FailingBlobs(rig.blobs, 1, error=away()))
    with pytest.raises(BlobsUnavailableError):
        await apply(process, change)
    assert await rig.record("a") == record
    assert await contents(rig) == before
    assert await rig.published() == ["0 → 1", "1 → 2"]


async def test_blob_that_cannot_be_deleted_now_is_deleted_later(rig: ArtifactRig) -> None:
    """A change that is made stays so when old blobs cannot be deleted; the housekeeping sees to them."""
    await begin(rig)
    process = with_blobs(rig, FailingBlobs(rig.blobs, 2, error=away()))
    await apply(process, Append(b"1" * 200))
    assert len(kept_blobs(rig)) == 2
    assert (await housekeep(rig, later=PENDING_TIME / 2))[1] == 0
    assert await housekeep(rig, later=PENDING_TIME / 2) == (0, 1)
    assert kept_blobs(rig) == await named_blobs(rig)


async def test_process_may_die_while_it_deletes(rig: ArtifactRig) -> None:
    """An artifact whose deletion was cut short is gone; its blobs follow an hour later."""
    assert rig.redis
    await apply(rig, Create("task", (NewPart("file", b"0" * 900), NewPart("file", b"1" * 50))))
    process = with_blobs(rig, FailingBlobs(rig.blobs, 1))
    with pytest.raises(DiedError):
        await process.artifacts.delete_artifact(rig.context_id, "a")
    with pytest.raises(ArtifactMissingError):
        await rig.content("a")
    assert len(kept_blobs(rig)) == 2
    await housekeep(rig)
    assert kept_blobs(rig) == set()
    assert await rig.redis.keys("everloop:*artifact*") == []


@pytest.mark.parametrize("moment", ["pause", "before_get"])
async def test_other_writer_comes_between(rig: ArtifactRig, moment: str) -> None:
    """A writer that finds another's change when its blobs are put, or read, begins again from there."""
    await begin(rig)
    others = iter([Append(b"2" * 500)])

    async def write_between() -> None:
        for change in others:
            await apply(rig, change)

    blobs = FailingBlobs(rig.blobs)
    setattr(blobs, moment, write_between)
    await apply(with_blobs(rig, blobs), Append(b"1" * 200))
    assert await contents(rig) == [b"0" * 150 + b"tail" + b"2" * 500 + b"1" * 200]
    assert await rig.published() == ["0 → 1", "1 → 2", "2 → 3", "3 → 4"]
    assert kept_blobs(rig) == await named_blobs(rig)


async def test_blobs_that_waited_too_long_are_put_again(rig: ArtifactRig) -> None:
    """A record never names blobs that were put so long ago that they may have been cleared away since."""
    await begin(rig)
    waits = iter([PENDING_TIME])

    async def wait() -> None:
        for time in waits:
            rig.clock.at += time

    await apply(with_blobs(rig, blobs := FailingBlobs(rig.blobs, pause=wait)), Append(b"1" * 200))
    assert blobs.calls == 4  # two puts, and the deletion of the first of them and of the old segment
    assert await contents(rig) == [b"0" * 150 + b"tail" + b"1" * 200]
    assert kept_blobs(rig) == await named_blobs(rig)


async def test_deleted_in_between(rig: ArtifactRig) -> None:
    """A writer whose artifact is deleted meanwhile fails by that name and leaves nothing behind."""
    await begin(rig)
    remove = rig.artifacts.delete_artifact
    blobs = FailingBlobs(rig.blobs, pause=lambda: remove(rig.context_id, "a"))
    with pytest.raises(ArtifactMissingError):
        await apply(with_blobs(rig, blobs), Append(b"1" * 500))
    assert kept_blobs(rig) == set()


@pytest.mark.parametrize("way", ["away", "lost"])
async def test_an_artifact_fails_without_its_blobs(rig: ArtifactRig, way: str) -> None:
    """A task has to come to its end, whatever became of the blobs; the content stays as it was."""
    await begin(rig)
    before = await rig.record("a")

    async def fail() -> None:
        raise away()

    if way == "lost":
        for key in kept_blobs(rig):
            await rig.blobs.delete(key)
    other = with_blobs(rig, FailingBlobs(rig.blobs, fatal=1, error=away(), before_get=fail))

    assert (await apply(other, Fail())).status is ArtifactStatus.FAILED
    assert (await rig.record("a")).contents == before.contents
    if way == "away":
        assert await rig.content("a") == b"0" * 150 + b"tail"
