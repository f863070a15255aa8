"""Links with which clients fetch large complete parts from the blob store directly."""

from contextlib import closing
from uuid import uuid4

import httpx
import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobMissingError, LinkTerms
from everloop.stores.artifacts.artifact_errors import ArtifactMissingError, PartIndexError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Append, Complete, Create, NewPart
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord
from everloop.stores.artifacts.writer import SEGMENT_BYTES
from everloop.stores.blobs.s3_blobs import S3Blobs
from tests.stores.artifacts.artifact_rig import read
from tests.support.servers.buckets import new_bucket

SECONDS = 60
TERMS = LinkTerms("video/mp4", 'attachment; filename="a film.mp4"', SECONDS)
LARGE = bytes(range(256)) * (2 * SEGMENT_BYTES // 256 + 4096)


async def test_whole_part_is_one_object(redis: Redis, s3_endpoint: str) -> None:
    """The link of a complete part serves all of it with the requested headers.

    Deletion removes all objects.
    """
    bucket, context_id = new_bucket(s3_endpoint), f"owner:{uuid4()}"
    with closing(S3Blobs(bucket, endpoint=s3_endpoint, presigned=SECONDS)) as s3_blobs:
        linked = Artifacts(redis, s3_blobs)  # with segments of the real size
        part = NewPart("file", LARGE[:7], "video/mp4", "a film.mp4")
        await linked.apply(context_id, "a", Create("task", (part, NewPart("file", b"x" * 200_000))))
        for start in range(7, len(LARGE), 3 << 20):
            await linked.apply(context_id, "a", Append(LARGE[start : start + (3 << 20)], index=0))
        for index in range(2):
            assert await linked.link(context_id, "a", index, TERMS) is None
        await linked.apply(context_id, "a", Complete())
        for index, content in enumerate([LARGE, b"x" * 200_000]):
            url = await linked.link(context_id, "a", index, TERMS)
            assert url
            async with httpx.AsyncClient() as client:
                answer = await client.get(url)
            assert answer.content == content
            assert await read(linked, context_id, "a", index) == content
            assert answer.headers["content-type"] == TERMS.media_type
            assert answer.headers["content-disposition"] == TERMS.disposition
        text = await redis.get(ArtifactAddress(context_id, "a").record_key)
        keys = ArtifactRecord.model_validate_json(str(text)).blob_keys()
        assert len(keys) == 3 + 1 + 1
        for id_, index, error in (("a", 2, PartIndexError), ("b", 0, ArtifactMissingError)):
            with pytest.raises(error):
                await linked.link(context_id, id_, index, TERMS)
        await linked.delete_artifact(context_id, "a")
        for key in keys:
            with pytest.raises(BlobMissingError):
                await s3_blobs.get(key)
