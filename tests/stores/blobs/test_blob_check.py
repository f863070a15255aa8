"""The check of a blob store at start: it works, and is the one of the other processes."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from everloop.runtime.blobs import PROBE_KEY, Blobs, BlobsUnfitError
from everloop.runtime.environment import explain
from everloop.stores.blobs.blob_settings import BlobSettings, check_blobs, opened_blobs
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.keys import LOCK_KEY, STORE_ID_KEY
from tests.stores.blobs.blob_rig import new_key
from tests.support.servers.buckets import new_bucket

TOGETHER = 8
"""The number of processes that start at the same time."""


async def _is_fit(blobs: Blobs, redis: Redis) -> bool:
    try:
        await check_blobs(blobs, redis)
    except BlobsUnfitError:
        return False
    return True


async def test_new_store_is_given_an_id_once(own_redis: Redis, tmp_path: Path) -> None:
    """The first process creates the id in the store and in Redis; later ones reuse it."""
    blobs = LocalBlobs(tmp_path / "blobs")
    await check_blobs(blobs, own_redis)
    made = await blobs.get(PROBE_KEY)
    await check_blobs(LocalBlobs(tmp_path / "blobs"), own_redis)
    assert await blobs.get(PROBE_KEY) == made
    assert await own_redis.get(STORE_ID_KEY) == made.decode()
    assert await own_redis.ttl(STORE_ID_KEY) == -1
    await own_redis.flushall()  # Redis may lose its data: the store's id counts
    await check_blobs(blobs, own_redis)
    assert await own_redis.get(STORE_ID_KEY) == made.decode()
    await own_redis.flushall()
    await check_blobs(LocalBlobs(tmp_path / "another"), own_redis)
    assert await LocalBlobs(tmp_path / "another").get(PROBE_KEY) != made


async def test_restart_on_an_unmounted_volume_is_refused(own_redis: Redis, tmp_path: Path) -> None:
    """An empty directory in place of the store stops a process with a remedy, and stays empty."""
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
    """A store with another id is refused until the operator accepts it."""
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
    """Several processes that start on an empty store all succeed, with the id that Redis has."""

    def store() -> Blobs:
        return RedisBlobs(own_redis) if kind == "redis" else LocalBlobs(tmp_path / "blobs")

    assert all(await asyncio.gather(*(_is_fit(store(), own_redis) for _ in range(TOGETHER))))
    assert (await store().get(PROBE_KEY)).decode() == await own_redis.get(STORE_ID_KEY)


async def test_of_processes_with_different_stores_one_starts(own_redis: Redis, tmp_path: Path) -> None:
    """Of processes with different directories, such as relative ones, one starts, even at the same time."""
    stores = [LocalBlobs(tmp_path / str(number)) for number in range(TOGETHER)]
    fits = await asyncio.gather(*(_is_fit(blobs, own_redis) for blobs in stores))
    assert sum(fits) == 1


@pytest.mark.parametrize("store_id", ["", "made"])
async def test_process_that_died_while_it_made_the_store_is_got_over(
    own_redis: Redis, tmp_path: Path, store_id: str
) -> None:
    """The lock of a process that died expires.

    With its id in the store or without, the next process starts.
    """
    blobs = LocalBlobs(tmp_path)
    if store_id:
        await blobs.put(PROBE_KEY, store_id.encode())
    await own_redis.set(LOCK_KEY, "of a dead process", px=200)
    await check_blobs(blobs, own_redis)
    assert await own_redis.get(STORE_ID_KEY) == (await blobs.get(PROBE_KEY)).decode()
    assert not store_id or await own_redis.get(STORE_ID_KEY) == store_id


async def test_a_process_without_a_setting_finds_the_directory_in_use(
    own_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without a setting, started beside `everloop up`, uses its directory and creates no other."""
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
    """A configured directory is refused, not replaced.

    The message names the one in use, and no harmful remedy.
    """
    used = tmp_path / "used"
    async with opened_blobs(BlobSettings(blob_directory=used), own_redis):
        pass

    with pytest.raises(BlobsUnfitError, match=f"EVERLOOP_BLOB_DIRECTORY={used}") as refused:
        async with opened_blobs(BlobSettings(blob_directory=tmp_path / "other"), own_redis):
            pass
    assert "delete" not in str(refused.value)
    assert STORE_ID_KEY not in str(refused.value)


CONTENT = bytes(range(256)) * 4000


async def test_unusable_store_is_said_at_start(own_redis: Redis, s3_endpoint: str, tmp_path: Path) -> None:
    """A missing bucket, or an impossible directory, ends a process with a line that names it."""
    (tmp_path / "file").touch()
    bucket = BlobSettings(blobs="s3", s3_bucket=f"blobs-{uuid4()}", s3_endpoint=s3_endpoint)
    directory = BlobSettings(blob_directory=tmp_path / "file" / "blobs")
    for settings, named in ((bucket, f"{bucket.s3_bucket}.*EVERLOOP_S3_BUCKET"), (directory, "file/blobs")):
        with pytest.raises(BlobsUnfitError, match=f"(?s){named}"):
            async with opened_blobs(settings, own_redis):
                pass


@pytest.mark.parametrize("kind", ["local", "redis", "s3"])
async def test_settings_choose_the_store(
    own_redis: Redis, s3_endpoint: str, tmp_path: Path, kind: str
) -> None:
    """Each value of EVERLOOP_BLOBS opens a working store."""
    of_s3 = {"s3_bucket": new_bucket(s3_endpoint), "s3_endpoint": s3_endpoint} if kind == "s3" else {}
    settings = BlobSettings.model_validate({"blobs": kind, "blob_directory": tmp_path, **of_s3})
    async with opened_blobs(settings, own_redis) as blobs:
        key = new_key()
        await blobs.put(key, CONTENT)
        assert await blobs.get(key) == CONTENT


async def test_links_are_made_only_when_they_are_asked_for(
    own_redis: Redis, encrypted: Redis, s3_endpoint: str
) -> None:
    """Without EVERLOOP_S3_PRESIGNED no link to S3 is made, and none to encrypted content."""
    settings = BlobSettings(blobs="s3", s3_bucket=new_bucket(s3_endpoint), s3_endpoint=s3_endpoint)
    asked = settings.model_copy(update={"s3_presigned": 900})
    async with opened_blobs(settings, own_redis) as blobs:
        assert blobs.links is None
    async with opened_blobs(asked, own_redis) as blobs:
        assert blobs.links
        assert blobs.links.seconds == 900
    with pytest.raises(BlobsUnfitError, match=r"EVERLOOP_S3_PRESIGNED is set, and so is EVERLOOP_ENC.*unset"):
        async with opened_blobs(asked, encrypted):
            pass


WRONG: Sequence[tuple[dict[str, object], str]] = [
    ({"blobs": "s3"}, "EVERLOOP_S3_BUCKET"),
    ({"blobs": "s3", "s3_bucket": "bucket", "s3_endpoint": "host:9000"}, "EVERLOOP_S3_ENDPOINT"),
    ({"blobs": "redis", "s3_endpoint": "http://host:9000"}, "EVERLOOP_S3_ENDPOINT"),
    ({"s3_presigned": 900}, "EVERLOOP_S3_PRESIGNED"),
    ({"blobs": "s3", "s3_bucket": "b", "s3_sse": "AES256", "s3_sse_key_id": "k"}, "EVERLOOP_S3_SSE_KEY_ID"),
    ({"blobs": "local", "s3_sse": "AES256"}, "EVERLOOP_S3_SSE"),
]


@pytest.mark.parametrize(("settings", "variable"), WRONG)
def test_wrong_settings_name_the_variable(settings: dict[str, object], variable: str) -> None:
    """Contradictory settings are one line that begins with the variable."""
    with pytest.raises(ValidationError) as raised:
        BlobSettings.model_validate(settings)
    assert explain(raised.value).startswith(variable)
