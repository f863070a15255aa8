"""Artifacts of tools whose attempts overlap, or that others replace: nobody gets a mixture."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.activities.lease import OvertakenError
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.artifacts.interface import Create, NewPart
from everloop.workflows.contract.artifacts import ArtifactStatus
from everloop.workflows.contract.messages import TextPart, ToolMessage
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.artifact_rig import CONTEXT, MIB, RecordingArtifacts, content_of, stored
from tests.support.rigs.tool_rig import ToolRig


@pytest.fixture
def artifacts() -> RecordingArtifacts:
    return RecordingArtifacts(MemoryTaskViews())


@pytest.mark.parametrize("way", ["open_file", "create"])
async def test_an_attempt_that_begins_late_does_not_replace_what_the_next_one_wrote(
    artifacts: RecordingArtifacts, way: str
) -> None:
    """It was taken for lost before it had written anything; what is complete stays complete."""
    began, goes_on = asyncio.Event(), asyncio.Event()

    @tool(idempotent=True)
    async def write(context: ToolContext) -> str:
        """Write."""
        if context.attempt == 1:
            began.set()
            await goes_on.wait()
        text = f"by {context.attempt}"
        if way == "create":
            await context.artifacts.create("a", [TextPart(text=text)])
            return "written"
        async with context.artifacts.open_file("a") as file:
            await file.write(text)
        return "written"

    rig = ToolRig(write, views=artifacts.views, artifacts=artifacts)
    lost = asyncio.create_task(rig.attempt_call(rig.call("write")))
    await began.wait()
    await rig.take_for_lost(rig.call("write"))
    result = await rig.attempt_call(rig.call("write"))
    goes_on.set()
    with pytest.raises(OvertakenError):
        await lost

    assert isinstance(result, ToolMessage)
    assert result.artifacts == ("a",)
    assert await content_of(rig, "a") == b"by 2"
    assert (await stored(rig, "a")).status is ArtifactStatus.COMPLETE


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
