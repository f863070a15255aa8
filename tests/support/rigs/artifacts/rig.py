"""A rig for tests of tools' artifacts: stores that fail, and the shown state of an artifact."""

from collections.abc import Awaitable, Callable
from typing import Any

from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Change
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.messages import Part, ToolMessage
from everloop.workflows.contract.names import context_key
from tests.support.rigs.tool_rig import ToolRig
from tests.support.stores import database

MIB = 1024 * 1024

Act = Callable[[ToolContext], Awaitable[object]]
"""The action of a tool."""

CONTEXT = context_key("owner", "c")
"""The context of a `ToolRig`'s artifacts."""


class RecordingArtifacts(Artifacts):
    """An artifact store that records calls, and may fail.

    `fails_before` and `fails_after` get the number of the change, from 1, and return the error to raise
    before, or after, it is made.
    """

    def __init__(self) -> None:
        redis = database()
        self.views = TaskViews(redis)
        super().__init__(redis, RedisBlobs(redis), segment=MIB)
        self.changes: list[Change] = []
        self.fails_before: Callable[[int], Exception | None] = lambda _: None
        self.fails_after: Callable[[int], Exception | None] = lambda _: None

    async def apply(
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        **more: Any,  # noqa: ANN401 -- of the method that is called
    ) -> StoredArtifact:
        self.changes.append(change)
        number = len(self.changes)
        if error := self.fails_before(number):
            raise error
        artifact = await super().apply(context_id, artifact_id, change, **more)
        if error := self.fails_after(number):
            raise error
        return artifact


async def stored(rig: ToolRig, artifact_id: str) -> StoredArtifact:
    return await rig.artifacts.get_artifact(CONTEXT, artifact_id)


async def content_of(rig: ToolRig, artifact_id: str, index: int = 0) -> bytes:
    return b"".join([piece async for piece in rig.artifacts.read_part(CONTEXT, artifact_id, index)])


async def shown(rig: ToolRig, artifact_id: str) -> tuple[Part, ...]:
    """Return an artifact as subscribers see it."""
    found = await rig.views.artifact(rig.task_id, artifact_id)
    assert found
    return found.parts


async def run_tool(act: Act, artifacts: RecordingArtifacts | None = None) -> tuple[ToolRig, ToolMessage]:
    """Call a tool with this action."""

    @tool(idempotent=True)
    async def write(context: ToolContext) -> str:
        """Write."""
        return str(await act(context))

    rig = ToolRig(write, views=artifacts.views if artifacts else None, artifacts=artifacts)
    return rig, await rig.run(rig.call("write"))
