"""Artifacts of tools during store outages, repeated calls and overlapping attempts.

No content is lost or doubled.
"""

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
from everloop.stores.keys import outcomes_key, records_key
from everloop.stores.scripts import OvertakenError
from everloop.workflows.contract.artifacts import ArtifactStatus
from everloop.workflows.contract.messages import DataPart, FilePart, StoredPartRef, TextPart, ToolMessage
from tests.support.rigs.artifacts.rig import CONTEXT, MIB, RecordingArtifacts, content_of, shown, stored
from tests.support.rigs.tool_rig import ToolRig
from tests.support.stores import database

AWAY = [BlobsUnavailableError("S3", "away"), RedisConnectionError("away"), ConnectionResetError("away")]


@tool(idempotent=True)
async def write_thrice(context: ToolContext) -> str:
    """Write a file in three pieces."""
    await context.artifacts.write_file("a", (b"x" * MIB for _ in range(3)))
    return "written"


async def forget_calls(rig: ToolRig) -> None:
    """Delete the records of a task's calls, as if the workers had been lost."""
    await database().delete(records_key(rig.task_id), outcomes_key(rig.task_id))


@pytest.fixture
def artifacts() -> RecordingArtifacts:
    return RecordingArtifacts()


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("moment", ["fails_before", "fails_after"])
@pytest.mark.parametrize("number", [1, 2, 4])
async def test_a_store_that_is_away_is_waited_for(
    artifacts: RecordingArtifacts, error: Exception, moment: str, number: int
) -> None:
    """A change is made once, whether it took effect or not before its answer was lost."""

    def fail(at: int) -> Exception | None:
        return error if at == number else None

    setattr(artifacts, moment, fail)
    rig = ToolRig(write_thrice, views=artifacts.views, artifacts=artifacts)
    result = await rig.run(rig.call("write_thrice"))
    assert result.outcome == "ok", result.content
    assert await content_of(rig, "a") == b"x" * (3 * MIB)
    assert (await stored(rig, "a")).status is ArtifactStatus.COMPLETE
    assert await shown(rig, "a") == (FilePart(size=3 * MIB, stored=StoredPartRef(artifact_id="a")),)


class Interrupted(RecordingArtifacts):
    """A source that fails once after its first piece; `a` may be replaced before the next read."""

    is_there = False
    replaced_by = b""

    async def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        async for piece in super().read_part(context_id, artifact_id, index, start=start, end=end):
            yield piece
            if not self.is_there:
                self.is_there = True
                if self.replaced_by:
                    part = NewPart("file", self.replaced_by)
                    await self.apply(CONTEXT, "a", Create("task", (part,), complete=True, override=True))
                raise RedisConnectionError


@pytest.mark.parametrize("replaced_by", [b"", b"b", b"b" * 2 * MIB], ids=["no", "shorter", "as long"])
async def test_reading_goes_on_where_it_was(artifacts: RecordingArtifacts, replaced_by: bytes) -> None:
    """Reading resumes at its offset after an outage: no byte comes twice, and no two versions are mixed."""

    @tool
    async def read(context: ToolContext) -> str:
        """Read."""
        await context.artifacts.write_file("a", b"ab" * MIB, media_type="image/png")
        content = b"".join([piece async for piece in context.artifacts.read("a")])
        return str(content == b"ab" * MIB)

    store = Interrupted()
    store.replaced_by = replaced_by
    rig = ToolRig(read, views=artifacts.views, artifacts=store)
    result = await rig.run(rig.call("read"))
    if replaced_by:
        assert result.outcome == "error"
        assert "ArtifactReplacedError" in result.content
    else:
        assert result.content == "True"


async def test_an_attempt_that_was_taken_for_lost_does_not_disturb_the_next(
    artifacts: RecordingArtifacts,
) -> None:
    """Pieces, failure and outcome of an overtaken attempt leave the next attempt's artifact unchanged."""
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


def _drafting(drafted: Tool) -> Tool:
    """Return a tool of the artifacts plugin's kind, whose arguments describe its artifacts."""

    def read(_written: str) -> ArtifactDraft:
        return ArtifactDraft("a", extends=True)

    return replace(drafted, draft_of=read)


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_tool_that_tells_what_it_writes_does_it_once(
    artifacts: RecordingArtifacts, parts: int
) -> None:
    """A drafting tool that runs again writes once: the store has a record of the first write."""

    @tool(idempotent=True)
    async def append(context: ToolContext) -> str:
        """Append."""
        return str(
            (await context.artifacts.append("a", [TextPart(text="b"), DataPart(data=1)][:parts])).version
        )

    rig = ToolRig(_drafting(append), views=artifacts.views, artifacts=artifacts)
    await artifacts.apply(CONTEXT, "a", Create(rig.task_id, (NewPart("text", b"a"),)))

    result = await rig.run(rig.call("append"))
    await forget_calls(rig)

    assert await rig.run(rig.call("append")) == result
    assert result.artifacts == ("a",)
    assert await content_of(rig, "a") == b"ab"
    assert len((await stored(rig, "a")).parts) == parts


async def test_any_other_tool_that_runs_again_does_it_again(artifacts: RecordingArtifacts) -> None:
    """Any other tool that runs again writes again, because its second run may differ."""
    said = iter(["first", "second"])

    @tool(idempotent=True)
    async def write(context: ToolContext) -> str:
        """Write."""
        await context.artifacts.create("a", [TextPart(text="It is the ")], complete=False)
        await context.artifacts.append("a", [TextPart(text=next(said))])
        return "written"

    rig = ToolRig(write, views=artifacts.views, artifacts=artifacts)
    await rig.run(rig.call("write"))
    await forget_calls(rig)
    await rig.run(rig.call("write"))
    assert await content_of(rig, "a") == b"It is the second"


@pytest.mark.parametrize("way", ["timeout", "cancellation"])
async def test_a_file_that_is_cut_off_has_failed(artifacts: RecordingArtifacts, way: str) -> None:
    """A file fails if its tool times out or its task is cancelled; the content written so far stays."""
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
