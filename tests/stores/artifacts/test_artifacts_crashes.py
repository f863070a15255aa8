"""Changes that fail in the middle: made completely or not at all, and without lasting remains."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from itertools import count
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.local.servers import LOOPBACK
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.artifact_blobs import PENDING_TIME
from everloop.stores.artifacts.artifact_errors import ArtifactMissingError
from everloop.stores.artifacts.changes import Append, Change, Create, Fail, NewPart, Replace
from everloop.workflows.contract.artifacts import ArtifactStatus
from tests.stores.artifacts.artifact_failures import (
    apply,
    begin,
    contents,
    each_change,
    each_flush,
    expected_contents,
    housekeep,
    kept_blobs,
    named_blobs,
    with_blobs,
)
from tests.stores.artifacts.artifact_rig import ArtifactRig, redis_artifacts
from tests.stores.blobs.failing_blobs import DiedError, FailingBlobs, Moment, away


@pytest.mark.parametrize("moment", ["before", "after"])
@each_flush
async def test_process_may_die_at_any_blob(rig: ArtifactRig, change: Change, moment: Moment) -> None:
    """Dead before or after any call of the blob store, a change is made, or not.

    An hour later the housekeeping has deleted the unreferenced blobs and no others. The change, tried again,
    is made once.
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
        if await rig.version() == 2:
            assert await contents(rig) == before
        else:
            assert await rig.version() == 3
            assert await contents(rig) == expected_contents(change)
        await housekeep(rig)
        assert kept_blobs(rig) == await named_blobs(rig)

        await apply(rig, change, "o")
        assert await rig.version() == 3
        assert await contents(rig) == expected_contents(change)
        assert kept_blobs(rig) == await named_blobs(rig)
        await rig.artifacts.delete_artifact(rig.context_id, "a")
        assert kept_blobs(rig) == set()
        if not has_died:
            assert fatal > 1
            return


@each_flush
async def test_store_that_is_away_changes_nothing(rig: ArtifactRig, change: Change) -> None:
    """When a blob cannot be put, the change fails by that name, and content and version stay."""
    await begin(rig)
    before, record = await contents(rig), await rig.record("a")
    process = with_blobs(rig, FailingBlobs(rig.blobs, 1, error=away()))
    with pytest.raises(BlobsUnavailableError):
        await apply(process, change)
    assert await rig.record("a") == record
    assert await contents(rig) == before
    assert await rig.version() == 2


@pytest.mark.parametrize(
    ("change", "puts"),
    [(Append(b"1" * 200), 1), (Replace(0, NewPart("file", b"short")), 0)],
    ids=["put", "none"],
)
async def test_blob_that_cannot_be_deleted_now_is_deleted_later(
    rig: ArtifactRig, change: Change, puts: int
) -> None:
    """A change stands if old blobs cannot be deleted; the housekeeping deletes them."""
    await begin(rig)
    await housekeep(rig)  # removes the present blobs from its list
    process = with_blobs(rig, FailingBlobs(rig.blobs, puts + 1, error=away()))
    await apply(process, change)
    assert len(kept_blobs(rig)) == puts + 1
    assert (await housekeep(rig, later=PENDING_TIME / 2))[1] == 0
    assert await housekeep(rig, later=PENDING_TIME / 2) == (0, 1)
    assert kept_blobs(rig) == await named_blobs(rig)


async def test_process_may_die_while_it_deletes(rig: ArtifactRig) -> None:
    """An artifact whose deletion was interrupted is gone; its blobs follow an hour later."""
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
    """A writer that finds another's change while it puts or reads blobs starts again from there."""
    await begin(rig)
    others = iter([Append(b"2" * 500)])

    async def write_between() -> None:
        for change in others:
            await apply(rig, change)

    blobs = FailingBlobs(rig.blobs)
    setattr(blobs, moment, write_between)
    await apply(with_blobs(rig, blobs), Append(b"1" * 200))
    assert await contents(rig) == [b"0" * 150 + b"tail" + b"2" * 500 + b"1" * 200]
    assert await rig.version() == 4
    assert kept_blobs(rig) == await named_blobs(rig)


async def test_blobs_that_waited_too_long_are_put_again(rig: ArtifactRig) -> None:
    """A record never refers to blobs so old that the housekeeping may have deleted them."""
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
    """A writer whose artifact is deleted in between fails by that name and leaves nothing behind."""
    await begin(rig)
    remove = rig.artifacts.delete_artifact
    blobs = FailingBlobs(rig.blobs, pause=lambda: remove(rig.context_id, "a"))
    with pytest.raises(ArtifactMissingError):
        await apply(with_blobs(rig, blobs), Append(b"1" * 500))
    assert kept_blobs(rig) == set()


@pytest.mark.parametrize("way", ["away", "lost"])
async def test_an_artifact_fails_without_its_blobs(rig: ArtifactRig, way: str) -> None:
    """An artifact can be failed without its blobs, so that its task can end; the content stays."""
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


# A change whose answer is lost is made once.

PIECE = 1 << 16


class AnswerEater:
    """A proxy before Redis that cuts a connection instead of forwarding the next transaction's answer.

    With `before`, it cuts the connection without forwarding the request. With `is_closing`, it refuses
    connections after that.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self.is_hungry = False
        self.before = False
        self.is_closing = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward requests and answers, one after the other."""
        if self.is_closing and not self.is_hungry:
            writer.close()
            return
        from_server, to_server = await asyncio.open_connection(*self._server)
        answers = asyncio.create_task(_pass_on(from_server, writer))
        with closing(writer), closing(to_server):
            while request := await reader.read(PIECE):
                if not (self.is_hungry and b"EXEC" in request):
                    to_server.write(request)
                    continue
                self.is_hungry = False
                answers.cancel()
                await asyncio.wait([answers])
                if not self.before:
                    to_server.write(request)
                    await from_server.read(1)  # now the transaction is done
                break
        answers.cancel()
        await asyncio.wait([answers])


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)


@asynccontextmanager
async def behind(eater: AnswerEater, rig: ArtifactRig) -> AsyncGenerator[ArtifactRig]:
    """Return the store of a process whose Redis is behind the proxy."""
    assert rig.blob_rig
    async with await asyncio.start_server(eater.serve, LOOPBACK, 0) as server:
        url = f"redis://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/0"
        async with connect_redis(url) as redis:
            other = redis_artifacts(redis, rig.blob_rig, rig.clock)
            yield replace(other, context_id=rig.context_id, task_id=rig.task_id)


@pytest.fixture
def eater(own_redis: Redis) -> AnswerEater:
    place = own_redis.connection_pool.connection_kwargs
    eater = AnswerEater(place["host"], place["port"])
    eater.is_hungry = True
    return eater


@pytest.mark.one_server  # nodes of a cluster name their own addresses, not that of a proxy
@pytest.mark.parametrize("before", [True, False])
@each_change
async def test_lost_answer_is_looked_up(
    rig: ArtifactRig, eater: AnswerEater, change: Change, before: object
) -> None:
    """If the connection breaks at the transaction, the change is made once, executed before or not."""
    await begin(rig)
    async with behind(eater, rig) as process:
        eater.before = bool(before)
        artifact = await apply(process, change)
    assert not eater.is_hungry
    assert artifact.version == 3
    assert await contents(rig) == expected_contents(change)
    assert await rig.version() == 3
    assert kept_blobs(rig) == await named_blobs(rig)


@pytest.mark.one_server  # as above
async def test_operation_is_safe_to_repeat(rig: ArtifactRig, eater: AnswerEater) -> None:
    """If Redis is lost after the transaction, a retry of the caller changes nothing."""
    await begin(rig)
    async with behind(eater, rig) as process:
        eater.is_closing = True
        with pytest.raises(RedisConnectionError):
            await apply(process, Append(b"1" * 500), "o")
        eater.is_closing = False
        artifact = await apply(process, Append(b"1" * 500), "o")
    assert artifact.version == 3
    assert await contents(rig) == [b"0" * 150 + b"tail" + b"1" * 500]
    await housekeep(rig)
    assert kept_blobs(rig) == await named_blobs(rig)
