"""Inputs of the port methods: requests of the workflow for side effects."""

from datetime import datetime
from typing import Annotated, TypeVar

from pydantic import Field

from everloop.workflows.contract.agent_settings import Compaction, Memory, ModelSettings
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged
from everloop.workflows.contract.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.questions import Answer, Question
from everloop.workflows.contract.tasks import (
    AgentSpec,
    Identity,
    NarratorSpec,
    TaskRef,
    TaskState,
    TaskView,
    ToolSpec,
)

CREATE_TASK = "create_task"
"""The tool by which a model turns a message into a task."""

QUICK_TIME = 5.0
"""Seconds after which a quick tool leaves the workflow and runs like any other tool. Meanwhile the
workflow handles no message and no cancellation, and after 8 s Temporal's library would begin to add
events to its history."""

QUICK_RESULT = 100_000
"""Bytes of JSON that the reply of a quick call may have; see `everloop.workflows.turns.tool_turn`."""

BUILT_IN_TOOLS = ("read_result", "read_attachment")
"""Built-in tools, offered where there is more to read. No other tool may have these names."""

ToolReply = Annotated[ToolMessage | Question, Field(discriminator="role")]
"""The result of a tool activity: a tool message, or a question to answer first."""


Call = TypeVar("Call", bound=Wire)


def name_task(call: Call, task_id: str, run_id: str) -> Call:
    """Return a call for its activity, with the omitted fields of each `TaskRef` filled in.

    Temporal provides the workflow and run of an activity.
    """
    named: dict[str, Wire] = {}
    for name, value in call:
        if isinstance(value, TaskRef):
            named[name] = value.named(task_id, run_id)
        elif isinstance(value, Wire) and "task" in type(value).model_fields:
            named[name] = name_task(value, task_id, run_id)
    return call.model_copy(update=named)


class TranscriptCallInput(Wire):
    """A call about the transcript of a task, which gets a message at position `length`.

    The transcript is not sent: the transcript cache holds it for this run.
    """

    task: TaskRef
    iteration: int
    model: str | None
    length: int
    """Number of messages in the transcript."""
    digest: str = ""
    """Digest of these messages; empty: no comparison is needed."""
    new: tuple[UserMessage, ...] = ()
    """The last of them, which may be missing from the cache."""
    previous_run: str = ""
    """The previous run of the task, until the first reply: its cache is copied."""
    settings: ModelSettings = ModelSettings()
    """Pinned settings of the agent."""
    has_fallback: bool = False
    """Another model takes over if this one fails."""


class CallModelInput(TranscriptCallInput):
    """Ask the model for its next reply."""

    version: int = 1
    """Version of the last status, these included."""
    statuses: tuple[StatusChanged, ...] = ()
    """Statuses to publish before the call. A message that a status has received is in it without parts if
    it is among `new`."""
    tries: int = 0
    """Failed attempts at this position."""
    warning: str = ""
    """Published with the call."""
    needs_price: bool = False
    """A reply of unknown cost is rejected."""
    tool: str | None = None
    """The reply has to call this tool. Its text is not an answer: the client has one already."""
    routing: bool = False
    """The reply decides whether the message becomes a task. Its only tool is `CREATE_TASK`."""
    usage: Usage | None = None
    """Usage of the task until now, for agents with plugins that inspect model calls."""
    last: str = ""
    """The limit that was reached, as text: the model answers now, without tools."""


class CompactContextInput(TranscriptCallInput):
    """Make room: sum up, or leave out, the messages up to `end` (exclusive), except `first`."""

    first: int = 0
    end: int
    compaction: Compaction
    waits: bool = False
    """If no model answers, wait for an operator instead of going on without a summary."""


class ToolCallInput(Wire):
    """Fields of a tool call that every recipient needs: a worker or a sub-agent."""

    task: TaskRef
    call: ToolCall
    statuses: tuple[StatusChanged, ...] = ()
    """Published before the call."""
    answers: tuple[Answer, ...] = ()
    """Answers to its questions until now, oldest first."""
    warning: str = ""
    """Published with the call."""
    identity: Identity | None = None
    """Identity of the caller who started the task."""
    veto: str = ""
    """Why the call is vetoed by the task, whatever its agent allows; empty: it is not."""
    approvers: str = ""
    """Approvers required by the task, whatever its agent requires; empty: no approval needed."""


class RunToolInput(ToolCallInput):
    """Run one tool call."""

    position: int
    """Position of the result in the transcript."""
    reply: int = -1
    """Position of the reply that made the call, unless the result is next to it; see `reply_position`."""
    timeout: float = 30.0
    """In seconds; the default is that of `ToolSpec`."""
    plugin: str = ""
    """The plugin that listed the tool for this task."""
    digest: str = ""
    """Digest of the listed definition (`ToolSpec`)."""
    has_fallback: bool = False
    """Another tool runs if this one fails, so that its error is not added to the transcript."""
    together: int = 1
    """Number of calls of this tool that begin now, this one included. They run as one on the same worker."""
    scheduled: datetime | None = None
    """When Temporal's server scheduled this attempt. Only set for quick tools, which the server does not
    see."""
    tried: str = ""
    """Failure type of the quick attempt before this one."""
    abandoned: bool = False
    """The result is no longer needed: the tool only releases what it has started (`ToolSpec.abandons`)."""

    @property
    def reply_position(self) -> int:
        """Position of the reply that made the call."""
        return self.position - 1 if self.reply < 0 else self.reply


class LoadAgentInput(ToolCallInput):
    """Look up the agent that a tool call addresses."""

    agent_id: str
    child: str = ""
    """Task id of the sub-agent; for a handoff that of the task itself."""


class LoadedAgent(AgentSpec):
    """The agent that a tool call addresses, or a question to answer first, or why the call is refused."""

    question: Question | None = None
    refused: ToolMessage | None = None


class StoreResultInput(Wire):
    """Cache and publish a result without a tool activity: a sub-agent's answer.

    `has_fallback` is as for a tool. `key` is that of the call (`names.call_key`), under which a long
    answer is stored in full; empty: the answer is short.
    """

    task: TaskRef
    position: int
    result: ToolMessage
    key: str = ""
    has_fallback: bool = False


class StoreTranscriptInput(Wire):
    """Write messages back into the transcript cache, from position `start` on."""

    task: TaskRef
    start: int
    messages: tuple[TranscriptMessage, ...]


ConversationMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""A message of the conversation of a context."""


class LoadContextInput(Wire):
    """Load the recalled part of the conversation into an empty transcript."""

    task: TaskRef
    memory: Memory = Memory()


class LoadContextResult(Wire):
    """Earlier messages of the context, oldest first. A user message holds the summary of older ones."""

    messages: tuple[ConversationMessage, ...] = ()


class SaveContextInput(Wire):
    """Append the messages of a task to the conversation of its context, once.

    These are the messages from `first` to `length` of its cached transcript with this `digest`, except
    summaries.
    """

    task: TaskRef
    first: int = 0
    length: int
    digest: str = ""
    memory: Memory


class SaveContextResult(Wire):
    """`is_long`: the conversation exceeds the recalled length and has to be summed up."""

    is_long: bool = False


class CompactConversationInput(Wire):
    """Sum up messages too old to be recalled. `model` None: the worker's default."""

    task: TaskRef
    memory: Memory
    model: str | None = None


class PrepareTaskInput(Wire):
    """Prepare a task: load its agent, and list the tools of its plugins.

    The list is put at `position` of the transcript. `lists_tools`: whether plugins list tools.
    `loads_agent`: only the id of the agent is set.
    """

    task: TaskRef
    position: int = 0
    identity: Identity | None = None
    lists_tools: bool = True
    loads_agent: bool = False


class AdmitInput(Wire):
    """Count a task of a schedule as one of its owner's."""

    task: TaskRef


class AttachInput(Wire):
    """Give a task the stored files of its schedule, by their ids, and its webhook."""

    task: TaskRef
    schedule: str
    files: tuple[str, ...]


class PreparedTask(Wire):
    """`listed` is the list in the transcript, None without one; `tools` are its tools by name."""

    listed: ToolsMessage | None = None
    tools: dict[str, ToolSpec] = {}
    agent: AgentSpec | None = None


class BeforeRequestInput(Wire):
    """Pass messages of the client to plugins before a model reads them."""

    task: TaskRef
    messages: tuple[UserMessage, ...]
    identity: Identity | None = None


class BeforeRequestResult(Wire):
    """Messages for the model; or why the task is refused (`refused`)."""

    messages: tuple[UserMessage, ...]
    refused: str = ""


class AfterCompletionInput(Wire):
    """Notify plugins of the end of a task. `answer` is its text, `reason` the cause of a missing answer."""

    task: TaskRef
    state: TaskState
    iterations: int
    usage: Usage
    answer: str = ""
    reason: str = ""
    identity: Identity | None = None


class NarrateInput(Wire):
    """Publish every few seconds what the task is doing. `model` is the agent's own."""

    task: TaskRef
    narrator: NarratorSpec
    model: str | None = None


class PublishInput(Wire):
    """Publish events without another activity. `opening` makes a hidden task visible to clients.

    `remember` is stored before the events are published, so that it exists for every reader of the last
    event.
    """

    task: TaskRef
    events: tuple[StatusChanged | ArtifactChunk, ...]
    opening: TaskView | None = None
    remember: SaveContextInput | None = None


# Push notifications.

PUSH_FAILED = "PushFailed"
"""A webhook did not accept a notification. Retryable."""

TASK_UNREADABLE = "TaskUnreadable"
"""The view of a task is lost, and its workflow does not answer the query now. Retryable."""


class PushRef(Wire):
    """The notifications of one task for one config. Neither's content is in a history."""

    task_id: str
    config_id: str


class DeliverPushResult(Wire):
    """Outcome of a delivery.

    `delivered`: there may be more, call again at once. `done`: the client has acknowledged the end of
    the task, or has removed the config.
    """

    delivered: bool = False
    done: bool = False
