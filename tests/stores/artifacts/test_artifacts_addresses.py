"""Every id in every context is an artifact of its own."""

import pytest

from everloop.runtime.blobs import LinkTerms
from everloop.stores.artifacts.interface import Append, ArtifactIdError, ArtifactMissingError, Create, NewPart
from everloop.workflows.contract.artifacts import StoredArtifact
from tests.stores.artifacts.artifact_benches import ArtifactBench, read

STRANGE_IDS = ["a b", "a:b", "a/../b", "ünï:☃", "%3A", "{x}", "*", "a" * 255, "tail:0"]


def text(content: bytes = b"text") -> NewPart:
    return NewPart("text", content)


def file(content: bytes) -> NewPart:
    return NewPart("file", content, "application/octet-stream", "x.bin")


async def create(bench: ArtifactBench, *parts: NewPart, artifact_id: str = "a") -> StoredArtifact:
    return await bench.artifacts.apply(bench.context_id, artifact_id, Create(bench.task_id, parts))


@pytest.mark.parametrize("artifact_id", STRANGE_IDS)
async def test_any_signs_make_an_id(artifact_bench: ArtifactBench, artifact_id: str) -> None:
    """An id may hold any signs that are no control characters, and is another one than all others."""
    bench = artifact_bench
    await create(bench, file(b"other"), artifact_id="a")
    await create(bench, file(b"x" * 700), artifact_id=artifact_id)
    await bench.artifacts.apply(bench.context_id, artifact_id, Append(b"y"))
    assert await bench.content(artifact_id) == b"x" * 700 + b"y"
    assert await bench.content("a") == b"other"
    await bench.artifacts.delete_artifact(bench.context_id, artifact_id)
    assert [found.artifact_id for found in await bench.artifacts.list_artifacts(bench.context_id)] == ["a"]


@pytest.mark.parametrize(
    "artifact_id", ["", ".", "..", "a\n", "\x00", "\x7f", "\x85", "a" * 256, "é" * 128, "\ud800"]
)
async def test_unusable_id_is_refused(artifact_bench: ArtifactBench, artifact_id: str) -> None:
    """Empty, too long, with control characters, or a step of a path: a ValueError says what is expected."""
    artifacts, context_id = artifact_bench.artifacts, artifact_bench.context_id
    with pytest.raises(ArtifactIdError, match="1 to 255 bytes"):
        await create(artifact_bench, text(), artifact_id=artifact_id)
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        await artifacts.get_artifact(context_id, artifact_id)
    with pytest.raises(ArtifactIdError):
        await artifacts.delete_artifact(context_id, artifact_id)
    with pytest.raises(ArtifactIdError):
        await read(artifacts, context_id, artifact_id)


async def test_contexts_are_apart(artifact_bench: ArtifactBench) -> None:
    """The artifact of another context is not there for any operation, also if the contexts look alike."""
    artifacts, context_id = artifact_bench.artifacts, artifact_bench.context_id
    await create(artifact_bench, file(b"0" * 500))
    for other in (f"{context_id}:a", context_id[:-1], f"{context_id}%3Aa", "", "expiring"):
        for call in (
            artifacts.get_artifact(other, "a"),
            artifacts.apply(other, "a", Append(b"x")),
            read(artifacts, other, "a"),
            artifacts.link(other, "a", 0, LinkTerms("text/plain", "attachment", 60)),
        ):
            with pytest.raises(ArtifactMissingError):
                await call
        await artifacts.delete_artifact(other, "a")
        assert await artifacts.list_artifacts(other) == []
    assert await artifact_bench.content("a") == b"0" * 500
