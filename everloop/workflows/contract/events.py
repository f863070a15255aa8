"""Events of a running task. A task's view is the fold of these events, in stream order.

Fold rules (`everloop.stores.log` follows them):

- Every event comes from a run. A status or a chunk of an unknown run makes it the newest; events of an
  overtaken run are dropped (a task that an operator reset has a new run id). Other events pass
  through unless their run was overtaken.
- `status`: applies when (version, step) is greater than that of the last status of the same run, or when
  the run is new; otherwise it is dropped. The message of the status it replaces (unless its step is above
  0: such a note is not part of the conversation), then `received`, are appended to the view's history; a
  message id that is already there is not appended again. A run counts its statuses and publishes all of
  them, so a gap in the numbers means that the store has lost some: the view and the event are marked, until
  the workflow has sent the missing ones. They are marked too if the view lacks content that the status
  requires (`Shown`).
- A terminal `status` other than completed marks every draft that is not complete as failed; so does a chunk
  with `failed`. A failed draft accepts no more chunks; a newer draft replaces it as before.
- `artifact-chunk`: belongs to a draft, ordered by (position, attempt) within a run. Index n appends when it
  continues the current draft without a gap. Index 0 begins a newer draft, according to its `mode`: "draft"
  and "replace" replace the artifact, "draft" only if its own position is not complete yet; "extend" keeps
  the content and appends to it, if there is an artifact that is neither complete nor failed, at the version
  `base` if the chunk names one. A chunk of an older draft and a gap are dropped. `content` replaces the
  artifact as a whole.
- `narration` passes through if the view's status is submitted or working.
- Content: a text without media type and file name continues the text before it. An empty one adds nothing,
  except that a draft of nothing else is one empty text.
- Every other kind changes nothing in the view; it only passes through the stream.

A dropped event does not reach the stream.

Each event in the stream of a sub-agent's task, except `task-created`, reaches the stream of the client's task
in the same step, as `sub-agent`, unless that task is unknown or has ended.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter

from everloop.workflows.contract.messages import AgentMessage, Message, Part, ToolOutcome, Usage
from everloop.workflows.contract.payloads import HIDE_VALUES, Wire
from everloop.workflows.contract.questions import Question
from everloop.workflows.contract.tasks import TaskState

RESPONSE_ARTIFACT = "response"
"""Id of the artifact that carries the model's answer."""

USAGE = "usage"
"""Key in the metadata of a status: usage of the task until now."""

REASON = "reason"
"""Key in the metadata of the message of a failed task: the name of the failure."""

FINAL_ATTEMPT = 1_000_000
"""Attempt number under which the workflow itself completes a draft, after all activity attempts."""


class TaskCreated(Wire):
    """The gateway accepted the message."""

    kind: Literal["task-created"] = "task-created"


ResumedAfter = Literal["attempt", "answer", "operator"]
"""Why a waiting task goes on: a lost or failed attempt, an answer, an operator's signal."""


class Shown(Wire):
    """Content that a view must have besides a status; a view without it has lost some.

    `answer`: position of the complete reply, the artifact `response`; None without one. `artifacts`: those
    written since the last status, with their minimum versions in the store.
    """

    answer: int | None = None
    artifacts: dict[str, int] = {}


class StatusChanged(Wire):
    """The task has a new status.

    `version` comes from the workflow; `step` orders the passing statuses that an activity publishes under
    that version while it waits for a retry (0 is the workflow's own).
    """

    kind: Literal["status"] = "status"
    version: int
    step: int = 0
    state: TaskState
    at: datetime
    message: AgentMessage | None = None
    received: tuple[Message, ...] = ()
    questions: tuple[Question, ...] = ()
    metadata: dict[str, JsonValue] = {}
    resumed: ResumedAfter | None = None
    """Why the task goes on, if it had to wait."""
    shows: Shown | None = None


ChunkMode = Literal["draft", "replace", "extend"]
"""Effect of the first chunk of a draft on the existing artifact."""


MAX_COMPLETE_BYTES = 64_000
"""Size limit of an artifact as JSON. A smaller artifact is sent complete with its last update: some clients
read nothing else of it."""


class ArtifactChunk(Wire):
    """A piece of an artifact.

    `position` is that of the reply in the transcript that contains the text or tool arguments, or the next
    one for what the calls of the reply write. The events of stored artifacts are numbered (`attempt`) by the
    version of the artifact. `failed`: nothing follows, and the artifact stays unfinished.

    `content`, of a last chunk, is the complete artifact, this part included. Clients and views get it in
    place of the part.

    `version` and `base` are for the store of logs, and not part of the event. `version`: name of the content
    that the log has of the artifact after this chunk; empty if it has none. `base`, of a first chunk that
    extends: the version that the log must have.
    """

    kind: Literal["artifact-chunk"] = "artifact-chunk"
    artifact_id: str
    name: str = ""
    description: str = ""
    mode: ChunkMode = "draft"
    position: int
    attempt: int
    index: int
    part: Part
    last_chunk: bool = False
    failed: bool = False
    content: tuple[Part, ...] = ()
    version: str = Field(default="", exclude=True)
    base: str = Field(default="", exclude=True)


def content_of(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the content for a last chunk, empty if it is too large."""
    text = json.dumps([part.model_dump(mode="json") for part in parts], ensure_ascii=False)
    return tuple(parts) if len(text.encode(errors="replace")) <= MAX_COMPLETE_BYTES else ()


class IterationStarted(Wire):
    """A model call begins; `iteration` counts from 1."""

    kind: Literal["iteration"] = "iteration"
    iteration: int
    model: str


class Thought(Wire):
    """A piece of the model's reasoning. `thought_id` is the id of an inline <thinking> tag, or empty.

    `last`: the end of the thought. A thought interrupted with its attempt has no end.
    """

    kind: Literal["thought"] = "thought"
    iteration: int
    thought_id: str = ""
    text: str
    last: bool = False


class ContentCompleted(Wire):
    """A reply of the model is complete.

    `finish_reason` is the provider's: stop, length, content_filter, tool_calls and others.
    """

    kind: Literal["content-complete"] = "content-complete"
    iteration: int
    finish_reason: str
    model: str = ""


class ProviderToolRan(Wire):
    """A provider ran one of its own tools, such as a web search. `detail` is provider-specific."""

    kind: Literal["provider-tool"] = "provider-tool"
    iteration: int
    id: str
    name: str
    status: Literal["started", "completed", "failed"]
    detail: JsonValue = None


class ToolCalled(Wire):
    """The model called a tool. Arguments are unchanged."""

    kind: Literal["tool-call"] = "tool-call"
    iteration: int
    call_id: str
    name: str
    arguments: str


class ToolStarted(Wire):
    """A tool begins to run."""

    kind: Literal["tool-start"] = "tool-start"
    call_id: str
    name: str
    attempt: int


class ToolProgressed(Wire):
    """A tool reports its progress."""

    kind: Literal["tool-progress"] = "tool-progress"
    call_id: str
    name: str
    message: str


class ToolCompleted(Wire):
    """A tool call ended. `result` is truncated if `cut`; the complete result has `size` bytes in UTF-8.

    `raised_at` is the line of the tool's author that raised, such as `tools.py:12 pay`.
    """

    kind: Literal["tool-complete"] = "tool-complete"
    call_id: str
    name: str
    outcome: ToolOutcome
    result: str
    size: int
    cut: bool = False
    raised_at: str = ""
    cached: bool = False
    """The tool did not run: the result is that of an earlier call with the same arguments."""


class RetryScheduled(Wire):
    """An attempt failed and another follows. `delay` is in seconds, None if Temporal's policy decides."""

    kind: Literal["retry"] = "retry"
    attempt: int
    reason: str
    delay: float | None = None


class Resumed(Wire):
    """The task goes on. After an attempt, `attempt` is the number of the one that begins.

    `call_id` is the retried tool call; empty: a retry of the model call, or the end of a wait for
    people and operators. Clients get it also with a status that is `resumed`.
    """

    kind: Literal["resumed"] = "resumed"
    after: ResumedAfter
    attempt: int | None = None
    call_id: str = ""


class Warned(Wire):
    """A problem that does not stop the task."""

    kind: Literal["warning"] = "warning"
    text: str


class UsageReported(Wire):
    """Tokens of one model call."""

    kind: Literal["usage"] = "usage"
    iteration: int
    usage: Usage


class AgentInvoked(Wire):
    """Another agent begins to work: in the task `task_id` of its own, or on this one, which it takes over."""

    kind: Literal["agent-invoked"] = "agent-invoked"
    call_id: str
    agent_id: str
    task_id: str


class SubAgentEvent(Wire):
    """An event of a sub-agent's task, as its subscribers get it.

    `path` are the keys of the calls from the task of this stream down to the sub-agent: the last part
    of each task id in `AgentInvoked`. A too large event has only its short fields, with `cut`: true. A
    status comes without received messages and questions.
    """

    kind: Literal["sub-agent"] = "sub-agent"
    path: tuple[str, ...]
    event: dict[str, JsonValue]


class Narrated(Wire):
    """The current activity of the task, in at most 50 characters."""

    kind: Literal["narration"] = "narration"
    text: str


TaskEvent = Annotated[
    TaskCreated
    | StatusChanged
    | ArtifactChunk
    | IterationStarted
    | Thought
    | ContentCompleted
    | ProviderToolRan
    | ToolCalled
    | ToolStarted
    | ToolProgressed
    | ToolCompleted
    | RetryScheduled
    | Resumed
    | Warned
    | UsageReported
    | AgentInvoked
    | SubAgentEvent
    | Narrated,
    Field(discriminator="kind"),
]

EVENT_ADAPTER: TypeAdapter[TaskEvent] = TypeAdapter(TaskEvent, config=HIDE_VALUES)
