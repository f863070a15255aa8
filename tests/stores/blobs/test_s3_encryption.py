"""Encryption of blobs: by S3 itself, and by us, which leaves no links to them."""

import os
from collections.abc import Mapping
from contextlib import closing
from typing import cast

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobsUnfitError
from everloop.stores.blobs.s3 import MULTIPART_ABOVE, SMALLEST_PART, S3Blobs
from everloop.stores.blobs.s3_client import server_encryption
from everloop.stores.blobs.settings import BlobSettings, opened_blobs
from tests.stores.blobs.blob_rig import new_key
from tests.support.servers.buckets import client_of, new_bucket

PART = os.urandom(SMALLEST_PART)
LARGE = os.urandom(MULTIPART_ABOVE + 1)


@pytest.mark.parametrize(("sse", "key_id"), [("AES256", ""), ("aws:kms", "alias/everloop"), ("", "")])
async def test_s3_is_told_how_to_encrypt(s3_endpoint: str, sse: str, key_id: str) -> None:
    """Each new object, also one in parts and one joined of others; without a setting the bucket decides."""
    bucket, small, large, joined = new_bucket(s3_endpoint), new_key(), new_key(), new_key()
    encryption = server_encryption(sse, key_id)
    with closing(S3Blobs(bucket, endpoint=s3_endpoint, presigned=60, encryption=encryption)) as blobs:
        await blobs.put(small, PART)
        await blobs.put(large, LARGE)
        assert blobs.links
        await blobs.links.join(joined, [small, small])
    for key in (small, large, joined):
        head = cast("Mapping[str, str]", client_of(s3_endpoint).head_object(Bucket=bucket, Key=key))
        assert (head.get("ServerSideEncryption", ""), head.get("SSEKMSKeyId", "")) == (sse, key_id)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"s3_sse": "rot13"}, "'AES256' or 'aws:kms'"),
        ({"s3_sse": "AES256", "s3_sse_key_id": "k"}, "EVERLOOP_S3_SSE_KEY_ID names a key, but"),
        ({"blobs": "local", "s3_sse": "AES256"}, "EVERLOOP_S3_SSE is set, but EVERLOOP_BLOBS is local"),
    ],
    ids=["unknown", "key of nothing", "not S3"],
)
def test_settings_that_do_not_fit_are_told(settings: dict[str, str], problem: str) -> None:
    """The message names the variables."""
    with pytest.raises(ValidationError, match=problem):
        BlobSettings.model_validate({"blobs": "s3", "s3_bucket": "b", **settings})


async def test_links_to_encrypted_blobs_are_refused_at_start(encrypted: Redis) -> None:
    """Clients could not read what they fetch; the message names both variables and says what to do."""
    settings = BlobSettings(blobs="s3", s3_bucket="b", s3_presigned=60)
    with pytest.raises(BlobsUnfitError, match=r"EVERLOOP_S3_PRESIGNED is set, and so is EVERLOOP_ENC.*unset"):
        async with opened_blobs(settings, encrypted):
            pass
