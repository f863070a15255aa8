"""Changes of an artifact that fail in the middle, and their remains."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from redis.asyncio import Redis

from everloop.stores.artifacts.artifact_blobs import PENDING_TIME
from everloop.stores.artifacts.changes import (
    AddParts,
    Append,
    Change,
    Complete,
    Create,
    Fail,
    NewPart,
    Replace,
)
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.keys import PENDING_BLOBS_KEY
from everloop.stores.retention.artifacts import ExpiredArtifacts, PendingBlobs
from everloop.workflows.contract.artifacts import StoredArtifact
from tests.stores.artifacts.artifact_rig import SEGMENT, ArtifactRig, redis_artifacts
from tests.stores.blobs.blob_rig import open_rig
from tests.stores.blobs.failing_blobs import FailingBlobs

BEGINNING: Sequence[Change] = [Create("task", (NewPart("file", b"0" * 150),)), Append(b"tail")]
"""Makes an artifact with a segment, which the next flush puts again, and a tail."""

CHANGES: Mapping[str, Change] = {
    "append": Append(b"1" * SEGMENT),
    "append last": Append(b"1" * (3 * SEGMENT), last_chunk=True),
    "add parts": AddParts((NewPart("file", b"1" * 900), NewPart("file", b"2" * 900))),
    "replace": Replace(0, NewPart("file", b"1" * 900)),
    "override": Create("task", (NewPart("file", b"1" * 500),), override=True),
    "complete": Complete(),
    "fail": Fail(),
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
FLUSHES = {name: change for name, change in CHANGES.items() if not isinstance(change, Fail)}
each_flush = pytest.mark.parametrize("change", FLUSHES.values(), ids=FLUSHES)
"""Changes that put blobs."""


def local_rig(redis: Redis, request: pytest.FixtureRequest) -> ArtifactRig:
    """Return a store whose blobs are in a directory."""
    return redis_artifacts(redis, open_rig("local", request))


def with_blobs(rig: ArtifactRig, blobs: FailingBlobs) -> ArtifactRig:
    """Return the store of a process with these blobs."""
    other = redis_artifacts(rig.redis, rig.blob_rig, rig.clock, blobs=blobs)
    return replace(other, context_id=rig.context_id, task_id=rig.task_id)


async def apply(rig: ArtifactRig, change: Change, operation_id: str = "") -> StoredArtifact:
    return await rig.artifacts.apply(rig.context_id, "a", change, operation_id=operation_id)


async def begin(rig: ArtifactRig) -> None:
    for change in BEGINNING:
        await apply(rig, change)


async def contents(rig: ArtifactRig) -> list[bytes]:
    artifact = await rig.artifacts.get_artifact(rig.context_id, "a")
    return [await rig.content("a", index) for index in range(len(artifact.parts))]


def expected_contents(change: Change) -> list[bytes]:
    begun = b"0" * 150 + b"tail"
    match change:
        case Append():
            return [begun + change.content]
        case AddParts():
            return [begun, *(part.content for part in change.parts)]
        case Replace():
            return [change.part.content]
        case Create():
            return [part.content for part in change.parts]
        case _:
            return [begun]


def kept_blobs(rig: ArtifactRig) -> set[str]:
    """Return the keys of all blobs of artifacts."""
    assert isinstance(rig.blobs, LocalBlobs)
    directory = rig.blobs.directory
    return {str(path.relative_to(directory)) for path in directory.glob("artifact/*/*")}


async def named_blobs(rig: ArtifactRig) -> set[str]:
    return set((await rig.record("a")).blob_keys())


async def housekeep(rig: ArtifactRig, *, later: timedelta = PENDING_TIME) -> tuple[int, int]:
    """Run the housekeeping as if this much time had passed since blobs became unreferenced."""
    for pending in cast("list[str]", await rig.redis.zrange(PENDING_BLOBS_KEY, 0, -1)):
        await rig.redis.zincrby(PENDING_BLOBS_KEY, -later.total_seconds(), pending)
        for key in cast("list[str]", await rig.redis.zrange(pending, 0, -1)):
            await rig.redis.zincrby(pending, -later.total_seconds(), key)
    expired, pending = (
        ExpiredArtifacts(rig.redis, rig.blobs, clock=rig.clock),
        PendingBlobs(rig.redis, rig.blobs),
    )
    return (await expired.clean()).removed, (await pending.clean()).removed
