"""The settings say the limits of the artifact store."""

from uuid import uuid4

import pytest
from redis.asyncio import Redis

from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord
from everloop.stores.artifacts.store import ArtifactSettings, make_artifacts
from everloop.stores.views.store import TaskViews
from tests.support.memory.blobs import MemoryBlobs


@pytest.mark.parametrize(("inline", "days"), [(100_000, 30), (5, 7)])
async def test_settings_reach_the_store(redis: Redis, inline: int, days: int) -> None:
    """They say how much stays inline, and how long artifacts live: 100,000 bytes and 30 days without any."""
    settings = ArtifactSettings(artifact_inline_bytes=inline, artifact_ttl_days=days)
    assert (settings == ArtifactSettings()) is (days == 30)
    artifacts = make_artifacts(settings, redis, MemoryBlobs(), TaskViews(redis))
    context_id = f"owner:{uuid4()}"
    parts = (NewPart("file", bytes(inline)), NewPart("file", bytes(inline + 1)))
    await artifacts.apply(context_id, "a", Create("task", parts))
    text = str(await redis.get(ArtifactAddress(context_id, "a").record_key))
    record = ArtifactRecord.model_validate_json(text)
    assert [len(content.segments) for content in record.contents] == [0, 1]
    assert (record.expires_at - record.artifact.updated_at).days == days
