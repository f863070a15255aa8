"""Everything a running task knows, and how it changes. No I/O, no clock: times are arguments."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from workflows.contract.events import RESPONSE_ARTIFACT, StatusChanged
from workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    Message,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from workflows.contract.tasks import Artifact, TaskState, TaskStatus

VIEW_BYTES = 1_500_000
"""The `view` query returns the newest messages that fit: Temporal takes payloads up to 2 MB."""


class Phase(StrEnum):
    """Where the loop stands."""

    PREPARING = "preparing"
    MODEL = "model"
    TOOLS = "tools"
    DONE = "done"


class TaskRunState(BaseModel):
    """The state of one task.

    `transcript` holds every message once; `cached` of them are in the transcript cache as far as the
    workflow knows. `version` numbers the published statuses. `remark` is what the model said to
    the client and no status has carried yet. `unconfirmed` is the status that rides on a call that has not
    ended: a call that is cancelled before it starts publishes nothing.
    """

    phase: Phase = Phase.PREPARING
    iteration: int = 0
    transcript: list[TranscriptMessage] = Field(default_factory=list[TranscriptMessage])
    cached: int = 0
    inbox: list[UserMessage] = Field(default_factory=list[UserMessage])
    pending: list[ToolCall] = Field(default_factory=list[ToolCall])
    usage: Usage = Usage()
    version: int = 0
    status: TaskStatus
    history: list[Message] = Field(default_factory=list[Message])
    remark: str = ""
    unconfirmed: StatusChanged | None = None
    answer: AssistantMessage | None = None

    @classmethod
    def begin(cls, message: UserMessage, at: datetime) -> "TaskRunState":
        """Return the state of a task that was just submitted with its first message."""
        return cls(inbox=[message], status=TaskStatus(state=TaskState.SUBMITTED, at=at))

    @property
    def new_messages(self) -> tuple[UserMessage, ...]:
        """The end of the transcript that no model call has seen; only user messages can be there."""
        return tuple(m for m in self.transcript[self.cached :] if isinstance(m, UserMessage))

    def take_inbox(self) -> tuple[UserMessage, ...]:
        """Move the messages that came meanwhile to the end of the transcript and return them."""
        taken = tuple(self.inbox)
        self.transcript.extend(taken)
        self.inbox.clear()
        return taken

    def change_status(
        self,
        state: TaskState,
        at: datetime,
        *,
        message: AgentMessage | None = None,
        received: tuple[UserMessage, ...] = (),
    ) -> StatusChanged:
        """Count a new status and return the event that announces it.

        The history grows as a view's does when it folds the event: by the message of the status that is
        replaced, then by what the client said.
        """
        if self.status.message:
            self.history.append(self.status.message)
        self.history.extend(received)
        self.version += 1
        self.status = TaskStatus(state=state, at=at, message=message)
        return StatusChanged(version=self.version, state=state, at=at, message=message, received=received)

    def fold_reply(self, reply: AssistantMessage) -> None:
        """Put the model's reply at the end of the transcript; its text is a remark until it is an answer."""
        self.transcript.append(reply)
        self.cached = len(self.transcript)
        self.unconfirmed = None
        self.usage += reply.usage
        self.remark = reply.text
        self.pending = list(reply.tool_calls)

    def fold_tool_results(self, results: list[ToolMessage]) -> None:
        """Put tool results, in the order of their calls, at the end of the transcript."""
        self.transcript.extend(results)
        self.cached = len(self.transcript)
        self.unconfirmed = None
        self.pending = []

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts that the history of the workflow can vouch for."""
        if self.answer is None or not self.answer.text:
            return ()
        part = TextPart(text=self.answer.text)
        return (
            Artifact(artifact_id=RESPONSE_ARTIFACT, name=RESPONSE_ARTIFACT, parts=(part,), complete=True),
        )

    @property
    def recent_history(self) -> tuple[Message, ...]:
        """The newest messages of the history that a view has room for besides its status and answer."""
        room = VIEW_BYTES - _size(self.status) - sum(_size(artifact) for artifact in self.artifacts)
        kept: list[Message] = []
        for message in reversed(self.history):
            room -= _size(message)
            if room < 0:
                break
            kept.append(message)
        return tuple(reversed(kept))


def _size(part: BaseModel) -> int:
    """Return the bytes that it takes in a payload."""
    return len(part.model_dump_json().encode())
