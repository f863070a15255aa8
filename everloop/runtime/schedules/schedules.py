"""Schedules of Everloop in Temporal.

ScheduleError
├── ScheduleUnknownError      the schedule does not exist, or is not Everloop's
├── ScheduleExistsError       a schedule of this id exists
├── ScheduleRefusedError      Temporal rejects its recurrence or another of its fields
└── ScheduleAwayError         Temporal does not answer
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from temporalio.api.common.v1 import Payloads
from temporalio.api.schedule.v1 import Schedule as RawSchedule
from temporalio.api.workflowservice.v1 import UpdateScheduleRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecution,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionResult,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleListActionStartWorkflow,
    ScheduleListDescription,
    ScheduleSpec,
)
from temporalio.service import RPCError, RPCStatusCode

from everloop.runtime.schedules.recurrence import UTC_NAME, NextRun, Recurrence, recurrence_of
from everloop.runtime.schedules.schedule_definition import (
    OVERLAPS,
    QueueSettings,
    ScheduleDefinition,
    schedule_name,
)
from everloop.runtime.temporal.describe import is_unavailable
from everloop.runtime.temporal.executions import may_be_equal
from everloop.runtime.temporal.temporal_connection import connect_temporal
from everloop.workflows.contract import names
from everloop.workflows.contract.tasks import TaskInput


class ScheduleError(Exception):
    """A schedule cannot be created, found or changed. The message is one line."""


class ScheduleUnknownError(ScheduleError):
    """The schedule does not exist, or is not Everloop's."""


class ScheduleExistsError(ScheduleError):
    """A schedule of this id exists."""


class ScheduleRefusedError(ScheduleError):
    """Temporal rejects the schedule. `field` is the label of the invalid field, empty if it is unknown."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class ScheduleAwayError(ScheduleError):
    """Temporal does not answer."""


ANSWER_TIMEOUT = timedelta(seconds=10)
"""Timeout of a request to Temporal."""

START_TIMEOUT = 5.0
"""Seconds to wait for a triggered task to start. It may have to wait for the one before it."""

START_PAUSE = 0.1
"""Seconds between two polls for it."""

CHANGES = 10
"""Attempts at a change that conflicts with changes by others."""

_WRONG_SPEC = "Invalid schedule spec: "
_OVERLAP_NAMES = {policy: name for name, policy in OVERLAPS.items()}


@dataclass(frozen=True)
class ListedSchedule:
    """A schedule in a list. `next_run` is None if it is paused, `last_task` if no task was started yet."""

    id: str
    agent_id: str
    owner: str
    when: str
    next_run: NextRun | None
    last_task: str
    is_paused: bool


@dataclass(frozen=True)
class StartedTask:
    """A task that a schedule started, and its start time."""

    task_id: str
    at: datetime


@dataclass(frozen=True)
class KnownSchedule:
    """A schedule with its details. The newest task is the last one."""

    definition: ScheduleDefinition
    is_paused: bool
    created_at: datetime
    next_runs: tuple[datetime, ...]
    last_tasks: tuple[StartedTask, ...]
    running: frozenset[str]


@dataclass(frozen=True)
class SchedulePage:
    """Ids of schedules, and the token of the next page, empty on the last page."""

    ids: tuple[str, ...]
    token: bytes = b""


class Schedules:
    """Create, list and change schedules of agent tasks. Other schedules are left alone.

    All methods raise `ScheduleAwayError` if Temporal does not answer, and those that take the id of a
    schedule raise `ScheduleUnknownError`.
    """

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def add(self, definition: ScheduleDefinition) -> NextRun:
        """Create a schedule and return its first run.

        Raises:
            ScheduleExistsError: A schedule of this id exists.
            ScheduleRefusedError: Temporal rejects it.
        """
        async with _answers(definition.id, definition.recurrence):
            handle = await self._client.create_schedule(
                definition.id,
                definition.schedule(self._task_queue, datetime.now(UTC)),
                search_attributes=definition.search_attributes,
                rpc_timeout=ANSWER_TIMEOUT,
            )
            return await _next_run(handle)

    async def change(
        self, schedule_id: str, changed: Callable[[ScheduleDefinition], ScheduleDefinition]
    ) -> None:
        """Replace the definition of a schedule. Tasks that it has started are not affected.

        Raises:
            ScheduleRefusedError: Temporal rejects it.
        """
        made = list[Recurrence]()

        async def update(description: ScheduleDescription) -> Schedule:
            before = await self._read(description)
            after = changed(before.definition)
            made.append(after.recurrence)
            schedule = after.schedule(self._task_queue, datetime.now(UTC), is_paused=before.is_paused)
            action = cast("ScheduleActionStartWorkflow", schedule.action)
            action.id = cast("ScheduleActionStartWorkflow", description.schedule.action).id
            return schedule

        async with _answers(schedule_id, made):
            await self._update(schedule_id, update)

    async def get(self, schedule_id: str) -> KnownSchedule:
        """Return the details of a schedule."""
        async with _answers(schedule_id):
            _, description = await self._find(schedule_id)
            return await self._read(description)

    async def listed(self) -> list[ListedSchedule]:
        """Return all schedules, ordered by id. Changes of the last second may be missing."""
        async with _answers():
            found = await self._client.list_schedules(rpc_timeout=ANSWER_TIMEOUT)
            listed = [_listed(each) async for each in found]
        return sorted(filter(None, listed), key=lambda each: each.id)

    async def of_owner(self, owner: str, size: int = 100, token: bytes = b"") -> SchedulePage:
        """Return a page of an owner's schedule ids. A schedule that was just created may be missing.

        Raises:
            ScheduleRefusedError: The token of the page is invalid.
        """
        async with _answers():
            found = await self._client.list_schedules(
                may_be_equal(names.OWNER, owner),
                page_size=size,
                next_page_token=token or None,
                rpc_timeout=ANSWER_TIMEOUT,
            )
            ids: tuple[str, ...] = ()
            while not ids:  # a page may hold only schedules of owners whose names share this prefix
                await found.fetch_next_page()
                page = [each for each in found.current_page or () if _listed(each)]
                ids = tuple(
                    each.id for each in page if each.typed_search_attributes.get(names.OWNER) == owner
                )
                if not found.next_page_token:
                    break
            return SchedulePage(ids, found.next_page_token or b"")

    async def remove(self, schedule_id: str) -> None:
        """Remove a schedule. Tasks that it has started go on."""
        async with _answers(schedule_id):
            handle, _ = await self._find(schedule_id)
            await handle.delete(rpc_timeout=ANSWER_TIMEOUT)

    async def pause(self, schedule_id: str) -> None:
        """Pause a schedule: it starts no tasks until it is resumed."""
        await self._set_paused(schedule_id, is_paused=True)

    async def resume(self, schedule_id: str) -> NextRun:
        """Resume a schedule and return its next run."""
        handle = await self._set_paused(schedule_id, is_paused=False)
        async with _answers(schedule_id):
            return await _next_run(handle)

    async def trigger(self, schedule_id: str) -> str:
        """Start a task now and return its id, or an empty string if no new one started within 5 s.

        The overlap policy applies. Two tasks of the same second would have the same id, so only one is
        started.
        """
        async with _answers(schedule_id):
            handle, description = await self._find(schedule_id)
            await handle.trigger(rpc_timeout=ANSWER_TIMEOUT)
            try:
                async with asyncio.timeout(START_TIMEOUT):
                    return await _started_since(handle, description)
            except TimeoutError:
                return ""

    async def _set_paused(self, schedule_id: str, *, is_paused: bool) -> ScheduleHandle:
        async def update(description: ScheduleDescription) -> Schedule:
            # The SDK's own methods would overwrite the user's note.
            description.schedule.state.paused = is_paused
            return description.schedule

        async with _answers(schedule_id):
            return await self._update(schedule_id, update)

    async def _update(
        self, schedule_id: str, changed: Callable[[ScheduleDescription], Awaitable[Schedule]]
    ) -> ScheduleHandle:
        """Apply a change to the current schedule. Repeat it if others change the schedule at the same time.

        Temporal silently drops a change that is not based on the newest version, so the result is checked.
        """
        for _ in range(CHANGES):
            handle, description = await self._find(schedule_id)
            schedule = await changed(description)
            changed_schedule = await schedule._to_proto(self._client)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] -- no other way has the token
            await self._client.workflow_service.update_schedule(
                UpdateScheduleRequest(
                    namespace=self._client.namespace,
                    schedule_id=schedule_id,
                    schedule=changed_schedule,
                    conflict_token=description.raw_description.conflict_token,
                    identity=self._client.identity,
                    request_id=str(uuid.uuid4()),
                ),
                retry=True,
                timeout=ANSWER_TIMEOUT,
            )
            now = (await handle.describe(rpc_timeout=ANSWER_TIMEOUT)).raw_description.schedule
            # The action holds the time of its change.
            if (_input(now), now.state.paused) == (_input(changed_schedule), changed_schedule.state.paused):
                return handle
        raise ScheduleAwayError("others change the schedule at the same time; try again")

    async def _find(self, schedule_id: str) -> tuple[ScheduleHandle, ScheduleDescription]:
        handle = self._client.get_schedule_handle(schedule_id)
        description = await handle.describe(rpc_timeout=ANSWER_TIMEOUT)
        action = description.schedule.action
        if not isinstance(action, ScheduleActionStartWorkflow) or action.workflow != names.WORKFLOW_TYPE:
            raise ScheduleUnknownError(
                f"schedule {schedule_id!r} starts no tasks of agents, so it is not Everloop's"
            )
        return handle, description

    async def _read(self, description: ScheduleDescription) -> KnownSchedule:
        schedule, info = description.schedule, description.info
        action = cast("ScheduleActionStartWorkflow", schedule.action)
        decode = self._client.data_converter.decode
        (task,) = cast("list[TaskInput]", await decode(cast("Sequence[Any]", action.args), [TaskInput]))
        summary = await decode([cast("Any", action.static_summary)], [str]) if action.static_summary else [""]
        definition = ScheduleDefinition(
            agent_id=task.agent.id,
            agent_name=str(summary[0]).partition(": ")[0],
            parts=task.message.parts,
            recurrence=recurrence_of(schedule.spec),
            overlap=_OVERLAP_NAMES.get(schedule.policy.overlap, "skip"),
            owner=task.owner,
            context_id=task.context_id,
            name=schedule_name(task.owner, description.id),
            note=schedule.state.note or "",
            priority=action.priority.priority_key,
            splits_queues=task.splits_queues,
            identity=task.identity,
            metadata=task.message.metadata,
            keeps=bool(task.attachments),
        )
        return KnownSchedule(
            definition=definition,
            is_paused=schedule.state.paused,
            created_at=info.created_at,
            next_runs=() if schedule.state.paused else tuple(info.next_action_times),
            last_tasks=tuple(
                StartedTask(each.action.workflow_id, each.started_at)
                for each in info.recent_actions
                if isinstance(each.action, ScheduleActionExecutionStartWorkflow)
            ),
            running=frozenset(map(_task_id, info.running_actions)),
        )


async def connected_schedules() -> Schedules:
    """Connect to Temporal and the task queue that the environment names.

    Raises:
        TemporalUnreachableError: Temporal does not answer, or the connection settings are invalid.
        EncryptionError: The encryption keys are invalid.
    """
    # Without the blob store: a blob may expire before its schedule.
    return Schedules(await connect_temporal(), QueueSettings().task_queue)


async def _started_since(handle: ScheduleHandle, before: ScheduleDescription) -> str:
    """Wait for the next task of a schedule and return its id, or an empty string if it was skipped."""
    while True:
        info = (await handle.describe(rpc_timeout=ANSWER_TIMEOUT)).info
        if info.num_actions > before.info.num_actions:
            return _last_task(info.recent_actions)
        if info.num_actions_skipped_overlap > before.info.num_actions_skipped_overlap:
            return ""
        await asyncio.sleep(START_PAUSE)


async def _next_run(handle: ScheduleHandle) -> NextRun:
    description = await handle.describe(rpc_timeout=ANSWER_TIMEOUT)
    return _next(description.info.next_action_times, description.schedule.spec)


def _next(times: Sequence[datetime], spec: ScheduleSpec) -> NextRun:
    return NextRun(next(iter(times), None), spec.time_zone_name or UTC_NAME)


def _listed(entry: ScheduleListDescription) -> ListedSchedule | None:
    """Return the list entry of a schedule, or None if it does not start tasks of agents."""
    schedule, info = entry.schedule, entry.info
    if schedule is None or info is None:
        return None
    action = schedule.action
    if not isinstance(action, ScheduleListActionStartWorkflow) or action.workflow != names.WORKFLOW_TYPE:
        return None
    return ListedSchedule(
        id=entry.id,
        agent_id=entry.typed_search_attributes.get(names.AGENT_ID, ""),
        owner=entry.typed_search_attributes.get(names.OWNER, ""),
        when=recurrence_of(schedule.spec).description,
        next_run=None if schedule.state.paused else _next(info.next_action_times, schedule.spec),
        last_task=_last_task(info.recent_actions),
        is_paused=schedule.state.paused,
    )


def _last_task(actions: Sequence[ScheduleActionResult]) -> str:
    tasks = [_task_id(each.action) for each in actions]
    return next((task for task in reversed(tasks) if task), "")


def _task_id(action: ScheduleActionExecution) -> str:
    return action.workflow_id if isinstance(action, ScheduleActionExecutionStartWorkflow) else ""


def _input(schedule: RawSchedule) -> Payloads:
    return schedule.action.start_workflow.input


@asynccontextmanager
async def _answers(
    schedule_id: str = "", recurrence: Recurrence | Sequence[Recurrence] = ()
) -> AsyncGenerator[None]:
    """Translate Temporal's errors. `recurrence` is the one that was sent, if any.

    Raises:
        ScheduleError: Temporal does not answer, or rejects the request.
    """
    try:
        yield
    except ScheduleAlreadyRunningError as error:
        raise ScheduleExistsError(f"there is a schedule {schedule_id!r} already") from error
    except RPCError as error:
        told = [recurrence] if isinstance(recurrence, Recurrence) else recurrence
        raise _refusal(error, schedule_id, next(reversed(told), None)) from error


def _refusal(error: RPCError, schedule_id: str, recurrence: Recurrence | None) -> ScheduleError:
    said = " ".join(error.message.split())
    if error.status is RPCStatusCode.NOT_FOUND and schedule_id:
        return ScheduleUnknownError(f"there is no schedule {schedule_id!r}")
    if said.startswith(_WRONG_SPEC) and recurrence:
        return _wrong_recurrence(said.removeprefix(_WRONG_SPEC), recurrence)
    if is_unavailable(error):
        return ScheduleAwayError(
            f"Temporal does not answer ({error.status.name}: {said}); see whether it runs, and try again"
        )
    return ScheduleRefusedError(f"Temporal refuses this ({error.status.name}): {said}")


def _wrong_recurrence(said: str, recurrence: Recurrence) -> ScheduleRefusedError:
    if "time zone" in said:
        return ScheduleRefusedError(
            f"{said}; give a name of the IANA database, such as Europe/Berlin", "time zone"
        )
    if recurrence.every:
        return ScheduleRefusedError(
            f"{recurrence.every!r} cannot be used: {said}; write 90s, 30m, 1h30m or 7d", "every"
        )
    return ScheduleRefusedError(
        f"{recurrence.cron!r} cannot be used: {said}; expected minute, hour, day of the month, month "
        "and day of the week, as in '0 9 * * 1-5'",
        "cron",
    )
