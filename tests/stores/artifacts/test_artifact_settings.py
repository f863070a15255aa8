"""The settings say the limits of the artifact store, and what is wrong with them."""

from uuid import uuid4

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from everloop.runtime.settings import explain
from everloop.stores.artifacts.interface import Create, NewPart
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord
from everloop.stores.artifacts.redis import ArtifactSettings, make_artifacts
from everloop.stores.views.redis import RedisTaskViews
from tests.support.memory.blobs import MemoryBlobs


@pytest.mark.parametrize(
    ("settings", "inline", "days"),
    [
        (ArtifactSettings(), 100_000, 30),
        (ArtifactSettings(artifact_inline_bytes=5, artifact_ttl_days=7), 5, 7),
    ],
)
async def test_settings_reach_the_store(
    redis: Redis, settings: dict[str, int], inline: int, days: int
) -> None:
    """They say how much stays inline, and how long artifacts live: 100,000 bytes and 30 days without any."""
    artifacts = make_artifacts(
        ArtifactSettings.model_validate(settings), redis, MemoryBlobs(), RedisTaskViews(redis)
    )
    context_id = f"owner:{uuid4()}"
    parts = (NewPart("file", bytes(inline)), NewPart("file", bytes(inline + 1)))
    await artifacts.apply(context_id, "a", Create("task", parts))
    text = str(await redis.get(ArtifactAddress(context_id, "a").record_key))
    record = ArtifactRecord.model_validate_json(text)
    assert [len(content.segments) for content in record.contents] == [0, 1]
    assert (record.expires_at - record.artifact.updated_at).days == days


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"artifact_inline_bytes": -1}, "EVERLOOP_ARTIFACT_INLINE_BYTES"),
        ({"artifact_inline_bytes": 5_242_881}, "EVERLOOP_ARTIFACT_INLINE_BYTES"),
        ({"artifact_ttl_days": 0}, "EVERLOOP_ARTIFACT_TTL_DAYS"),
        ({"artifact_ttl_days": 10**9}, "EVERLOOP_ARTIFACT_TTL_DAYS"),
    ],
)
def test_wrong_settings_name_the_variable(settings: dict[str, object], variable: str) -> None:
    """What does not fit is explained in one line that begins with the variable."""
    with pytest.raises(ValidationError) as raised:
        ArtifactSettings.model_validate(settings)
    assert explain(raised.value).startswith(variable)
