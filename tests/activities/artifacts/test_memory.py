"""How much memory a tool takes that writes much: a few pieces."""

import hashlib
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.layout import SEGMENT_BYTES
from everloop.stores.artifacts.redis import RedisArtifacts
from everloop.stores.artifacts.rendering import RENDERED_BYTES
from everloop.stores.blobs.local import LocalBlobs
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.messages import FilePart, StoredPart
from tests.support.rigs.artifact_rig import CONTEXT, MIB, shown
from tests.support.rigs.tool_rig import ToolRig

MEGABYTES = 60
"""What is written as one file."""

PIECES = 8 * SEGMENT_BYTES
"""What that may take: two thirds of it. One piece is filled, one is sent, each is copied on its way, and on a
busy machine more of them are held at once."""

TEXTS = 30
"""As many megabytes, of which half may be held."""


@tool(idempotent=True, timeout=timedelta(minutes=4))
async def write_much(context: ToolContext) -> str:
    """Write a file of 60 MB, in large and in small pieces."""
    await context.artifacts.write_file("a", _much())
    return "written"


@tool(idempotent=True, timeout=timedelta(minutes=4))
async def write_many(context: ToolContext) -> str:
    """Write 30 texts, each as long as can be shown."""
    for number in range(TEXTS):
        await context.artifacts.write_file(f"text-{number}", "x" * RENDERED_BYTES)
    return "written"


def _much() -> Iterator[bytes]:
    for number in range(MEGABYTES):
        if number % 8:
            yield bytes([number]) * MIB
        else:
            yield from (bytes([number]) * 1024 for _ in range(1024))


async def test_a_stream_of_any_size_takes_little_memory(redis_url: str, tmp_path: Path) -> None:
    """The peak while 60 MB are written is that of a few pieces."""
    async with connect_redis(redis_url) as redis:
        views = RedisTaskViews(redis)
        with closing(LocalBlobs(tmp_path)) as blobs:
            stores = RedisArtifacts(redis, blobs, views)
            rig = ToolRig(write_much, views=views, artifacts=stores)
            tracemalloc.start()
            result = await rig.run(rig.call("write_much", wait=240))
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()

            assert result.outcome == "ok", result.content
            assert peak < PIECES
            digest = hashlib.sha256()
            async for piece in stores.read_part(CONTEXT, "a"):
                digest.update(piece)
            assert digest.hexdigest() == hashlib.sha256(b"".join(_much())).hexdigest()
            assert await shown(rig, "a") == (
                FilePart(size=MEGABYTES * MIB, stored=StoredPart(artifact_id="a")),
            )
            await stores.delete_artifact(CONTEXT, "a")


async def test_any_number_of_artifacts_takes_little_memory(redis_url: str, tmp_path: Path) -> None:
    """What a call has completed, it forgets."""
    async with connect_redis(redis_url) as redis:
        views = RedisTaskViews(redis)
        with closing(LocalBlobs(tmp_path)) as blobs:
            stores = RedisArtifacts(redis, blobs, views)
            rig = ToolRig(write_many, views=views, artifacts=stores)
            tracemalloc.start()
            result = await rig.run(rig.call("write_many", wait=240))
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert len(result.artifacts) == TEXTS
            assert peak < TEXTS * RENDERED_BYTES / 2
            for artifact_id in result.artifacts:
                await stores.delete_artifact(CONTEXT, artifact_id)
