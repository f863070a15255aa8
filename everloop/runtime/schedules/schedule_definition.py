"""The definition of a schedule, as Temporal stores it and as users write it."""

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

from everloop.runtime.environment import Settings
from everloop.runtime.schedules.recurrence import Recurrence
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import Part, UserMessage, describe_parts, text_of
from everloop.workflows.contract.parts import cut_bytes
from everloop.workflows.contract.tasks import AgentSpec, Identity, TaskInput, TaskState


class QueueSettings(Settings):
    """The task queue of scheduled tasks, set as for gateways."""

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
"""The overlap policy: what happens to a task that is due while the one before it still runs."""

CATCH_UP = timedelta(days=1)
"""Time after an outage of Temporal in which tasks that were due during it are still started."""

MAX_MESSAGE_BYTES = 100_000
"""Limit of the message without its files: Temporal stores a copy in the schedule and in each task."""

MAX_ID_LENGTH = 64
"""Limit of a schedule's id. The ids of its tasks add the agent, the owner and the time."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

MAX_SUMMARY_BYTES = 200
"""Limit of the line that the Temporal UI shows for a task. Temporal refuses 400 bytes and more."""

_MARK = "\x1f"


def problem_of_id(text: str) -> str:
    """Return why a text is not a valid schedule name, or an empty string if it is valid."""
    if len(text) <= MAX_ID_LENGTH and _ID.fullmatch(text):
        return ""
    return f"expected at most {MAX_ID_LENGTH} letters, digits, '.', '-' and '_', the first a letter or digit"


def schedule_id(owner: str, name: str) -> str:
    """Return Temporal's id of a schedule: it contains the owner, so that owners may use the same names."""
    return _prefix(owner) + name


def schedule_name(owner: str, id_: str) -> str:
    """Return the owner's name of a schedule. The inverse of `schedule_id`."""
    return id_.removeprefix(_prefix(owner))


def _prefix(owner: str) -> str:
    return "" if owner == names.ANONYMOUS else f"{hashlib.sha256(owner.encode()).hexdigest()[:12]}-"


@dataclass(frozen=True)
class ScheduleDefinition:
    """A message that is sent to an agent repeatedly, each time as a new task.

    `owner` is the owner of the tasks (default: that of callers without authentication), `identity` the
    creator of the schedule. An empty `context_id` gives each task a context of its own. An empty `name` is
    derived from the definition, so that the same schedule is not created twice. `priority` is the agent's,
    `splits_queues` the setting of the gateways. `metadata` is that of the message. `keeps`: files or a
    webhook are stored for the tasks (`everloop/stores/artifacts/schedule_files.py`,
    `everloop/stores/push/schedule_webhooks.py`).
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
        """Temporal's id of the schedule."""
        return schedule_id(self.owner, self.name or names.agent_task_id(self.agent_id, self._digest))

    @property
    def task_prefix(self) -> str:
        """The prefix of the ids of its tasks. Temporal appends the time at which each was due."""
        name = schedule_id(self.owner, self.name or self._digest)
        return names.agent_task_id(self.agent_id, name)

    @property
    def _digest(self) -> str:
        content = json.dumps(describe_parts(self.parts), sort_keys=True)
        words = (self.agent_id, content, self.recurrence.description, self.owner, self.context_id)
        return hashlib.sha256(_MARK.join(words).encode()).hexdigest()[:8]

    @property
    def search_attributes(self) -> TypedSearchAttributes:
        """Search attributes of the schedule itself."""
        return TypedSearchAttributes(
            [SearchAttributePair(names.AGENT_ID, self.agent_id), SearchAttributePair(names.OWNER, self.owner)]
        )

    def schedule(self, task_queue: str, now: datetime, *, is_paused: bool = False) -> Schedule:
        """Return Temporal's schedule. It holds only the agent's id: each task gets the current agent."""
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
