"""Artifacts of tools when stores go away, calls are repeated, attempts overlap: nothing lost or doubled."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.testing import ActivityEnvironment

from everloop.agents.artifact_drafts import ArtifactDraft
from everloop.agents.tool import Tool, tool
from everloop.agents.tool_context import ToolContext
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.leases import OvertakenError
from everloop.workflows.contract.artifacts import ArtifactStatus
from everloop.workflows.contract.events import ArtifactChunk
from everloop.workflows.contract.messages import DataPart, FilePart, StoredPart, TextPart, ToolMessage
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.memory.tool_records import MemoryToolRecords
from tests.support.rigs.artifact_rig import CONTEXT, MIB, RecordingArtifacts, content_of, shown, stored
from tests.support.rigs.tool_rig import ToolRig

AWAY = [BlobsUnavailableError("S3", "away"), RedisConnectionError("away"), ConnectionResetError("away")]


@tool(idempotent=True)
async def write_thrice(context: ToolContext) -> str:
    """Write a file in three pieces."""
    await context.artifacts.write_file("a", (b"x" * MIB for _ in range(3)))
    return "written"


@pytest.fixture
def artifacts() -> RecordingArtifacts:
    return RecordingArtifacts(MemoryTaskViews())


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("moment", ["fails_before", "fails_after"])
@pytest.mark.parametrize("number", [1, 2, 4])
async def test_a_store_that_is_away_is_waited_for(
    artifacts: RecordingArtifacts, error: Exception, moment: str, number: int
) -> None:
    """Whether a change was made when its answer was lost or not, it is made once."""

    def fail(at: int) -> Exception | None:
        return error if at == number else None

    setattr(artifacts, moment, fail)
    rig = ToolRig(write_thrice, views=artifacts.views, artifacts=artifacts)
    result = await rig.run(rig.call("write_thrice"))
    assert result.outcome == "ok", result.content
    assert await content_of(rig, "a") == b"x" * (3 * MIB)
    assert (await stored(rig, "a")).status is ArtifactStatus.COMPLETE
    assert await shown(rig, "a") == (FilePart(size=3 * MIB, stored=StoredPart(artifact_id="a")),)


async def test_the_time_of_the_tool_ends_the_waiting(artifacts: RecordingArtifacts) -> None:
    """The model hears of it, and not where the store is."""
    artifacts.fails_before = lambda _: RedisConnectionError("redis.internal refuses")
    rig = ToolRig(write_thrice, views=artifacts.views, artifacts=artifacts)
    result = await rig.run(rig.call("write_thrice", wait=0.3))
    assert (result.outcome, result.artifacts) == ("error", ())
    assert result.content == "write_thrice did not finish within 0.3 s"


async def test_reading_goes_on_where_it_was(artifacts: RecordingArtifacts) -> None:
    """A store that goes away in the middle is waited for, and no byte comes twice."""

    class Interrupted(RecordingArtifacts):
        is_there = False

        async def read_part(
            self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            async for piece in super().read_part(context_id, artifact_id, index, start=start, end=end):
                yield piece
                if not self.is_there:
                    self.is_there = True
                    raise RedisConnectionError

    @tool
    async def read(context: ToolContext) -> str:
        """Read."""
        await context.artifacts.write_file("a", b"ab" * MIB, media_type="image/png")
        content = b"".join([piece async for piece in context.artifacts.read("a")])
        return str(content == b"ab" * MIB)

    rig = ToolRig(read, views=artifacts.views, artifacts=Interrupted(artifacts.views))

    assert (await rig.run(rig.call("read"))).content == "True"


async def test_an_attempt_that_was_taken_for_lost_does_not_disturb_the_next(
    artifacts: RecordingArtifacts,
) -> None:
    """Neither its pieces nor its failure get into what the next one writes, and its outcome is not kept."""
    began = {1: asyncio.Event(), 2: asyncio.Event()}
    goes_on = {1: asyncio.Event(), 2: asyncio.Event()}

    @tool(idempotent=True)
    async def write(context: ToolContext) -> str:
        """Write."""
        async with context.artifacts.open_file("a") as file:
            await file.write(f"begun by {context.attempt}, ")
            began[context.attempt].set()
            await goes_on[context.attempt].wait()
            await file.write(f"ended by {context.attempt}")
        return "written"

    rig = ToolRig(write, views=artifacts.views, artifacts=artifacts)
    lost = asyncio.create_task(rig.attempt_call(rig.call("write")))
    await began[1].wait()
    await rig.take_for_lost(rig.call("write"))
    following = asyncio.create_task(rig.attempt_call(rig.call("write")))
    await began[2].wait()
    goes_on[1].set()
    with pytest.raises(OvertakenError):
        await lost
    goes_on[2].set()
    result = await following

    assert isinstance(result, ToolMessage)
    assert (result.content, result.artifacts) == ("written", ("a",))
    assert await content_of(rig, "a") == b"begun by 2, ended by 2"
    assert await shown(rig, "a") == (TextPart(text="begun by 2, ended by 2", media_type="text/plain"),)
    assert (await stored(rig, "a")).status is ArtifactStatus.COMPLETE


@tool
async def write_twice(context: ToolContext) -> str:
    """Write two artifacts."""
    await context.artifacts.write_file("b", "x")
    await context.artifacts.write_file("a", "x")
    await context.artifacts.write_file("b", "y")
    return "written"


async def test_the_record_of_a_call_holds_what_it_wrote(artifacts: RecordingArtifacts) -> None:
    """An attempt after a crash returns the recorded result, with the ids, and writes nothing."""
    rig = ToolRig(write_twice, views=artifacts.views, artifacts=artifacts)
    first = await rig.run(rig.call("write_twice"))
    count = len(artifacts.changes)
    again = await rig.run(rig.call("write_twice"))
    assert again == first
    assert again.artifacts == ("b", "a")
    assert len(artifacts.changes) == count


def _drafting(drafted: Tool) -> Tool:
    """Return a tool of the artifacts plugin's kind: its arguments tell what it writes."""

    def read(_written: str) -> ArtifactDraft:
        return ArtifactDraft("a", extends=True)

    return replace(drafted, draft_of=read)


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_tool_that_tells_what_it_writes_does_it_once(
    artifacts: RecordingArtifacts, parts: int
) -> None:
    """The worker was lost before the outcome was recorded; the store knows the call."""

    @tool(idempotent=True)
    async def append(context: ToolContext) -> str:
        """Append."""
        return str(
            (await context.artifacts.append("a", [TextPart(text="b"), DataPart(data=1)][:parts])).version
        )

    records = [MemoryToolRecords(), MemoryToolRecords()]
    first, second = (
        ToolRig(_drafting(append), views=artifacts.views, artifacts=artifacts, records=each)
        for each in records
    )
    second.task_id = first.task_id
    await artifacts.apply(CONTEXT, "a", Create(first.task_id, (NewPart("text", b"a"),)))

    results = [await rig.run(rig.call("append")) for rig in (first, second)]

    assert results[0] == results[1]
    assert results[0].artifacts == ("a",)
    assert await content_of(first, "a") == b"ab"
    assert len((await stored(first, "a")).parts) == parts


async def test_any_other_tool_that_runs_again_does_it_again(artifacts: RecordingArtifacts) -> None:
    """Nobody knows whether it would do the same; what it makes anew is made anew."""
    said = iter(["first", "second"])

    @tool(idempotent=True)
    async def write(context: ToolContext) -> str:
        """Write."""
        await context.artifacts.create("a", [TextPart(text="It is the ")], complete=False)
        await context.artifacts.append("a", [TextPart(text=next(said))])
        return "written"

    rig, other = (ToolRig(write, views=artifacts.views, artifacts=artifacts) for _ in range(2))
    other.task_id = rig.task_id
    await rig.run(rig.call("write"))
    await other.run(other.call("write"))
    assert await content_of(rig, "a") == b"It is the second"


@tool
async def refuse(context: ToolContext) -> str:
    """Fail."""
    raise ValueError("no")


async def test_what_the_model_has_shown_of_a_failed_call_is_taken_back(artifacts: RecordingArtifacts) -> None:
    """Subscribers see again what is stored."""
    rig = ToolRig(_drafting(refuse), views=artifacts.views, artifacts=artifacts)
    draft = ArtifactChunk(
        artifact_id="a", position=2, attempt=10, index=0, part=TextPart(text="never stored")
    )
    await artifacts.views.publish(rig.task_id, "run", [draft])
    await rig.run(rig.call("refuse").model_copy(update={"reply": 2}))
    assert await shown(rig, "a") == (TextPart(text=""),)


async def test_a_call_that_an_earlier_run_has_made_is_told_in_this_one(artifacts: RecordingArtifacts) -> None:
    """The task was reset: the model writes it anew, the tool does not, and the artifact is complete again."""

    @tool
    async def write(context: ToolContext) -> str:
        """Write."""
        return str(await context.artifacts.create("a", [TextPart(text="Half a poem.")]))

    rig = ToolRig(_drafting(write), views=artifacts.views, artifacts=artifacts)
    call = rig.call("write").model_copy(update={"reply": 2})
    await rig.run(call)
    draft = ArtifactChunk(
        artifact_id="a", position=2, attempt=10, index=0, part=TextPart(text="Half a poem.")
    )
    await artifacts.views.publish(rig.task_id, "next run", [draft])

    task = call.task.model_copy(update={"run_id": "next run"})
    result = await rig.run(call.model_copy(update={"task": task}))

    found = await artifacts.views.artifact(rig.task_id, "a")
    assert found
    assert (result.artifacts, found.artifact.complete) == (("a",), True)
    assert await shown(rig, "a") == (TextPart(text="Half a poem."),)
    assert len(artifacts.changes) == 1


@pytest.mark.parametrize("way", ["timeout", "cancellation"])
async def test_a_file_that_is_cut_off_has_failed(artifacts: RecordingArtifacts, way: str) -> None:
    """By the time of the tool, or because the task is cancelled; what was written stays."""
    began = asyncio.Event()

    @tool
    async def write(context: ToolContext) -> str:
        """Write for ever."""
        async with context.artifacts.open_file("a") as file:
            await file.write("half")
            began.set()
            await asyncio.Event().wait()
        return ""

    rig = ToolRig(write, views=artifacts.views, artifacts=artifacts)
    if way == "timeout":
        result = await rig.run(rig.call("write", wait=0.2))
        assert result.artifacts == ()
    else:
        environment = ActivityEnvironment()
        running = asyncio.create_task(environment.run(rig.port.run_tool, rig.call("write", wait=30)))
        await began.wait()
        environment.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert (await stored(rig, "a")).status is ArtifactStatus.FAILED
    assert await content_of(rig, "a") == b"half"


@pytest.mark.parametrize("size", [1, 3 * MIB], ids=["shorter", "as long"])
async def test_what_is_replaced_while_a_store_is_away_is_not_read_on(
    artifacts: RecordingArtifacts, size: int
) -> None:
    """The beginning of one text and the end of another are neither."""

    class Interrupted(RecordingArtifacts):
        is_replaced = False

        async def read_part(
            self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            async for piece in super().read_part(context_id, artifact_id, index, start=start, end=end):
                yield piece
                if not self.is_replaced:
                    self.is_replaced = True
                    part = NewPart("file", b"b" * size)
                    await self.apply(CONTEXT, "a", Create("task", (part,), complete=True, override=True))
                    raise RedisConnectionError

    @tool
    async def read(context: ToolContext) -> str:
        """Read."""
        await context.artifacts.write_file("a", b"a" * (3 * MIB))
        return str(sum([len(piece) async for piece in context.artifacts.read("a")]))

    rig = ToolRig(read, views=artifacts.views, artifacts=Interrupted(artifacts.views))
    result = await rig.run(rig.call("read"))

    assert result.outcome == "error"
    assert "ArtifactReplacedError" in result.content
