"""The cache before a store answers for a moment, and never with what its own changes made untrue."""

import asyncio
from uuid import uuid4

import pytest

from everloop.runtime.blobs import LinkTerms
from everloop.stores.artifacts.cached import CachedArtifacts
from everloop.stores.artifacts.interface import (
    Append,
    ArtifactClosedError,
    ArtifactMissingError,
    Artifacts,
    Complete,
    Create,
    NewPart,
)
from everloop.workflows.contract.artifacts import StoredArtifact
from tests.stores.artifact_benches import ArtifactBench, read
from tests.support.memory.artifacts import MemoryArtifacts

CREATE = Create("task", (NewPart("text", b"x"),))


class WatchedArtifacts(MemoryArtifacts):
    """Counts how often it is asked, and answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        self.asked += 1
        self.was_asked.set()
        found = await super().get_artifact(context_id, artifact_id)
        await self.may_answer.wait()
        return found


class Seconds:
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_answers_from_memory_for_a_moment() -> None:
    """Within its seconds the cache does not ask again; then it sees what others changed."""
    store, clock = WatchedArtifacts(), Seconds()
    cached = CachedArtifacts(store, seconds=2, clock=clock)
    await store.apply("c", "a", CREATE)
    for _ in range(3):
        assert (await cached.get_artifact("c", "a")).version == 1
    await store.apply("c", "a", Append(b"y"))
    assert (await cached.get_artifact("c", "a")).version == 1
    assert store.asked == 1
    clock.now = 2
    assert (await cached.get_artifact("c", "a")).version == 2


async def test_own_changes_are_seen_at_once() -> None:
    """After a change, also one that fails, and after deletion the store is asked again."""
    store = WatchedArtifacts()
    cached = CachedArtifacts(store)
    await cached.apply("c", "a", CREATE)
    assert (await cached.get_artifact("c", "a")).version == 1
    await cached.apply("c", "a", Append(b"y"))
    assert (await cached.get_artifact("c", "a")).version == 2
    await store.apply("c", "a", Complete())
    with pytest.raises(ArtifactClosedError):
        await cached.apply("c", "a", Append(b"z"))
    assert (await cached.get_artifact("c", "a")).version == 3
    await cached.delete_artifact("c", "a")
    with pytest.raises(ArtifactMissingError):
        await cached.get_artifact("c", "a")


async def test_answer_from_before_a_change_is_not_kept() -> None:
    """An answer that was under way when the artifact changed is given, and not remembered."""
    store = WatchedArtifacts()
    cached = CachedArtifacts(store)
    await cached.apply("c", "a", CREATE)
    store.may_answer.clear()
    asking = asyncio.create_task(cached.get_artifact("c", "a"))
    await store.was_asked.wait()
    await cached.apply("c", "a", Append(b"y"))
    store.may_answer.set()
    assert (await asking).version == 1
    assert (await cached.get_artifact("c", "a")).version == 2


async def test_missing_is_not_remembered_and_contexts_are_apart() -> None:
    """What was missing is found as soon as another process made it, in its context alone."""
    store = WatchedArtifacts()
    cached = CachedArtifacts(store)
    with pytest.raises(ArtifactMissingError):
        await cached.get_artifact("c", "a")
    await store.apply("c", "a", CREATE)
    assert await cached.get_artifact("c", "a")
    with pytest.raises(ArtifactMissingError):
        await cached.get_artifact("d", "a")


async def test_cache_is_bounded() -> None:
    """The artifact that was looked up longest ago makes room for the next one."""
    store = WatchedArtifacts()
    cached = CachedArtifacts(store, size=2)
    for artifact_id in ("a", "b", "c"):
        await store.apply("c", artifact_id, CREATE)
        await cached.get_artifact("c", artifact_id)
    for artifact_id, asked in [("c", 3), ("b", 3), ("a", 4)]:
        await cached.get_artifact("c", artifact_id)
        assert store.asked == asked


@pytest.fixture
def cached(artifact_bench: ArtifactBench) -> Artifacts:
    return CachedArtifacts(artifact_bench.artifacts)


async def test_everything_else_goes_to_the_store(cached: Artifacts) -> None:
    """Content, lists and links come from the store behind the cache, typed methods included."""
    context_id = f"owner:{uuid4()}"
    await cached.create_file_artifact(context_id, "a", "x" * 150, task_id="t")
    await cached.append_file_chunk(context_id, "a", "y", is_last_chunk=True)
    assert await read(cached, context_id, "a") == b"x" * 150 + b"y"
    pieces = cached.read_part(context_id, "a", start=149, end=151)
    assert b"".join([piece async for piece in pieces]) == b"xy"
    assert [found.version for found in await cached.list_artifacts(context_id, "t")] == [2]
    assert await cached.list_artifacts(context_id, "other") == []
    assert await cached.link(context_id, "a", 0, LinkTerms("text/plain", "attachment", 60)) is None
