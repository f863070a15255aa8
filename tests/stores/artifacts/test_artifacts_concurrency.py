"""Several writers of one artifact at once do one another no harm."""

import asyncio

from everloop.stores.artifacts.interface import Append, Change, Create, NewPart
from everloop.workflows.contract.artifacts import StoredArtifact
from tests.stores.artifacts.artifact_benches import ArtifactBench


def text(content: bytes = b"text") -> NewPart:
    return NewPart("text", content)


async def create(bench: ArtifactBench, *parts: NewPart, artifact_id: str = "a") -> StoredArtifact:
    return await bench.artifacts.apply(bench.context_id, artifact_id, Create(bench.task_id, parts))


async def apply(bench: ArtifactBench, change: Change, operation_id: str = "") -> StoredArtifact:
    return await bench.artifacts.apply(bench.context_id, "a", change, operation_id=operation_id)


async def test_two_writers_at_once_both_land(artifact_bench: ArtifactBench) -> None:
    """Changes at the same time are made one after the other: all are there, each whole, each told once."""
    bench, told = artifact_bench, artifact_bench.announcement()
    await create(bench, text(b""))
    pieces = [bytes([letter]) * 90 for letter in b"abcdefghij"]
    await asyncio.gather(
        *(bench.artifacts.apply(bench.context_id, "a", Append(piece), announcement=told) for piece in pieces)
    )
    content = await bench.content("a")
    assert sorted(content[at : at + 90] for at in range(0, len(content), 90)) == pieces
    assert await bench.told() == [f"{version} → {version + 1}" for version in range(1, 11)]


async def test_repeated_operation_at_once_lands_once(artifact_bench: ArtifactBench) -> None:
    """The same operation from two processes at once is made by one of them, and both hear what came of it."""
    await create(artifact_bench, text(b""))
    results = await asyncio.gather(
        *(apply(artifact_bench, Append(b"x" * 300), operation_id="o") for _ in range(4))
    )
    assert len({result.version for result in results}) == 1
    assert await artifact_bench.content("a") == b"x" * 300
