"""What a schedule starts, as Temporal and as its user write it."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import Field
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleState,
)
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from everloop.deploy.schedule.recurrence import Recurrence
from everloop.gateway.context import ANONYMOUS
from everloop.runtime.settings import Settings
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import AgentSpec, TaskInput, TaskState


class QueueSettings(Settings):
    """Where scheduled tasks wait: EVERLOOP_TASK_QUEUE and EVERLOOP_SPLIT_QUEUES, as gateways have them."""

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

MAX_TEXT_BYTES = 100_000
"""Of the message: Temporal keeps it with the schedule, and copies it into each task."""

MAX_SUMMARY_BYTES = 200
"""Of the line that the Temporal UI shows for a task; Temporal refuses 400 and more."""

_MARK = "\x1f"


@dataclass(frozen=True)
class ScheduleDefinition:
    """A message that an agent gets again and again, each time as a new task.

    `owner` is whose tasks these are (default: of callers who did not authenticate). `context_id` empty: each
    task has a context of its own. `given_id` empty: an id is made of what the schedule does, so that the same
    schedule is not made twice. `priority` is the agent's,
    `splits_queues` what gateways are set to.
    """

    agent_id: str
    agent_name: str
    text: str
    recurrence: Recurrence
    overlap: str = "skip"
    owner: str = ANONYMOUS
    context_id: str = ""
    given_id: str = ""
    note: str = ""
    priority: int | None = None
    splits_queues: bool = False

    @property
    def id(self) -> str:
        """What the schedule is called."""
        return self.given_id or names.agent_task_id(self.agent_id, self._digest)

    @property
    def task_prefix(self) -> str:
        """What the ids of its tasks begin with; Temporal adds the time when each was due."""
        return names.agent_task_id(self.agent_id, self.given_id or self._digest)

    @property
    def _digest(self) -> str:
        words = (self.agent_id, self.text, self.recurrence.description, self.owner, self.context_id)
        return hashlib.sha256(_MARK.join(words).encode()).hexdigest()[:8]

    @property
    def search_attributes(self) -> TypedSearchAttributes:
        """How the schedule itself is found."""
        return TypedSearchAttributes(
            [
                SearchAttributePair(names.AGENT_ID, self.agent_id),
                SearchAttributePair(names.OWNER, self.owner),
            ]
        )

    def schedule(self, task_queue: str, now: datetime) -> Schedule:
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
            state=ScheduleState(note=self.note or None),
        )

    def _task(self, now: datetime) -> TaskInput:
        return TaskInput(
            context_id=self.context_id,
            owner=self.owner,
            agent=AgentSpec(id=self.agent_id),
            message=UserMessage(message_id=self.id, parts=(TextPart(text=self.text),)),
            created_at=now,
            scheduled=True,
            splits_queues=self.splits_queues,
        )

    @property
    def _task_attributes(self) -> TypedSearchAttributes:
        context = [SearchAttributePair(names.CONTEXT_ID, self.context_id)] if self.context_id else []
        state = SearchAttributePair(names.TASK_STATE, TaskState.SUBMITTED)
        return TypedSearchAttributes([*self.search_attributes.search_attributes, *context, state])

    @property
    def _summary(self) -> str:
        line = f"{self.agent_name}: {' '.join(self.text.split())}".encode()
        return line[:MAX_SUMMARY_BYTES].decode(errors="ignore")
