"""The schedules of an Everloop, in Temporal."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    Client,
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

from everloop.deploy.schedule.definition import QueueSettings, ScheduleDefinition
from everloop.deploy.schedule.recurrence import UTC_NAME, NextRun, Recurrence
from everloop.runtime.temporal.connection import connect_temporal
from everloop.runtime.temporal.describe import is_unavailable
from everloop.workflows.contract import names


class ScheduleError(Exception):
    """A schedule cannot be made, found or changed; the message is one line and says what to do."""


ANSWER_TIMEOUT = timedelta(seconds=10)
"""How long Temporal may take for an answer."""

START_TIMEOUT = 5.0
"""Seconds until a task that was triggered has started, unless it has to wait for the one before it."""

START_PAUSE = 0.1
"""Seconds between two looks for it."""

WHEN = "when"
"""The memo of a schedule that tells when it runs as its user wrote it; Temporal keeps calendars."""

_WRONG_SPEC = "Invalid schedule spec: "


@dataclass(frozen=True)
class ListedSchedule:
    """A schedule as the list shows it. No `next_run`: it is paused; no `last_task`: none was started yet."""

    id: str
    agent_id: str
    when: str
    next_run: NextRun | None
    last_task: str
    is_paused: bool


class Schedules:
    """Makes, lists and changes schedules; those that start something else than tasks are left alone."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def add(self, definition: ScheduleDefinition) -> NextRun:
        """Make a schedule; return when it runs first.

        Raises:
            ScheduleError: Temporal refuses it or does not answer, or there is one of its id.
        """
        async with _answers(definition.id, definition.recurrence):
            handle = await self._client.create_schedule(
                definition.id,
                definition.schedule(self._task_queue, datetime.now(UTC)),
                memo={WHEN: definition.recurrence.description},
                search_attributes=definition.search_attributes,
                rpc_timeout=ANSWER_TIMEOUT,
            )
            return await _next_run(handle)

    async def listed(self) -> list[ListedSchedule]:
        """Return all schedules by id; what was changed in the last second may not show yet.

        Raises:
            ScheduleError: Temporal does not answer.
        """
        async with _answers():
            found = await self._client.list_schedules(rpc_timeout=ANSWER_TIMEOUT)
            listed = [await _listed(each) async for each in found]
        return sorted(filter(None, listed), key=lambda each: each.id)

    async def remove(self, schedule_id: str) -> None:
        """Remove a schedule; tasks that it has started go on.

        Raises:
            ScheduleError: there is no such schedule, or Temporal does not answer.
        """
        async with _answers(schedule_id):
            handle, _ = await self._find(schedule_id)
            await handle.delete(rpc_timeout=ANSWER_TIMEOUT)

    async def pause(self, schedule_id: str) -> None:
        """Let a schedule start nothing until it is resumed.

        Raises:
            ScheduleError: there is no such schedule, or Temporal does not answer.
        """
        async with _answers(schedule_id):
            handle, known = await self._find(schedule_id)
            # Temporal would put a note of its own in the place of the user's.
            await handle.pause(note=known.schedule.state.note, rpc_timeout=ANSWER_TIMEOUT)

    async def resume(self, schedule_id: str) -> NextRun:
        """Let a schedule start tasks again; return when.

        Raises:
            ScheduleError: there is no such schedule, or Temporal does not answer.
        """
        async with _answers(schedule_id):
            handle, known = await self._find(schedule_id)
            await handle.unpause(note=known.schedule.state.note, rpc_timeout=ANSWER_TIMEOUT)
            return await _next_run(handle)

    async def trigger(self, schedule_id: str) -> str:
        """Start a task now; return its id, empty if no new one started within 5 s.

        The overlap policy decides; and two tasks of one second would have the same id, so one is started.

        Raises:
            ScheduleError: there is no such schedule, or Temporal does not answer.
        """
        async with _answers(schedule_id):
            handle, known = await self._find(schedule_id)
            await handle.trigger(rpc_timeout=ANSWER_TIMEOUT)
            try:
                async with asyncio.timeout(START_TIMEOUT):
                    return await _started_since(handle, known)
            except TimeoutError:
                return ""

    async def _find(self, schedule_id: str) -> tuple[ScheduleHandle, ScheduleDescription]:
        handle = self._client.get_schedule_handle(schedule_id)
        known = await handle.describe(rpc_timeout=ANSWER_TIMEOUT)
        action = known.schedule.action
        if not isinstance(action, ScheduleActionStartWorkflow) or action.workflow != names.WORKFLOW_TYPE:
            raise ScheduleError(f"schedule {schedule_id!r} starts no tasks of agents; it is not Everloop's")
        return handle, known


async def connected_schedules() -> Schedules:
    """Connect to the Temporal, and use the queue, that the environment names.

    Raises:
        TemporalUnreachableError: nobody is there, or the settings of the connection cannot be used.
        EncryptionError: the keys cannot be used.
    """
    # Not with the blob store: a blob may expire while its schedule lives.
    return Schedules(await connect_temporal(), QueueSettings().task_queue)


async def _started_since(handle: ScheduleHandle, known: ScheduleDescription) -> str:
    """Wait until a schedule has started, or skipped, one more task than was known; return the task's id."""
    while True:
        info = (await handle.describe(rpc_timeout=ANSWER_TIMEOUT)).info
        if info.num_actions > known.info.num_actions:
            return _last_task(info.recent_actions)
        if info.num_actions_skipped_overlap > known.info.num_actions_skipped_overlap:
            return ""
        await asyncio.sleep(START_PAUSE)


async def _next_run(handle: ScheduleHandle) -> NextRun:
    known = await handle.describe(rpc_timeout=ANSWER_TIMEOUT)
    return _next(known.info.next_action_times, known.schedule.spec)


def _next(times: Sequence[datetime], spec: ScheduleSpec) -> NextRun:
    return NextRun(next(iter(times), None), spec.time_zone_name or UTC_NAME)


async def _listed(entry: ScheduleListDescription) -> ListedSchedule | None:
    """Return what the list shows; None of a schedule that starts no tasks of agents."""
    schedule, info = entry.schedule, entry.info
    if schedule is None or info is None:
        return None
    action = schedule.action
    if not isinstance(action, ScheduleListActionStartWorkflow) or action.workflow != names.WORKFLOW_TYPE:
        return None
    return ListedSchedule(
        id=entry.id,
        agent_id=entry.typed_search_attributes.get(names.AGENT_ID, ""),
        when=await entry.memo_value(WHEN, "", type_hint=str),
        next_run=None if schedule.state.paused else _next(info.next_action_times, schedule.spec),
        last_task=_last_task(info.recent_actions),
        is_paused=schedule.state.paused,
    )


def _last_task(actions: Sequence[ScheduleActionResult]) -> str:
    started = [each.action for each in actions]
    tasks = [one.workflow_id for one in started if isinstance(one, ScheduleActionExecutionStartWorkflow)]
    return tasks[-1] if tasks else ""


@asynccontextmanager
async def _answers(schedule_id: str = "", recurrence: Recurrence | None = None) -> AsyncGenerator[None]:
    """Expect that Temporal answers, and does what it is asked.

    Raises:
        ScheduleError: it does not.
    """
    try:
        yield
    except ScheduleAlreadyRunningError as error:
        raise ScheduleError(
            f"there is a schedule {schedule_id!r} already; remove it first, or give this one another --id"
        ) from error
    except RPCError as error:
        raise ScheduleError(_refusal(error, schedule_id, recurrence)) from error


def _refusal(error: RPCError, schedule_id: str, recurrence: Recurrence | None) -> str:
    said = " ".join(error.message.split())
    if error.status is RPCStatusCode.NOT_FOUND and schedule_id and not recurrence:
        return f"there is no schedule {schedule_id!r}; `everloop schedules list` shows which there are"
    if said.startswith(_WRONG_SPEC) and recurrence:
        return _wrong_recurrence(said.removeprefix(_WRONG_SPEC), recurrence)
    if is_unavailable(error):
        return f"Temporal does not answer ({error.status.name}: {said}); see whether it runs, and try again"
    return f"Temporal refuses this ({error.status.name}): {said}"


def _wrong_recurrence(said: str, recurrence: Recurrence) -> str:
    if "time zone" in said:
        return f"--time-zone: {said}; give a name of the IANA database, such as Europe/Berlin"
    if recurrence.every:
        return f"--every: {recurrence.every!r} cannot be used: {said}; write 90s, 30m, 1h30m or 7d"
    return (
        f"--cron: {recurrence.cron!r} cannot be used: {said}; expected minute, hour, day of the month, month "
        "and day of the week, as in '0 9 * * 1-5'"
    )
