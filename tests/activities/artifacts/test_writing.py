"""Files, datasets, data and parts that tools write, in bounded memory at any size."""

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis

from everloop.agents.tool import tool
from everloop.agents.tool_context import Content, Row, ToolContext
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Append, Create
from everloop.stores.artifacts.writer import SEGMENT_BYTES
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.workflows.contract.artifacts import ArtifactStatus
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk
from everloop.workflows.contract.messages import DataPart, FilePart, StoredPartRef, TextPart
from tests.support.rigs.artifacts.rig import (
    CONTEXT,
    MIB,
    Act,
    RecordingArtifacts,
    content_of,
    run_tool,
    shown,
    stored,
)
from tests.support.rigs.tool_rig import ToolRig


@pytest.fixture
def recording() -> RecordingArtifacts:
    return RecordingArtifacts()


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
    """A file is written from any source of content, in pieces of at most a segment, and completed."""
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


async def chunks(rig: ToolRig) -> list[ArtifactChunk]:
    return [event for event in await rig.events() if isinstance(event, ArtifactChunk)]


async def test_what_is_written_goes_out_at_once_and_then_together(recording: RecordingArtifacts) -> None:
    """The first chunk is published at once; later ones are collected until the next publish."""

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
    """Wait until subscribers have read a text with this end."""
    position, text = START, ""
    while not text.endswith(end):
        for streamed in await artifacts.views.read({task_id: position}, wait=5):
            position, event = streamed.position, streamed.event
            if isinstance(event, ArtifactChunk) and isinstance(event.part, TextPart):
                text += event.part.text


async def test_a_source_that_fails_fails_the_file() -> None:
    """An error of the source fails the file, even one of a type that stores raise: it is not read again."""

    def source() -> Iterator[bytes]:
        yield b"a"
        raise OSError("disk")

    rig, result = await run_tool(lambda context: context.artifacts.write_file("a", source()))
    assert (await stored(rig, "a")).status is ArtifactStatus.FAILED
    assert result.content == "OSError: disk"


ROWS: list[Row] = [{"n": 1, "s": "é\n"}, {"n": 2, "s": None}]


async def _row_stream() -> AsyncIterator[Row]:
    for row in ROWS:
        yield row


@pytest.mark.parametrize(
    "rows", [lambda: ROWS, lambda: iter(ROWS), _row_stream], ids=["list", "iterator", "stream"]
)
async def test_rows_come_back_as_they_were_written(rows: Callable[[], list[Row]]) -> None:
    """Rows of a list, an iterator or a stream are read back unchanged."""
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}}

    async def act(context: ToolContext) -> object:
        await context.artifacts.write_rows("a", rows(), schema=schema, name="N")
        return [row async for row in context.artifacts.read_rows("a")]

    rig, result = await run_tool(act)
    assert result.content == str(ROWS)
    (part,) = (await stored(rig, "a")).parts
    assert (part.kind, part.rows, part.row_schema) == ("rows", 2, schema)
    assert [
        row for part in await shown(rig, "a") if isinstance(part, DataPart) for row in _list(part)
    ] == ROWS


def _list(part: DataPart) -> list[JsonValue]:
    assert isinstance(part.data, list)
    return part.data


async def test_a_row_that_breaks_the_schema_fails_the_dataset() -> None:
    """A row that breaks the schema fails the dataset; the rows before it stay."""
    schema: dict[str, JsonValue] = {"properties": {"n": {"type": "integer"}}}
    rig, result = await run_tool(
        lambda context: context.artifacts.write_rows("a", iter([{"n": 1}, {"n": "x"}]), schema=schema)
    )
    assert "RowInvalidError" in result.content
    artifact = await stored(rig, "a")
    assert (artifact.status, artifact.parts[0].rows) == (ArtifactStatus.FAILED, 1)


async def test_a_row_that_is_refused_later_is_not_lost(recording: RecordingArtifacts) -> None:
    """A row that is refused after the end of the stream fails the dataset, too."""
    is_refused = asyncio.Event()

    def note(number: int) -> None:
        if number == 2:
            is_refused.set()

    async def rows() -> AsyncIterator[Row]:
        yield {"n": 1}
        yield {"n": "x"}
        await is_refused.wait()

    recording.fails_before = note
    schema: dict[str, JsonValue] = {"properties": {"n": {"type": "integer"}}}
    rig, result = await run_tool(
        lambda context: context.artifacts.write_rows("a", rows(), schema=schema), recording
    )
    assert "RowInvalidError" in result.content
    assert (await stored(rig, "a")).status is ArtifactStatus.FAILED


async def test_parts_are_appended_as_a2a_does() -> None:
    """Parts are appended as in A2A: text extends a last text part, anything else becomes a new part."""

    async def act(context: ToolContext) -> None:
        artifacts = context.artifacts
        await artifacts.create("a", [TextPart(text="a")], complete=False)
        await artifacts.append("a", [TextPart(text="b"), DataPart(data=1)])
        await artifacts.append("a", [TextPart(text="c")])
        await artifacts.append("a", [TextPart(text="d", media_type="text/x"), TextPart(text="e")])
        await artifacts.append("a", [TextPart(text="f")])
        await artifacts.replace_part("a", 1, DataPart(data=2))
        await artifacts.append("a", [TextPart(text="g"), DataPart(data=3)], last_chunk=True)

    rig, result = await run_tool(act)

    assert result.outcome == "ok", result.content
    assert await shown(rig, "a") == (
        TextPart(text="ab"),
        DataPart(data=2),
        TextPart(text="c"),
        TextPart(text="defg", media_type="text/x"),
        DataPart(data=3),
    )
    artifact = await stored(rig, "a")
    assert artifact.status is ArtifactStatus.COMPLETE
    assert [part.kind for part in artifact.parts] == ["text", "data", "text", "text", "text", "data"]


REFUSED: dict[str, Act] = {
    "the id of the answer": lambda context: context.artifacts.write_file(RESPONSE_ARTIFACT, "x"),
    "no id": lambda context: context.artifacts.write_file("", "x"),
    "an id that is taken": lambda context: context.artifacts.create("a", [], override=False),
    "an artifact that does not exist": lambda context: context.artifacts.append("b", [TextPart(text="x")]),
    "one that is complete": lambda context: context.artifacts.append("a", [TextPart(text="x")]),
    "half a character": lambda context: context.artifacts.write_file("b", "\ud800"),
    "no base64": lambda context: context.artifacts.create("b", [FilePart(content="Yw==!")]),
    "the part of another artifact": lambda context: context.artifacts.create(
        "b", [FilePart(stored=StoredPartRef(artifact_id="a"))]
    ),
}


@pytest.mark.parametrize("act", REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_refused_changes_nothing(act: Act) -> None:
    """A refused write changes nothing, and the model reads why."""

    async def both(context: ToolContext) -> None:
        await context.artifacts.create("a", [TextPart(text="a")])
        await act(context)

    rig, result = await run_tool(both)
    assert result.outcome == "error"
    assert result.artifacts == ("a",)
    assert await content_of(rig, "a") == b"a"
    assert len(await rig.artifacts.list_artifacts("owner:c")) == 1


async def test_artifacts_can_be_listed_read_completed_and_deleted() -> None:
    """Artifacts can be listed, read, completed and deleted; deleted ones are not results of the call."""

    async def act(context: ToolContext) -> object:
        artifacts = context.artifacts
        await artifacts.create("a", [TextPart(text="x"), TextPart(text="y")], complete=False)
        await artifacts.write_file("b", "")
        await artifacts.delete("b")
        await artifacts.complete("a")
        content = [piece async for piece in artifacts.read("a", 1)]
        return (
            [a.artifact_id for a in await artifacts.list()],
            (await artifacts.get("a")).status.value,
            content,
        )

    _, result = await run_tool(act)
    assert result.content == "(['a'], 'complete', [b'y'])"
    assert result.artifacts == ("a",)


MEGABYTES = 60
"""The size of the file."""

PIECES = 8 * SEGMENT_BYTES
"""The most memory that writing may take: two thirds of the file.

One piece is filled, one is sent, each is copied on its way, and on a busy machine several are held at once.
"""


@tool(idempotent=True, timeout=timedelta(minutes=4))
async def write_much(context: ToolContext) -> str:
    """Write a file of 60 MB, in large and in small pieces."""
    await context.artifacts.write_file("a", _much())
    return "written"


def _much() -> Iterator[bytes]:
    for number in range(MEGABYTES):
        if number % 8:
            yield bytes([number]) * MIB
        else:
            yield from (bytes([number]) * 16_384 for _ in range(64))


async def test_a_stream_of_any_size_takes_little_memory(redis: Redis, tmp_path: Path) -> None:
    """Writing 60 MB takes the memory of a few pieces."""
    views = TaskViews(redis)
    with closing(LocalBlobs(tmp_path)) as blobs:
        stores = Artifacts(redis, blobs)
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
            FilePart(size=MEGABYTES * MIB, stored=StoredPartRef(artifact_id="a")),
        )
