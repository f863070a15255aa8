"""Tasks, messages and events for store tests."""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import cast

from pydantic import JsonValue
from redis.asyncio import Redis

from everloop.stores.keys import (
    OPEN_TASKS_KEY,
    provider_calls_key,
    provider_failures_key,
    provider_key,
    provider_tickets_key,
)
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, StreamedEvent
from everloop.workflows.contract.events import ArtifactChunk, ChunkMode, Shown, StatusChanged, TaskEvent
from everloop.workflows.contract.messages import AgentMessage, DataPart, Part, TextPart, ToolCall, UserMessage
from everloop.workflows.contract.questions import Question, QuestionKind
from everloop.workflows.contract.tasks import Artifact, TaskState, TaskStatus, TaskView

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def new_id() -> str:
    return uuid.uuid4().hex


def at(seconds: float) -> datetime:
    """Return a time this many seconds into the tests' year."""
    return EPOCH + timedelta(seconds=seconds)


def said(message_id: str, text: str = "hello") -> UserMessage:
    return UserMessage(message_id=message_id, parts=(TextPart(text=text),))


def told(message_id: str, text: str = "a moment") -> AgentMessage:
    return AgentMessage(message_id=message_id, parts=(TextPart(text=text),))


def asked(question_id: str) -> Question:
    call = ToolCall(id=question_id, name="delete", arguments='{"path": "a"}')
    return Question(id=question_id, kind=QuestionKind.CONFIRMATION, text="Delete a?", call=call)


async def open_entries(redis: Redis, task_id: str) -> list[str]:
    """Return the entries of a task among the open ones."""
    entries = cast("list[str]", await redis.zrange(OPEN_TASKS_KEY, 0, -1))
    return [entry for entry in entries if entry.partition(" ")[0] == task_id]


AGENT_ID = "demo"


def submitted(
    task_id: str = "", *, owner: str = "", agent_id: str = AGENT_ID, context_id: str = "", seconds: float = 0
) -> TaskView:
    """Return a view as the gateway creates it, with new ids by default."""
    return TaskView(
        task_id=task_id or new_id(),
        context_id=context_id or new_id(),
        owner=owner or new_id(),
        agent_id=agent_id,
        created_at=at(seconds),
        status=TaskStatus(state=TaskState.SUBMITTED, at=at(seconds)),
        history=(said("m1"),),
    )


def answered(view: TaskView, run_id: str, version: int, **changes: object) -> TaskView:
    """Return a view as the workflow would answer it: working, at version seconds."""
    status = TaskStatus(state=TaskState.WORKING, at=at(version))
    return view.model_copy(update={"run_id": run_id, "version": version, "status": status, **changes})


def status(  # noqa: PLR0913 -- the fields of a status, most of them left out in each test
    version: int,
    state: TaskState = TaskState.WORKING,
    *,
    step: int = 0,
    message: AgentMessage | None = None,
    received: tuple[UserMessage, ...] = (),
    seconds: float | None = None,
    questions: tuple[Question, ...] = (),
    metadata: Mapping[str, JsonValue] = MappingProxyType({}),
    shows: Shown | None = None,
) -> StatusChanged:
    """Return a status with its time at its version in seconds by default."""
    moment = at(version if seconds is None else seconds)
    return StatusChanged(
        version=version,
        step=step,
        state=state,
        at=moment,
        message=message,
        received=received,
        questions=questions,
        metadata=dict(metadata),
        shows=shows,
    )


def chunk(  # noqa: PLR0913 -- the fields of the fence, which is what the tests are about
    text: str,
    *,
    position: int = 0,
    attempt: int = 1,
    index: int = 0,
    last: bool = False,
    artifact_id: str = "response",
    part: Part | None = None,
    mode: ChunkMode = "draft",
    failed: bool = False,
) -> ArtifactChunk:
    return ArtifactChunk(
        artifact_id=artifact_id,
        name=artifact_id.title(),
        mode=mode,
        position=position,
        attempt=attempt,
        index=index,
        part=part or TextPart(text=text),
        last_chunk=last,
        failed=failed,
    )


def artifact(
    text: str, *, complete: bool = True, failed: bool = False, artifact_id: str = "response"
) -> Artifact:
    return Artifact(
        artifact_id=artifact_id,
        name=artifact_id.title(),
        parts=(TextPart(text=text),),
        complete=complete,
        failed=failed,
    )


def data(**fields: str) -> DataPart:
    return DataPart(data=dict(fields))


async def stream_of(views: TaskViews, task_id: str) -> list[TaskEvent]:
    """Return all events of a task's stream."""
    return [entry.event for entry in await entries_of(views, task_id)]


async def entries_of(views: TaskViews, task_id: str) -> list[StreamedEvent]:
    return await views.read({task_id: START}, wait=0, limit=1_000_000)


async def view_of(views: TaskViews, task_id: str) -> TaskView:
    """Return the view of an existing task."""
    snapshot = await views.load(task_id)
    assert snapshot, f"task {task_id} is unknown"
    return snapshot.view


Step = Callable[[TaskViews, TaskView], Awaitable[object]]
"""A change of a task."""


async def created(views: TaskViews, view: TaskView) -> None:
    """Create the task."""
    await views.create(view)


def published(run_id: str, *events: TaskEvent) -> Step:
    return lambda views, view: views.publish(view.task_id, run_id, events)


def restored(run_id: str, version: int, **changes: object) -> Step:
    """Restore what `answered` returns."""
    return lambda views, view: views.restore(answered(view, run_id, version, **changes))


async def after(views: TaskViews, *steps: Step) -> TaskView:
    """Make these changes of a new task, and return it as it was created."""
    view = submitted()
    for step in steps:
        await step(views, view)
    return view


PROVIDER_KEYS = (provider_key, provider_calls_key, provider_tickets_key, provider_failures_key)


async def let_pass(redis: Redis, provider: str, seconds: float) -> None:
    """Move all stored times of a provider back by this many seconds, as if that time had passed."""
    state, calls, tickets, failures = (key(provider) for key in PROVIDER_KEYS)
    for name in await redis.hkeys(state):
        if name not in {"probe", "pause"}:
            await redis.hincrbyfloat(state, name, -1000 * seconds)
    for times in (calls, tickets):
        for call in await redis.zrange(times, 0, -1):
            await redis.zincrby(times, -1000 * seconds, str(call))
    for index, time in enumerate(await redis.lrange(failures, 0, -1)):
        await redis.lset(failures, index, str(int(time) - round(1000 * seconds)))
