"""Datasets, data and artifacts of several parts that tools write."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import JsonValue

from everloop.agents.tool_context import Row, ToolContext
from everloop.stores.artifacts.interface import Append, Create
from everloop.workflows.contract.artifacts import ArtifactStatus
from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.messages import DataPart, FilePart, Part, StoredPart, TextPart
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.artifact_rig import Act, RecordingArtifacts, content_of, run_tool, shown, stored


@pytest.fixture
def recording() -> RecordingArtifacts:
    return RecordingArtifacts(MemoryTaskViews())


def _content_of(change: object) -> bytes:
    if isinstance(change, Create):
        return change.parts[0].content
    return change.content if isinstance(change, Append) else b""


ROWS: list[Row] = [{"n": 1, "s": "é\n"}, {"n": 2, "s": None}]


async def _row_stream() -> AsyncIterator[Row]:
    for row in ROWS:
        yield row


@pytest.mark.parametrize(
    "rows", [lambda: ROWS, lambda: iter(ROWS), _row_stream], ids=["list", "iterator", "stream"]
)
async def test_rows_come_back_as_they_were_written(rows: Callable[[], list[Row]]) -> None:
    """From a list, an iterator or a stream."""
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
    """The rows before it stay."""
    schema: dict[str, JsonValue] = {"properties": {"n": {"type": "integer"}}}
    rig, result = await run_tool(
        lambda context: context.artifacts.write_rows("a", iter([{"n": 1}, {"n": "x"}]), schema=schema)
    )
    assert "RowInvalidError" in result.content
    artifact = await stored(rig, "a")
    assert (artifact.status, artifact.parts[0].rows) == (ArtifactStatus.FAILED, 1)


async def test_a_row_that_is_refused_later_is_not_lost(recording: RecordingArtifacts) -> None:
    """The stream has ended before anybody could be told."""
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


async def test_many_rows_are_written_in_batches(recording: RecordingArtifacts) -> None:
    """The store checks each row; it does not get too many at once."""
    rig, _ = await run_tool(
        lambda context: context.artifacts.write_rows("a", [{"n": n} for n in range(2_500)]), recording
    )
    assert (await stored(rig, "a")).parts[0].rows == 2_500
    assert max(_content_of(change).count(b"\n") for change in recording.changes) == 1_000


async def test_data_is_written_at_once() -> None:
    """Any JSON value; what is none is refused."""
    rig, _ = await run_tool(lambda context: context.artifacts.write_data("a", {"é": [1, None]}))
    assert await shown(rig, "a") == (DataPart(data={"é": [1, None]}),)
    _, result = await run_tool(lambda context: context.artifacts.write_data("a", float("nan")))
    assert result.outcome == "error"


PARTS: tuple[Part, ...] = (
    TextPart(text="a", media_type="text/markdown", filename="a.md"),
    DataPart(data={"b": 1}),
    FilePart(media_type="image/png", filename="c.png", size=1, content="Yw=="),
)


async def test_an_artifact_of_several_parts_is_shown_as_it_was_made() -> None:
    """Text, data and files."""
    rig, _ = await run_tool(lambda context: context.artifacts.create("a", PARTS, name="N"))
    assert await shown(rig, "a") == PARTS
    assert [part.kind for part in (await stored(rig, "a")).parts] == ["text", "data", "file"]


async def test_parts_are_appended_as_a2a_does() -> None:
    """A text continues a last part that is text, and everything else is a part of its own."""

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


async def test_a_url_stays_one() -> None:
    """What it points to is not fetched, and a text that is appended is a part of its own."""
    page = FilePart(url="https://x.example/", media_type="text/html", filename="x.html")

    async def act(context: ToolContext) -> None:
        await context.artifacts.create("a", [page], complete=False)
        await context.artifacts.append("a", [TextPart(text="b")])

    rig, result = await run_tool(act)
    assert result.outcome == "ok", result.content
    assert await shown(rig, "a") == (page, TextPart(text="b"))
    part = (await stored(rig, "a")).parts[0]
    assert (part.url, part.media_type, part.filename, part.size) == (page.url, "text/html", "x.html", 0)


REFUSED: dict[str, Act] = {
    "the id of the answer": lambda context: context.artifacts.write_file(RESPONSE_ARTIFACT, "x"),
    "no id": lambda context: context.artifacts.write_file("", "x"),
    "an id that is taken": lambda context: context.artifacts.create("a", [], override=False),
    "an artifact that does not exist": lambda context: context.artifacts.append("b", [TextPart(text="x")]),
    "one that is complete": lambda context: context.artifacts.append("a", [TextPart(text="x")]),
    "half a character": lambda context: context.artifacts.write_file("b", "\ud800"),
    "no base64": lambda context: context.artifacts.create("b", [FilePart(content="Yw==!")]),
    "the part of another artifact": lambda context: context.artifacts.create(
        "b", [FilePart(stored=StoredPart(artifact_id="a"))]
    ),
}


@pytest.mark.parametrize("act", REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_refused_changes_nothing(act: Act) -> None:
    """The model reads why."""

    async def both(context: ToolContext) -> None:
        await context.artifacts.create("a", [TextPart(text="a")])
        await act(context)

    rig, result = await run_tool(both)
    assert result.outcome == "error"
    assert result.artifacts == ("a",)
    assert await content_of(rig, "a") == b"a"
    assert len(await rig.artifacts.list_artifacts("owner:c")) == 1


async def test_artifacts_can_be_listed_read_completed_and_deleted() -> None:
    """What the call has deleted is none that it wrote."""

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
