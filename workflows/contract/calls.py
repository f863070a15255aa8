"""Inputs of the port methods: what the workflow asks the outside world for."""

from typing import Annotated

from pydantic import Field

from workflows.contract.events import ArtifactChunk, StatusChanged
from workflows.contract.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)
from workflows.contract.questions import Answer, Question
from workflows.contract.tasks import CompactionSpec, Identity, TaskRef, TaskView
from workflows.contract.wire import Wire

CREATE_TASK = "create_task"
"""The tool with which a model says that a message is work for a task."""

ToolReply = Annotated[ToolMessage | Question, Field(discriminator="role")]
"""What a tool activity comes to: a result, or a question that has to be answered first."""


class CallModelInput(Wire):
    """Ask the model for its next reply.

    The transcript itself is not sent: it is `length` messages, which the transcript cache holds for this
    run; only `new`, the last of them, may not be there yet. The reply gets position `length`.
    `status` is published before the call; `version` is the version of the last status, including it.
    `tries` counts the calls that ended without a reply for this position. `previous_run` is the run that
    this one continues, until its first reply: its cache is copied. `warning` is told to subscribers.
    `needs_price` means that a reply of unknown cost is of no use. `tool`: the reply has to be a call of this
    tool and is no answer to the client, who has one already. `routing`: the reply decides whether there is to
    be a task; all that it can call is `CREATE_TASK`.
    """

    task: TaskRef
    iteration: int
    model: str | None
    length: int
    new: tuple[UserMessage, ...] = ()
    version: int
    status: StatusChanged | None = None
    tries: int = 0
    previous_run: str = ""
    warning: str = ""
    needs_price: bool = False
    tool: str | None = None
    routing: bool = False


class CompactContextInput(Wire):
    """Make room: sum up, or leave out, the messages up to `end` (exclusive) of a transcript, but for `first`.

    `length` and `new` are as for a model call; the summary gets position `length`.
    """

    task: TaskRef
    iteration: int
    model: str | None
    length: int
    new: tuple[UserMessage, ...] = ()
    previous_run: str = ""
    first: int = 0
    end: int
    compaction: CompactionSpec


class RunToolInput(Wire):
    """Run one tool call. Its result gets `position` in the transcript. `timeout` is in seconds.

    `reply` is the position of the reply that asks for it. `answers` are what its questions came to so far,
    oldest first. `warning` is told to subscribers. `identity` is who started the task.
    """

    task: TaskRef
    call: ToolCall
    position: int
    reply: int = -1
    timeout: float
    status: StatusChanged | None = None
    answers: tuple[Answer, ...] = ()
    warning: str = ""
    identity: Identity | None = None


class LoadAgentInput(Wire):
    """Look up the agent that a tool call asks. `status` and `warning` are told with the start of the call."""

    task: TaskRef
    call: ToolCall
    agent_id: str
    status: StatusChanged | None = None
    warning: str = ""


class StoreResultInput(Wire):
    """Cache and announce the result of a call that no tool activity ran: a sub-agent's answer."""

    task: TaskRef
    position: int
    result: ToolMessage


class StoreTranscriptInput(Wire):
    """Put messages back into the transcript cache, from position `start` on."""

    task: TaskRef
    start: int
    messages: tuple[TranscriptMessage, ...]


class LoadContextInput(Wire):
    """Read the newest messages of the conversation into an empty transcript: at most `max_messages`."""

    task: TaskRef
    max_messages: int = 20


class LoadContextResult(Wire):
    """What was said in the context before, oldest first."""

    messages: tuple[UserMessage | AssistantMessage, ...] = ()


class SaveContextInput(Wire):
    """Append what a task adds to the conversation of its context, once."""

    task: TaskRef
    messages: tuple[UserMessage | AssistantMessage, ...]


class PublishInput(Wire):
    """Publish events that no other activity carries. `opening` lets clients see a task that was hidden."""

    task: TaskRef
    events: tuple[StatusChanged | ArtifactChunk, ...]
    opening: TaskView | None = None
