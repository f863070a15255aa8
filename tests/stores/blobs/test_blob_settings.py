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


async def test_unusable_store_is_said_at_start(own_redis: Redis, s3_endpoint: str, tmp_path: Path) -> None:
    """A bucket that is not there, or a directory that cannot be, ends a process with a line that names it."""
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
    """Each value of EVERLOOP_BLOBS opens a store that works."""
    of_s3 = {"s3_bucket": new_bucket(s3_endpoint), "s3_endpoint": s3_endpoint} if kind == "s3" else {}
    settings = BlobSettings.model_validate({"blobs": kind, "blob_directory": tmp_path, **of_s3})
    async with opened_blobs(settings, own_redis) as blobs:
        key = new_key()
        await blobs.put(key, CONTENT)
        assert await blobs.get(key) == CONTENT


async def test_links_are_made_only_when_they_are_asked_for(
    own_redis: Redis, encrypted: Redis, s3_endpoint: str
) -> None:
    """Without EVERLOOP_S3_PRESIGNED nobody gets an address of S3, nor of what clients could not read."""
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


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"blobs": "s3"}, "EVERLOOP_S3_BUCKET"),
        ({"blobs": "s3", "s3_bucket": "bucket", "s3_endpoint": "host:9000"}, "EVERLOOP_S3_ENDPOINT"),
        ({"blobs": "redis", "s3_endpoint": "http://host:9000"}, "EVERLOOP_S3_ENDPOINT"),
        ({"s3_presigned": 900}, "EVERLOOP_S3_PRESIGNED"),
        (
            {"blobs": "s3", "s3_bucket": "b", "s3_sse": "AES256", "s3_sse_key_id": "k"},
            "EVERLOOP_S3_SSE_KEY_ID",
        ),
        ({"blobs": "local", "s3_sse": "AES256"}, "EVERLOOP_S3_SSE"),
    ],
)
def test_wrong_settings_name_the_variable(settings: dict[str, object], variable: str) -> None:
    """What does not fit together is explained in one line that begins with the variable."""
    with pytest.raises(ValidationError) as raised:
        BlobSettings.model_validate(settings)
    assert explain(raised.value).startswith(variable)
