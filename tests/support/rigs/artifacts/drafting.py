"""A task whose model writes calls of artifact tools: publishes of an attempt, and the subscribers' view."""

import json
from enum import Enum, auto

from pydantic import JsonValue

from everloop.activities.model.artifact_streams import ArtifactStreams
from everloop.activities.model.drafts import attempt_number
from everloop.activities.model.reply import ArgumentsDelta
from everloop.agents.artifact_tools import artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.workflows.contract.events import ArtifactChunk
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, text_of
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import Artifact, TaskRef
from tests.support.rigs.model_rig import new_view
from tests.support.stores import database, new_artifacts

TASK = TaskRef(task_id="t", run_id="run", context_id="c", owner="o", agent_id="a")
CONTEXT = context_key(TASK.owner, TASK.context_id)
POSITION = 3
TOOLS = {
    tool.name: tool for style in ("update", "granular") for tool in artifacts(style).tools if tool.draft_of
}


class Publish(Enum):
    """The end of a publish; a writer cannot distinguish the last two."""

    WORKS = auto()
    IS_LOST = auto()
    LOSES_ITS_ANSWER = auto()


class Reader:
    """A subscriber, and the stores of a task during the artifact tool calls of its model."""

    def __init__(self) -> None:
        self.views, self.artifacts = TaskViews(database()), new_artifacts()

    async def begin(self, stored: str | None = None) -> None:
        """Create the task, and optionally a stored and shown artifact `doc`."""
        await database().flushdb()
        await self.views.create(new_view(TASK))
        if stored is not None:
            writer = ArtifactPublisher(self.artifacts, TASK, 2, self.views)
            part = NewPart("text", stored.encode())
            await writer.apply(CONTEXT, "doc", Create("t", (part,), name="Doc"))

    def attempt(self, number: int = 1) -> "Attempt":
        return Attempt(self, number)

    async def shown(self, artifact_id: str = "doc") -> Artifact | None:
        return await self.views.artifact(TASK.task_id, artifact_id)

    async def text(self, artifact_id: str = "doc") -> str | None:
        artifact = await self.shown(artifact_id)
        return text_of(artifact.parts) if artifact else None

    async def chunks(self) -> list[ArtifactChunk]:
        streamed = await self.views.read({TASK.task_id: START}, wait=0, limit=1000)
        return [each.event for each in streamed if isinstance(each.event, ArtifactChunk)]


class Attempt:
    """One attempt at the model call."""

    def __init__(self, reader: Reader, number: int) -> None:
        self._reader = reader
        publisher = ArtifactPublisher(reader.artifacts, TASK, POSITION, reader.views)
        self.streams = ArtifactStreams(publisher, CONTEXT, POSITION, attempt_number(0, number), TOOLS)

    async def write(self, call: ToolCall, piece: str, how: Publish = Publish.WORKS, number: int = 0) -> None:
        """Take a piece of a call and publish its addition."""
        self.streams.add(ArgumentsDelta(piece, number, call.name))
        await self.publish(await self.streams.chunks(), how)

    async def publish(self, chunks: list[ArtifactChunk], how: Publish = Publish.WORKS) -> None:
        if how is not Publish.IS_LOST:
            await self._reader.views.publish(TASK.task_id, TASK.run_id, chunks)
        if how is not Publish.WORKS:
            self.streams.restart()

    async def end(self, *calls: ToolCall, how: Publish = Publish.WORKS) -> None:
        """End the reply with these calls."""
        reply = AssistantMessage(tool_calls=calls)
        await self.publish(await self.streams.finish(reply), how)
        await self.streams.reconcile(reply)

    async def fail(self) -> None:
        """End with a final failure and without a reply."""
        await self.streams.reconcile(None)


def update(
    *parts: JsonValue, append: bool = False, artifact_id: str = "doc", ascii_: bool = True
) -> ToolCall:
    """Return a call of `artifact_update`."""
    artifact = {"artifact_id": artifact_id, "name": "Doc", "parts": [*parts]}
    arguments = {"append": append, "last_chunk": False, "artifact": artifact}
    return ToolCall(id="c", name="artifact_update", arguments=json.dumps(arguments, ensure_ascii=ascii_))
