"""Settings choose the blob store, and what is wrong with them is said at start."""

from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobsUnfitError
from everloop.runtime.settings import explain
from everloop.stores.blobs.settings import BlobSettings, opened_blobs
from tests.stores.blobs.blob_rig import new_key
from tests.support.servers.buckets import new_bucket

CONTENT = bytes(range(256)) * 4000


async def test_missing_bucket_is_said_at_start(own_redis: Redis, s3_endpoint: str) -> None:
    """A bucket that does not exist stops a process with one line that names it and the variable."""
    settings = BlobSettings(blobs="s3", s3_bucket=f"blobs-{uuid4()}", s3_endpoint=s3_endpoint)
    with pytest.raises(BlobsUnfitError, match="EVERLOOP_S3_BUCKET") as raised:
        async with opened_blobs(settings, own_redis):
            pass
    assert settings.s3_bucket in str(raised.value)


async def test_unusable_directory_is_said_at_start(own_redis: Redis, tmp_path: Path) -> None:
    """A directory that cannot be written to stops a process with one line that names it."""
    (tmp_path / "file").touch()
    settings = BlobSettings(blob_directory=tmp_path / "file" / "blobs")
    with pytest.raises(BlobsUnfitError, match="file/blobs"):
        async with opened_blobs(settings, own_redis):
            pass


@pytest.mark.parametrize("kind", ["local", "redis", "s3"])
async def test_settings_choose_the_store(
    own_redis: Redis, s3_endpoint: str, tmp_path: Path, kind: str
) -> None:
    """Each value of EVERLOOP_BLOBS opens a store that works."""
    of_s3 = {"s3_bucket": new_bucket(s3_endpoint), "s3_endpoint": s3_endpoint} if kind == "s3" else {}
    settings = BlobSettings.model_validate({"blobs": kind, "blob_directory": tmp_path, **of_s3})
    async with opened_blobs(settings, own_redis) as blobs:
        key = new_key()
        await blobs.put(key, CONTENT)
        assert await blobs.get(key) == CONTENT


@pytest.mark.parametrize(("presigned", "seconds"), [({}, None), ({"s3_presigned": 900}, 900)])
async def test_links_are_made_only_when_they_are_asked_for(
    own_redis: Redis, s3_endpoint: str, presigned: dict[str, int], seconds: int | None
) -> None:
    """Without EVERLOOP_S3_PRESIGNED nobody is given an address of S3."""
    bucket = {"blobs": "s3", "s3_bucket": new_bucket(s3_endpoint), "s3_endpoint": s3_endpoint}
    async with opened_blobs(BlobSettings.model_validate({**bucket, **presigned}), own_redis) as blobs:
        assert (blobs.links and blobs.links.seconds) == seconds


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"blobs": "s3"}, "EVERLOOP_S3_BUCKET"),
        ({"s3_bucket": "bucket"}, "EVERLOOP_S3_BUCKET"),
        ({"blobs": "s3", "s3_bucket": "bucket", "s3_endpoint": "host:9000"}, "EVERLOOP_S3_ENDPOINT"),
        ({"blobs": "redis", "s3_endpoint": "http://host:9000"}, "EVERLOOP_S3_ENDPOINT"),
        ({"s3_prefix": "everloop/"}, "EVERLOOP_S3_PREFIX"),
        ({"s3_presigned": 900}, "EVERLOOP_S3_PRESIGNED"),
        ({"blobs": "s3", "s3_bucket": "bucket", "s3_presigned": -1}, "EVERLOOP_S3_PRESIGNED"),
        ({"blobs": "s3", "s3_bucket": "bucket", "s3_presigned": 604_801}, "EVERLOOP_S3_PRESIGNED"),
        ({"blobs": "tape"}, "EVERLOOP_BLOBS"),
        ({"blob_ttl_days": 0}, "EVERLOOP_BLOB_TTL_DAYS"),
        ({"blob_ttl_days": 10**10}, "EVERLOOP_BLOB_TTL_DAYS"),
    ],
)
def test_wrong_settings_name_the_variable(settings: dict[str, object], variable: str) -> None:
    """What does not fit together is explained in one line that begins with the variable."""
    with pytest.raises(ValidationError) as raised:
        BlobSettings.model_validate(settings)
    assert explain(raised.value).startswith(variable)
