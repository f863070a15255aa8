"""Inputs of the port methods: what the workflow asks the outside world for."""

from workflows.contract.events import ArtifactChunk, StatusChanged
from workflows.contract.messages import ToolCall, TranscriptMessage, UserMessage
from workflows.contract.tasks import TaskRef
from workflows.contract.wire import Wire


class CallModelInput(Wire):
    """Ask the model for its next reply.

    The transcript itself is not sent: it is `length` messages, which the transcript cache holds for this
    run; only `new`, the last of them, may not be there yet. The reply gets position `length`.
    `status` is published before the call; `version` is the version of the last status, including it.
    """

    task: TaskRef
    iteration: int
    model: str | None
    length: int
    new: tuple[UserMessage, ...] = ()
    version: int
    status: StatusChanged | None = None


class RunToolInput(Wire):
    """Run one tool call. Its result gets `position` in the transcript. `timeout` is in seconds."""

    task: TaskRef
    call: ToolCall
    position: int
    timeout: float
    status: StatusChanged | None = None


class StoreTranscriptInput(Wire):
    """Put messages back into the transcript cache, from position `start` on."""

    task: TaskRef
    start: int
    messages: tuple[TranscriptMessage, ...]


class PublishInput(Wire):
    """Publish events that no other activity carries."""

    task: TaskRef
    events: tuple[StatusChanged | ArtifactChunk, ...]
