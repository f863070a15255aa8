"""A task as its store shows it, for tests of updates to clients."""

from datetime import UTC, datetime

from a2a.types import a2a_pb2 as pb

from everloop.gateway.operations.updates import Update
from everloop.workflows.contract.events import ArtifactChunk, ChunkMode
from everloop.workflows.contract.messages import AgentMessage, Part, TextPart, UserMessage
from everloop.workflows.contract.tasks import Artifact, TaskState, TaskStatus, TaskView

AT = datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=UTC)

URL = "https://agents.example/everloop/"


def view(*artifacts: Artifact, state: TaskState = TaskState.WORKING, context_id: str = "context") -> TaskView:
    return TaskView(
        task_id="task",
        context_id=context_id,
        owner="owner",
        agent_id="agent",
        created_at=AT,
        status=TaskStatus(state=state, at=AT, message=said("thinking")),
        history=(
            UserMessage(message_id="u1", parts=(TextPart(text="hi"),), metadata={"a": 1}),
            AgentMessage(message_id="a1", parts=(TextPart(text="hello"),)),
        ),
        artifacts=artifacts,
    )


def said(text: str) -> AgentMessage:
    return AgentMessage(message_id="a2", parts=(TextPart(text=text),))


def artifact(
    *parts: Part, artifact_id: str = "response", complete: bool = False, failed: bool = False
) -> Artifact:
    return Artifact(artifact_id=artifact_id, name=artifact_id, parts=parts, complete=complete, failed=failed)


def chunk(
    index: int,
    part: Part | str,
    *,
    artifact_id: str = "response",
    mode: ChunkMode = "draft",
    last: bool = False,
) -> ArtifactChunk:
    return ArtifactChunk(
        artifact_id=artifact_id,
        mode=mode,
        position=1,
        attempt=1,
        index=index,
        part=TextPart(text=part) if isinstance(part, str) else part,
        last_chunk=last,
    )


Sent = tuple[str, bool, bool]
"""Text of a sent chunk, whether it appends, and whether it is the last one."""


def sent(updates: list[Update]) -> list[Sent]:
    return [
        (update.artifact.parts[0].text, update.append, update.last_chunk)
        for update in updates
        if isinstance(update, pb.TaskArtifactUpdateEvent)
    ]
