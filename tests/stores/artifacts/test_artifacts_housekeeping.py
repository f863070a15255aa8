"""The housekeeping clears away what has expired, and nothing that was changed since."""

from datetime import timedelta

import pytest
from redis.asyncio import Redis

from everloop.stores.artifacts.cleanup import ArtifactBlobs, ArtifactHousekeeping, Cleared, remove_artifact
from everloop.stores.artifacts.interface import Append, Create, NewPart
from everloop.stores.artifacts.record import EXPIRING
from everloop.stores.cleaned import Cleaned
from tests.stores.artifacts.artifact_benches import TTL, ArtifactBench
from tests.stores.artifacts.artifact_faults import (
    begin,
    housekeep,
    kept_blobs,
    local_bench,
)


@pytest.fixture
def bench(own_redis: Redis, request: pytest.FixtureRequest) -> ArtifactBench:
    """A store whose blobs are in a directory, with a Redis of its own."""
    return local_bench(own_redis, request)


async def test_housekeeping_removes_expired_artifacts(bench: ArtifactBench) -> None:
    """Artifacts past their time to live go with all of their content; those changed since stay."""
    assert bench.redis
    for artifact_id in ("old", "changed"):
        create = Create("task", (NewPart("file", b"0" * 900), NewPart("file", b"1")))
        await bench.artifacts.apply(bench.context_id, artifact_id, create)
    bench.clock.at += TTL
    assert await bench.artifacts.list_artifacts(bench.context_id) == []
    bench.clock.at -= timedelta(seconds=1)
    await bench.artifacts.apply(bench.context_id, "changed", Append(b"x", index=0))
    bench.clock.at += timedelta(seconds=1)

    assert await housekeep(bench) == Cleared(1, 0)
    assert await housekeep(bench) == Cleared(0, 0)
    assert await bench.content("changed") == b"0" * 900 + b"x"
    assert kept_blobs(bench) == set((await bench.record("changed")).blob_keys())
    assert await bench.redis.zcard(EXPIRING) == 1
    assert await bench.redis.keys("everloop:artifact*:old*") == []


async def test_an_artifact_that_was_changed_since_it_was_listed_stays(bench: ArtifactBench) -> None:
    """The list that the housekeeping goes through may be older than the record."""
    assert bench.redis
    await begin(bench)
    listed = {(await bench.record("a")).address.record_key: bench.clock.at.timestamp() - 1}
    await bench.redis.zadd(EXPIRING, listed)

    assert await housekeep(bench, later=timedelta()) == Cleared(0, 0)
    assert await bench.content("a") == b"0" * 150 + b"tail"


async def test_unreadable_record_holds_up_nothing(bench: ArtifactBench) -> None:
    """A record that this version cannot read stays, and the artifacts after it are still cleared away."""
    assert bench.redis
    await begin(bench)
    await bench.redis.set("everloop:artifact:c:unreadable", "{")
    await bench.redis.zadd(EXPIRING, {"everloop:artifact:c:unreadable": 0})
    bench.clock.at += TTL
    assert await housekeep(bench) == Cleared(1, 0)
    assert kept_blobs(bench) == set()


async def test_unreadable_records_hold_up_nothing_however_many(bench: ArtifactBench) -> None:
    """The next step begins behind them, and the one after the last finds nothing; what is kept stays."""
    assert bench.redis
    await begin(bench)
    unreadable = {f"everloop:artifact:c:{number}": 0 for number in range(1001)}
    await bench.redis.mset(dict.fromkeys(unreadable, "sealed:k9:AAAA"))
    await bench.redis.zadd(EXPIRING, unreadable)
    bench.clock.at += TTL
    housekeeping = ArtifactHousekeeping(bench.redis, bench.blobs, clock=bench.clock)

    assert await housekeeping.clean_artifacts() == Cleaned(0, "1000")
    assert await housekeeping.clean_artifacts("1000") == Cleaned(1)
    assert await housekeeping.clean_artifacts("due") == Cleaned(0, "1000")  # of a version before
    assert await bench.redis.zcard(EXPIRING) == 1001


async def test_changed_artifact_is_not_due(bench: ArtifactBench) -> None:
    """What was due when the housekeeping looked, and was changed since, stays."""
    assert bench.redis
    await begin(bench)
    address, blobs = (await bench.record("a")).address, ArtifactBlobs(bench.redis, bench.blobs)
    assert not await remove_artifact(bench.redis, blobs, address.record_key, lambda _: False)
    assert await bench.content("a") == b"0" * 150 + b"tail"
    assert await remove_artifact(bench.redis, blobs, address.record_key, lambda _: True)
    assert not await remove_artifact(bench.redis, blobs, address.record_key, lambda _: True)
