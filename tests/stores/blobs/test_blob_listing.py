"""The blobs that the housekeeping lists: old ones, in pages, and none put since."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobMissingError, Blobs
from everloop.stores.blobs import local_blobs, s3_blobs
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.blobs.redis_blobs import RedisBlobs, blob_key
from everloop.stores.retention.users import remove_folder
from tests.stores.blobs.blob_rig import open_rig

NOW, HOUR, DAY = timedelta(), timedelta(hours=1), timedelta(days=1)


async def old_keys(blobs: Blobs, folder: str, age: timedelta) -> list[str]:
    keys: list[str] = []
    cursor, is_last = "", False
    while not is_last:
        page = await blobs.list_old(folder, age, cursor)
        keys += page.keys
        cursor, is_last = page.cursor, not page.cursor
    return keys


@pytest.fixture(params=["local", "s3"])
def blobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    """Return stores that remove nothing by themselves, with pages of two blobs."""
    monkeypatch.setattr(local_blobs, "PAGE", 2)
    monkeypatch.setattr(s3_blobs, "LISTED", 2)
    return open_rig(str(request.param), request).blobs


def age_file(path: Path, age: timedelta) -> None:
    put_at = time.time() - age.total_seconds()
    os.utime(path, (put_at, put_at))


async def test_every_old_blob_of_a_folder_is_found(blobs: Blobs) -> None:
    """Each old blob of a folder is listed once, with any characters in its key.

    Others and new ones are not.
    """
    keys = [f"payloads/{folder}/{name}" for folder in ("a", "a.b", "a%2F", "a-b") for name in ("x", "y", "z")]
    for key in [*keys, "payloads-too/a/x", "artifact/a/x"]:
        await blobs.put(key, b"content")

    assert sorted(await old_keys(blobs, "payloads", NOW)) == sorted(keys)
    assert await old_keys(blobs, "payloads", HOUR) == []
    assert await old_keys(blobs, "nothing", NOW) == []
    assert not blobs.expires


async def test_only_what_is_still_old_is_removed(blobs: Blobs) -> None:
    """A listed blob is removed if it is still old; a missing one is not an error."""
    await blobs.put("payloads/a/x", b"content")

    assert not await blobs.remove("payloads/a/x", HOUR)
    assert await blobs.get("payloads/a/x") == b"content"
    assert await blobs.remove("payloads/a/x", NOW)
    assert not await blobs.remove("payloads/a/x", NOW)
    assert await old_keys(blobs, "payloads", NOW) == []
    await blobs.put("payloads/a/x", b"content")
    assert await blobs.get("payloads/a/x") == b"content"


async def test_a_folder_can_be_removed(blobs: Blobs) -> None:
    """A folder is removed with new blobs and without others'; an empty one is not an error."""
    for key in ("payloads/a/x", "payloads/a/y", "payloads/ab/x"):
        await blobs.put(key, b"content")

    assert sorted(await remove_folder(blobs, "payloads/a")) == ["payloads/a/x", "payloads/a/y"]
    assert await remove_folder(blobs, "payloads/a") == []
    assert await blobs.get("payloads/ab/x") == b"content"
    with pytest.raises(BlobMissingError):
        await blobs.get("payloads/a/x")


async def test_a_file_that_is_put_again_is_new(tmp_path: Path) -> None:
    """A file that is put again counts as new, although its content is not written again."""
    blobs = LocalBlobs(tmp_path)
    await blobs.put("payloads/a/x", b"content")
    age_file(tmp_path / "payloads/a/x", DAY)
    assert await old_keys(blobs, "payloads", HOUR) == ["payloads/a/x"]

    await blobs.put("payloads/a/x", b"content")
    assert await old_keys(blobs, "payloads", HOUR) == []


async def test_an_object_that_is_put_again_is_new(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that is put again counts as new on S3, too, if it is half a day old.

    Before that, it is not sent.
    """
    blobs = open_rig("s3", request).blobs
    await blobs.put("payloads/a/x", b"content")
    put_at = datetime.now(UTC)
    await blobs.put("payloads/a/x", b"content")
    assert await old_keys(blobs, "payloads", datetime.now(UTC) - put_at) == ["payloads/a/x"]

    monkeypatch.setattr(s3_blobs, "RENEWED_AFTER", timedelta(days=-1))
    listed_at = datetime.now(UTC).replace(microsecond=0)  # S3 has whole seconds
    while datetime.now(UTC).replace(microsecond=0) <= listed_at:
        await blobs.put("payloads/a/x", b"content")
    await blobs.put("payloads/a/x", b"content")
    assert not await blobs.remove("payloads/a/x", datetime.now(UTC) - listed_at)


async def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """Symbolic links are not followed: nothing outside of the directory is listed or removed."""
    elsewhere = tmp_path / "elsewhere" / "x"
    elsewhere.parent.mkdir()
    elsewhere.touch()
    (tmp_path / "blobs" / "payloads").mkdir(parents=True)
    (tmp_path / "blobs" / "payloads" / "a").symlink_to(elsewhere.parent)

    assert await old_keys(LocalBlobs(tmp_path / "blobs"), "payloads", NOW) == []


async def test_redis_tells_what_is_half_over(redis: Redis) -> None:
    """The age of a payload in Redis counts from its last use or renewal; Redis removes it by itself."""
    blobs, name = RedisBlobs(redis, ttl=DAY), f"payloads/{uuid4()}/x"
    await blobs.put(name, b"content")
    await redis.expire(blob_key(name), HOUR)

    assert name in await old_keys(blobs, "payloads", DAY / 2)
    assert not await blobs.remove(name, NOW)
    await blobs.renew(name)
    assert name not in await old_keys(blobs, "payloads", DAY / 2)
    assert await redis.ttl(blob_key(name)) > HOUR.total_seconds()
    assert blobs.expires
