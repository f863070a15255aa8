"""At start a process learns whether its blob store is the one that the others use, and whether it works."""

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import PROBE_KEY, Blobs, BlobsUnfitError
from everloop.stores.blobs.local import LocalBlobs
from everloop.stores.blobs.redis import RedisBlobs
from everloop.stores.blobs.settings import BlobSettings, check_blobs, opened_blobs
from everloop.stores.keys import LOCK_KEY, STORE_ID_KEY
from tests.support.memory.blobs import MemoryBlobs

TOGETHER = 8
"""Processes that start at once."""


async def _is_fit(blobs: Blobs, redis: Redis) -> bool:
    try:
        await check_blobs(blobs, redis)
    except BlobsUnfitError:
        return False
    return True


async def test_new_store_is_given_an_id_once(own_redis: Redis, tmp_path: Path) -> None:
    """The first process makes the id, in the store and in Redis for good; the next ones keep it."""
    blobs = LocalBlobs(tmp_path / "blobs")
    await check_blobs(blobs, own_redis)
    made = await blobs.get(PROBE_KEY)
    await check_blobs(LocalBlobs(tmp_path / "blobs"), own_redis)
    assert await blobs.get(PROBE_KEY) == made
    assert await own_redis.get(STORE_ID_KEY) == made.decode()
    assert await own_redis.ttl(STORE_ID_KEY) == -1
    await own_redis.flushall()  # Redis may lose its data: the id in the store counts
    await check_blobs(blobs, own_redis)
    assert await own_redis.get(STORE_ID_KEY) == made.decode()
    await own_redis.flushall()
    await check_blobs(LocalBlobs(tmp_path / "another"), own_redis)
    assert await LocalBlobs(tmp_path / "another").get(PROBE_KEY) != made


async def test_restart_on_an_unmounted_volume_is_refused(own_redis: Redis, tmp_path: Path) -> None:
    """An empty directory in place of the one in use stops a process with a remedy, and stays empty."""
    mounted, away = tmp_path / "blobs", tmp_path / "away"
    await check_blobs(LocalBlobs(mounted), own_redis)
    mounted.rename(away)
    mounted.mkdir()
    for _ in range(2):
        with pytest.raises(BlobsUnfitError, match=f"{mounted} .*EVERLOOP_BLOBS.*mount the right"):
            await check_blobs(LocalBlobs(mounted), own_redis)
    assert list(mounted.iterdir()) == []
    mounted.rmdir()
    away.rename(mounted)
    await check_blobs(LocalBlobs(mounted), own_redis)


async def test_store_of_another_deployment_is_refused(own_redis: Redis, tmp_path: Path) -> None:
    """A store with an id of its own is not the one in use until the operator says so."""
    await check_blobs(LocalBlobs(tmp_path / "in_use"), own_redis)
    other = LocalBlobs(tmp_path / "other")
    await other.put(PROBE_KEY, b"other")
    with pytest.raises(BlobsUnfitError, match="its id is other"):
        await check_blobs(other, own_redis)
    await own_redis.delete(STORE_ID_KEY)
    await check_blobs(other, own_redis)
    assert await own_redis.get(STORE_ID_KEY) == "other"


@pytest.mark.parametrize("kind", ["local", "redis"])
async def test_processes_that_start_together_agree(own_redis: Redis, tmp_path: Path, kind: str) -> None:
    """Several processes at once on an empty store all start, and the store has the id that Redis names."""

    def store() -> Blobs:
        return RedisBlobs(own_redis) if kind == "redis" else LocalBlobs(tmp_path / "blobs")

    assert all(await asyncio.gather(*(_is_fit(store(), own_redis) for _ in range(TOGETHER))))
    assert (await store().get(PROBE_KEY)).decode() == await own_redis.get(STORE_ID_KEY)


async def test_of_processes_with_different_stores_one_starts(own_redis: Redis, tmp_path: Path) -> None:
    """Empty directories of their own, as relative ones give, are found out though all start together."""
    stores = [LocalBlobs(tmp_path / str(number)) for number in range(TOGETHER)]
    fits = await asyncio.gather(*(_is_fit(blobs, own_redis) for blobs in stores))
    assert sum(fits) == 1


@pytest.mark.parametrize("store_id", ["", "made"])
async def test_process_that_died_while_it_made_the_store_is_got_over(own_redis: Redis, store_id: str) -> None:
    """Its lock ends by itself; whether or not it put an id into the store, the next process starts."""
    blobs = MemoryBlobs()
    if store_id:
        await blobs.put(PROBE_KEY, store_id.encode())
    await own_redis.set(LOCK_KEY, "of a dead process", px=200)
    await check_blobs(blobs, own_redis)
    assert await own_redis.get(STORE_ID_KEY) == (await blobs.get(PROBE_KEY)).decode()
    assert not store_id or await own_redis.get(STORE_ID_KEY) == store_id


async def test_a_process_without_a_setting_finds_the_directory_in_use(
    own_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is started beside `everloop up`, in another working directory, leaves nothing there."""
    monkeypatch.chdir(tmp_path)
    async with opened_blobs(BlobSettings(), own_redis) as blobs:
        await blobs.put("payloads/a", b"a")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    async with opened_blobs(BlobSettings(), own_redis) as blobs:
        assert await blobs.get("payloads/a") == b"a"
    assert list(elsewhere.iterdir()) == []


async def test_a_directory_that_was_given_is_not_exchanged(own_redis: Redis, tmp_path: Path) -> None:
    """It is refused; the message names the one in use, and nothing that would harm a deployment."""
    used = tmp_path / "used"
    async with opened_blobs(BlobSettings(blob_directory=used), own_redis):
        pass

    with pytest.raises(BlobsUnfitError, match=f"EVERLOOP_BLOB_DIRECTORY={used}") as refused:
        async with opened_blobs(BlobSettings(blob_directory=tmp_path / "other"), own_redis):
            pass
    assert "delete" not in str(refused.value)
    assert STORE_ID_KEY not in str(refused.value)
