"""Inputs of the port methods: what the workflow asks the outside world for."""

from datetime import datetime
from typing import Annotated, TypeVar

from pydantic import Field

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
from everloop.workflows.contract.settings import Compaction, Memory, ModelSettings
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
"""The tool with which a model says that a message is work for a task."""

QUICK_TIME = 5.0
"""Seconds after which a quick tool is no longer run inside the workflow, but like any other one.

Meanwhile the workflow takes no message and no cancellation, and after 8 s Temporal's library would begin to
add events to its history."""

QUICK_RESULT = 100_000
"""Bytes of JSON that the reply of a quick call may have; see `everloop.workflows.turns.tool_turn`."""

BUILT_IN_TOOLS = ("read_result", "read_attachment")
"""Tools that every agent has where there is something to read on; no others can be called so."""

ToolReply = Annotated[ToolMessage | Question, Field(discriminator="role")]
"""What a tool activity comes to: a result, or a question that has to be answered first."""


Call = TypeVar("Call", bound=Wire)


def name_task(call: Call, task_id: str, run_id: str) -> Call:
    """Return a call as its activity reads it: each `TaskRef` in it says what was not written.

    An activity is told its workflow and run by Temporal.
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

    The transcript itself is not sent: the transcript cache holds it for this run.
    """

    task: TaskRef
    iteration: int
    model: str | None
    length: int
    """How many messages the transcript has."""
    digest: str = ""
    """That of these messages; empty: nobody has to compare."""
    new: tuple[UserMessage, ...] = ()
    """The last of them, which may not be in the cache yet."""
    previous_run: str = ""
    """The run that this one continues, until its first reply: its cache is copied."""
    settings: ModelSettings = ModelSettings()
    """Those that the task has pinned of its agent."""
    has_fallback: bool = False
    """There is another model to ask where this one cannot answer."""


class CallModelInput(TranscriptCallInput):
    """Ask the model for its next reply."""

    version: int = 1
    """That of the last status, including these."""
    statuses: tuple[StatusChanged, ...] = ()
    """Published before the call. A message that one has received stands in it without parts if it is among
    `new`."""
    tries: int = 0
    """Calls that ended without a reply for this position."""
    warning: str = ""
    """Published with the call."""
    needs_price: bool = False
    """A reply of unknown cost is of no use."""
    tool: str | None = None
    """The reply has to be a call of this tool and is no answer to the client, who has one already."""
    routing: bool = False
    """The reply decides whether there is to be a task; all that it can call is `CREATE_TASK`."""
    usage: Usage | None = None
    """What the task has used so far, for agents whose plugins look at model calls."""
    last: str = ""
    """The limit that the task has come to, in words: the model answers now, without tools."""


class CompactContextInput(TranscriptCallInput):
    """Make room: sum up, or leave out, the messages up to `end` (exclusive), but for `first`."""

    first: int = 0
    end: int
    compaction: Compaction
    waits: bool = False
    """Where no model answers the task waits for an operator, rather than go on without a summary."""


class ToolCallInput(Wire):
    """What has to be known of a tool call, whoever takes it."""

    task: TaskRef
    call: ToolCall
    statuses: tuple[StatusChanged, ...] = ()
    """Published before the call."""
    answers: tuple[Answer, ...] = ()
    """What its questions came to so far, oldest first."""
    warning: str = ""
    """Published with the call."""
    identity: Identity | None = None
    """Who started the task."""
    veto: str = ""
    """Why the call may not be made, whatever the agent that makes it says; empty: it may."""
    approvers: str = ""
    """Who approves it, whatever the agent that makes it says; empty: nobody has to."""


class RunToolInput(ToolCallInput):
    """Run one tool call."""

    position: int
    """That of its result in the transcript."""
    reply: int = -1
    """The position of the reply that asks for it, unless its result is next to it; see `asked_at`."""
    timeout: float = 30.0
    """In seconds; by default that of a `ToolSpec`."""
    plugin: str = ""
    """The one that listed the tool for this task."""
    digest: str = ""
    """That of what it listed (`ToolSpec`)."""
    has_fallback: bool = False
    """Another tool runs if this one fails, so that its error is no message of the transcript."""
    together: int = 1
    """So many calls of this tool begin now, with this one; they run as one, where one worker has them."""
    scheduled: datetime | None = None
    """When Temporal's server had this attempt begin; known of quick ones alone, which it does not see."""
    tried: str = ""
    """Why the quick attempt before this one came to nothing: the name of its failure."""
    abandoned: bool = False
    """Nobody waits any more for the call: its tool lets go of what it has begun, and no more
    (`ToolSpec.abandons`)."""

    @property
    def asked_at(self) -> int:
        """The position of the reply that asks for it."""
        return self.position - 1 if self.reply < 0 else self.reply


class LoadAgentInput(ToolCallInput):
    """Look up the agent that a tool call asks."""

    agent_id: str
    child: str = ""
    """The task id under which it will work; for a handoff that of the task itself."""


class LoadedAgent(AgentSpec):
    """An agent that a tool call asks; or what has to be answered before it is asked, or why it is not."""

    question: Question | None = None
    refused: ToolMessage | None = None


class StoreResultInput(Wire):
    """Cache and announce the result of a call that no tool activity ran: a sub-agent's answer.

    `has_fallback` is as for a tool. `key` is that of the call (`names.call_key`): under it the whole is kept
    of an answer that is too long; empty: it is short.
    """

    task: TaskRef
    position: int
    result: ToolMessage
    key: str = ""
    has_fallback: bool = False


class StoreTranscriptInput(Wire):
    """Put messages back into the transcript cache, from position `start` on."""

    task: TaskRef
    start: int
    messages: tuple[TranscriptMessage, ...]


ConversationMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""What stands in the conversation of a context."""


class LoadContextInput(Wire):
    """Read what there is to recall of the conversation into an empty transcript."""

    task: TaskRef
    memory: Memory = Memory()


class LoadContextResult(Wire):
    """The messages of the context before, oldest first; a summary of what is older is a user message."""

    messages: tuple[ConversationMessage, ...] = ()


class SaveContextInput(Wire):
    """Append what a task adds to the conversation of its context, once.

    That are the messages from `first` to `length` of its cached transcript, which has this `digest`, but no
    summaries.
    """

    task: TaskRef
    first: int = 0
    length: int
    digest: str = ""
    memory: Memory


class SaveContextResult(Wire):
    """`is_long`: the conversation has more than a task recalls, and it is to be summed up."""

    is_long: bool = False


class CompactConversationInput(Wire):
    """Sum up what is too old to be recalled. `model` None: the worker's default."""

    task: TaskRef
    memory: Memory
    model: str | None = None


class PrepareTaskInput(Wire):
    """Get ready what the definition of an agent does not say: the tools that its plugins list for this task.

    The list is put at `position` of the transcript. `lists_tools`: whether to ask for it at all.
    `loads_agent`: of the agent only the id is known.
    """

    task: TaskRef
    position: int = 0
    identity: Identity | None = None
    lists_tools: bool = True
    loads_agent: bool = False


class AttachInput(Wire):
    """Give a task what its schedule keeps for it: files, by their ids, and whom it notifies."""

    task: TaskRef
    schedule: str
    files: tuple[str, ...]


class PreparedTask(Wire):
    """`listed` is the list as it stands in the transcript, None for none; `tools` are its tools by name."""

    listed: ToolsMessage | None = None
    tools: dict[str, ToolSpec] = {}
    agent: AgentSpec | None = None


class BeforeRequestInput(Wire):
    """Let plugins look at messages of the client before a model does."""

    task: TaskRef
    messages: tuple[UserMessage, ...]
    identity: Identity | None = None


class BeforeRequestResult(Wire):
    """The messages as the model is to read them; or why the task may not take them (`refused`)."""

    messages: tuple[UserMessage, ...]
    refused: str = ""


class AfterCompletionInput(Wire):
    """Let plugins know how a task has ended. `answer` is the text of its answer, `reason` why it has none."""

    task: TaskRef
    state: TaskState
    iterations: int
    usage: Usage
    answer: str = ""
    reason: str = ""
    identity: Identity | None = None


class NarrateInput(Wire):
    """Say to the client every few seconds what the task is doing. `model` is the agent's own."""

    task: TaskRef
    narrator: NarratorSpec
    model: str | None = None


class PublishInput(Wire):
    """Publish events that no other activity carries. `opening` lets clients see a task that was hidden.

    `remember` is kept before the events are published: whoever has seen the end may rely on it.
    """

    task: TaskRef
    events: tuple[StatusChanged | ArtifactChunk, ...]
    opening: TaskView | None = None
    remember: SaveContextInput | None = None


# Push notifications.

PUSH_FAILED = "PushFailed"
"""A webhook did not take a notification. Retryable."""

TASK_UNREADABLE = "TaskUnreadable"
"""The view of a task is lost, and its workflow does not tell it now. Retryable."""


class PushRef(Wire):
    """The notifications of one task for one config; nothing of either stands in a history."""

    task_id: str
    config_id: str


class DeliverPushResult(Wire):
    """What became of it.

    `delivered`: there may be more, look again at once. `done`: the client has acknowledged the end of the
    task, or wants no notifications.
    """

    delivered: bool = False
    done: bool = False
