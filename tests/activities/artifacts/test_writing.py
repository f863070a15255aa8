"""Files that tools write: whatever they come from and whatever their size, they are stored as they are."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from everloop.agents.tool_context import Content, ToolContext
from everloop.stores.artifacts.interface import Append, Create
from everloop.stores.artifacts.layout import SEGMENT_BYTES
from everloop.stores.views.interface import START
from everloop.workflows.contract.artifacts import ArtifactStatus
from everloop.workflows.contract.events import ArtifactChunk
from everloop.workflows.contract.messages import TextPart
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.artifact_rig import MIB, RecordingArtifacts, content_of, run_tool, stored
from tests.support.rigs.tool_rig import ToolRig


@pytest.fixture
def recording() -> RecordingArtifacts:
    return RecordingArtifacts(MemoryTaskViews())


async def _stream(*chunks: str) -> AsyncIterator[str]:
    for chunk in chunks:
        yield chunk


FILES: dict[str, tuple[Callable[[], Content], bytes, str]] = {
    "a text": (lambda: "é", "é".encode(), "text/plain"),
    "an empty text": (lambda: "", b"", "text/plain"),
    "bytes": (lambda: b"\xff", b"\xff", "application/octet-stream"),
    "no bytes": (lambda: b"", b"", "application/octet-stream"),
    "pieces of text": (lambda: ["é", "", "a"], "éa".encode(), "text/plain"),
    "pieces of bytes": (lambda: (b"%d" % n for n in range(3)), b"012", "application/octet-stream"),
    "nothing": (lambda: iter(()), b"", ""),
    "a stream": (lambda: _stream("é", "a"), "éa".encode(), "text/plain"),
    "more than a MiB of text": (lambda: "é" * MIB, "é".encode() * MIB, "text/plain"),
    "more than a MiB": (lambda: b"ab" * MIB, b"ab" * MIB, "application/octet-stream"),
    "large and small pieces": (
        lambda: (b"x" * n for n in (1, 3 * MIB + 1, 7, MIB, MIB)),
        b"x" * (5 * MIB + 9),
        "application/octet-stream",
    ),
}


@pytest.mark.parametrize(("content", "written", "media_type"), FILES.values(), ids=FILES.keys())
async def test_a_file_is_written_from_whatever_yields_it(
    recording: RecordingArtifacts, content: Callable[[], Content], written: bytes, media_type: str
) -> None:
    """It is complete in the end; the store got it in pieces of at most a segment."""
    rig, result = await run_tool(
        lambda context: context.artifacts.write_file("a", content(), filename="f", name="N", description="D"),
        recording,
    )
    artifact = await stored(rig, "a")
    assert (artifact.status, artifact.name, artifact.description) == (ArtifactStatus.COMPLETE, "N", "D")
    assert artifact.task_id == rig.task_id
    assert (artifact.parts[0].media_type, artifact.parts[0].filename) == (media_type, "f")
    assert await content_of(rig, "a") == written
    assert max(len(_content_of(change)) for change in recording.changes) <= SEGMENT_BYTES
    assert result.artifacts == ("a",)


def _content_of(change: object) -> bytes:
    if isinstance(change, Create):
        return change.parts[0].content
    return change.content if isinstance(change, Append) else b""


@pytest.mark.parametrize("content", ["text", b"bytes"])
async def test_a_small_file_is_one_change_and_one_event(content: str | bytes) -> None:
    """Nothing is told of it before it is whole."""
    rig, _ = await run_tool(lambda context: context.artifacts.write_file("a", content))
    (told,) = await chunks(rig)
    assert told.last_chunk
    assert (await stored(rig, "a")).version == 1


async def chunks(rig: ToolRig) -> list[ArtifactChunk]:
    return [event for event in await rig.events() if isinstance(event, ArtifactChunk)]


async def test_what_is_written_goes_out_at_once_and_then_together(recording: RecordingArtifacts) -> None:
    """The first chunk does not wait; what follows waits for the next moment, and for nothing else."""

    async def act(context: ToolContext) -> None:
        async with context.artifacts.open_file("a", media_type="text/plain") as file:
            await file.write("first")
            assert await _content(context) == b"first"
            for number in range(500):
                await file.write(f" {number}")
            await rig_saw(recording, context.task_id, "499")

    rig, result = await run_tool(act, recording)
    assert result.outcome == "ok", result.content
    assert await content_of(rig, "a") == b"first" + b"".join(b" %d" % n for n in range(500))
    assert len(recording.changes) < 250


async def _content(context: ToolContext) -> bytes:
    return b"".join([piece async for piece in context.artifacts.read("a")])


async def rig_saw(artifacts: RecordingArtifacts, task_id: str, end: str) -> None:
    """Wait until subscribers have read a text that ends so."""
    position, text = START, ""
    while not text.endswith(end):
        for streamed in await artifacts.views.read({task_id: position}, wait=5):
            position, event = streamed.position, streamed.event
            if isinstance(event, ArtifactChunk) and isinstance(event.part, TextPart):
                text += event.part.text


async def test_a_file_whose_writing_raises_has_failed() -> None:
    """What was written stays; whoever reads it sees that it is not whole. It is no result of the call."""

    async def act(context: ToolContext) -> None:
        async with context.artifacts.open_file("a") as file:
            await file.write("half")
            raise RuntimeError("no more")

    rig, result = await run_tool(act)
    assert (await stored(rig, "a")).status is ArtifactStatus.FAILED
    assert await content_of(rig, "a") == b"half"
    assert (result.outcome, result.artifacts) == ("error", ())
    assert "no more" in result.content


async def test_a_source_that_fails_fails_the_file() -> None:
    """Also an error that stores raise as well: the source is not read again."""

    def source() -> Iterator[bytes]:
        yield b"a"
        raise OSError("disk")

    rig, result = await run_tool(lambda context: context.artifacts.write_file("a", source()))
    assert (await stored(rig, "a")).status is ArtifactStatus.FAILED
    assert result.content == "OSError: disk"
