"""What a schedule starts, as Temporal and as its user write it."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import Field, JsonValue
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleState,
)
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from everloop.runtime.schedules.recurrence import Recurrence
from everloop.runtime.settings import Settings
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import Part, UserMessage, describe_parts, text_of
from everloop.workflows.contract.parts import cut_bytes
from everloop.workflows.contract.tasks import AgentSpec, Identity, TaskInput, TaskState


class QueueSettings(Settings):
    """Where scheduled tasks wait, as gateways have it."""

    task_queue: str = Field(default=names.DEFAULT_TASK_QUEUE, min_length=1)
    split_queues: bool = False


OVERLAPS = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "buffer-one": ScheduleOverlapPolicy.BUFFER_ONE,
    "buffer-all": ScheduleOverlapPolicy.BUFFER_ALL,
    "cancel-other": ScheduleOverlapPolicy.CANCEL_OTHER,
    "terminate-other": ScheduleOverlapPolicy.TERMINATE_OTHER,
    "allow-all": ScheduleOverlapPolicy.ALLOW_ALL,
}
"""What becomes of a task that is due while the one before it still runs."""

CATCH_UP = timedelta(days=1)
"""Up to how long afterwards a task is started that was due while Temporal was down."""

MAX_MESSAGE_BYTES = 100_000
"""Of the message without its files: Temporal keeps it with the schedule, and copies it into each task."""

MAX_ID_LENGTH = 64
"""Of the id of a schedule: the ids of its tasks are longer by the agent, the owner and their time."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

MAX_SUMMARY_BYTES = 200
"""Of the line that the Temporal UI shows for a task; Temporal refuses 400 and more."""

_MARK = "\x1f"


def problem_of_id(text: str) -> str:
    """Return why a schedule cannot be called that, empty if it can."""
    if len(text) <= MAX_ID_LENGTH and _ID.fullmatch(text):
        return ""
    return f"expected at most {MAX_ID_LENGTH} letters, digits, '.', '-' and '_', the first a letter or digit"


def schedule_id(owner: str, name: str) -> str:
    """Return what Temporal calls the schedule that its owner calls so: owners may use the same names."""
    return _prefix(owner) + name


def schedule_name(owner: str, id_: str) -> str:
    """Return what its owner calls a schedule; it undoes `schedule_id`."""
    return id_.removeprefix(_prefix(owner))


def _prefix(owner: str) -> str:
    return "" if owner == names.ANONYMOUS else f"{hashlib.sha256(owner.encode()).hexdigest()[:12]}-"


@dataclass(frozen=True)
class ScheduleDefinition:
    """A message that an agent gets again and again, each time as a new task.

    `owner` is whose tasks these are (default: of callers who did not authenticate), `identity` who made the
    schedule. `context_id` empty: each task has a context of its own. `name` empty: one is made of what the
    schedule does, so that the same schedule is not made twice. `priority` is the agent's, `splits_queues`
    what gateways are set to. `metadata` is the message's. `keeps`: there are files or a webhook for its tasks
    (`everloop/stores/artifacts/schedule_files.py`, `everloop/stores/push/schedule_webhooks.py`).
    """

    agent_id: str
    agent_name: str
    parts: tuple[Part, ...]
    recurrence: Recurrence
    overlap: str = "skip"
    owner: str = names.ANONYMOUS
    context_id: str = ""
    name: str = ""
    note: str = ""
    priority: int | None = None
    splits_queues: bool = False
    identity: Identity | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    keeps: bool = False

    @property
    def id(self) -> str:
        """What Temporal calls the schedule."""
        return schedule_id(self.owner, self.name or names.agent_task_id(self.agent_id, self._digest))

    @property
    def task_prefix(self) -> str:
        """What the ids of its tasks begin with; Temporal adds the time when each was due."""
        name = schedule_id(self.owner, self.name or self._digest)
        return names.agent_task_id(self.agent_id, name)

    @property
    def _digest(self) -> str:
        content = json.dumps(describe_parts(self.parts), sort_keys=True)
        words = (self.agent_id, content, self.recurrence.description, self.owner, self.context_id)
        return hashlib.sha256(_MARK.join(words).encode()).hexdigest()[:8]

    @property
    def search_attributes(self) -> TypedSearchAttributes:
        """How the schedule itself is found."""
        return TypedSearchAttributes(
            [SearchAttributePair(names.AGENT_ID, self.agent_id), SearchAttributePair(names.OWNER, self.owner)]
        )

    def schedule(self, task_queue: str, now: datetime, *, is_paused: bool = False) -> Schedule:
        """Return the schedule for Temporal; of the agent only its id: each task gets what is current."""
        return Schedule(
            action=ScheduleActionStartWorkflow(
                names.WORKFLOW_TYPE,
                self._task(now),
                id=self.task_prefix,
                task_queue=task_queue,
                typed_search_attributes=self._task_attributes,
                static_summary=self._summary,
                priority=names.place_in_queues(self.owner, self.priority),
            ),
            spec=self.recurrence.spec,
            policy=SchedulePolicy(overlap=OVERLAPS[self.overlap], catchup_window=CATCH_UP),
            state=ScheduleState(note=self.note or None, paused=is_paused),
        )

    def _task(self, now: datetime) -> TaskInput:
        return TaskInput(
            context_id=self.context_id,
            owner=self.owner,
            agent=AgentSpec(id=self.agent_id),
            message=UserMessage(message_id=self.id, parts=self.parts, metadata=dict(self.metadata)),
            created_at=now,
            identity=self.identity,
            scheduled=True,
            splits_queues=self.splits_queues,
            attachments=self.id if self.keeps else "",
        )

    @property
    def _task_attributes(self) -> TypedSearchAttributes:
        context = [SearchAttributePair(names.CONTEXT_ID, self.context_id)] if self.context_id else []
        state = SearchAttributePair(names.TASK_STATE, TaskState.SUBMITTED)
        return TypedSearchAttributes([*self.search_attributes.search_attributes, *context, state])

    @property
    def _summary(self) -> str:
        line = f"{self.agent_name}: {' '.join(text_of(self.parts).split()) or '(files)'}"
        return cut_bytes(line, MAX_SUMMARY_BYTES)
