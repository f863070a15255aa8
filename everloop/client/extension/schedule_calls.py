"""Messages that are sent to an agent at set times, each as a new task."""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal, cast

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from pydantic import BeforeValidator, JsonValue

from everloop.client.content import Content, Files, Json, Part, message_json, message_of, parts_of
from everloop.client.errors import InvalidError
from everloop.client.extension.extension_calls import ExtensionCalls, ExtensionResponse, read
from everloop.client.fold import state_of
from everloop.client.task_events import TaskState
from everloop.workflows.contract.http_extension import Address

Overlap = Literal["skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"]
"""Rule for a run while the task before still works: the run is skipped; it waits (one, or all); the other
task is cancelled or terminated first; or both work."""


def _state(name: str) -> TaskState:
    return state_of(dict(pb.TaskState.items()).get(name, 0))


class ScheduledRun(ExtensionResponse):
    """A task that a schedule has started; its state is unspecified after its retention."""

    task_id: str
    at: datetime
    state: Annotated[TaskState, BeforeValidator(_state)] = TaskState.UNSPECIFIED


class Schedule(ExtensionResponse):
    """Schedule of messages to an agent: exactly one of `cron`, `every` and `at` is set."""

    id: str
    agent: str
    message: dict[str, JsonValue]
    """In A2A's format; `parts` are its parts."""
    cron: str = ""
    every: str = ""
    """An interval such as 30m or 1h30m."""
    at: datetime | None = None
    time_zone: str = "UTC"
    overlap: str = "skip"
    context_id: str = ""
    """Empty: each run has a conversation of its own."""
    note: str = ""
    paused: bool = False
    created_at: datetime | None = None
    next_runs: list[datetime] = []
    last_runs: list[ScheduledRun] = []
    """The newest first."""
    push_config: dict[str, JsonValue] | None = None

    @property
    def parts(self) -> list[Part]:
        """The parts of the message."""
        message = ParseDict(self.message, pb.Message(), ignore_unknown_fields=True)
        return [Part.of(part) for part in message.parts]


class ScheduleCalls(ExtensionCalls):
    """The part of `Client` for schedules."""

    def schedules(self, *, owner: str = "") -> AsyncGenerator[Schedule]:
        """Yield the schedules of the owner, each with its next and its last run.

        Args:
            owner: Another owner than the caller's; requires the scope admin.
        """
        return self._listed(Address.LIST_SCHEDULES, name="schedules", kind=Schedule, query={"owner": owner})

    async def schedule(self, schedule_id: str, *, owner: str = "") -> Schedule:
        """Return a schedule with its next and last runs. `owner` as of `schedules`.

        Raises:
            NotFoundError: there is no such schedule.
        """
        return read(Schedule, await self._request(Address.SHOW_SCHEDULE, schedule_id, query={"owner": owner}))

    async def create_schedule(  # noqa: PLR0913 -- all have names and defaults
        self,
        *content: Content,
        id: str = "",  # noqa: A002 -- what it is called everywhere else
        agent: str = "",
        cron: str = "",
        every: str | timedelta = "",
        at: str | datetime = "",
        time_zone: str = "",
        overlap: Overlap = "skip",
        context_id: str = "",
        note: str = "",
        files: Files = (),
        data: Json = None,
        metadata: Mapping[str, Json] | None = None,
        push_config: Mapping[str, Json] | None = None,
    ) -> Schedule:
        """Create a schedule. Repeating it with the same id changes nothing.

        Args:
            content: Texts and parts of the message.
            id: Its name; empty: the server chooses one.
            agent: The receiver of the message; empty: the agent of this client.
            cron: Five fields, such as 0 9 * * 1-5. Exactly one of cron, every and at is given.
            every: An interval: a timedelta, or 90s, 30m, 1h30m, 7d.
            at: A future time, for one run; without an offset it is of `time_zone`.
            time_zone: Such as Europe/Berlin; empty: UTC.
            overlap: The rule for a run while the one before still works.
            context_id: The conversation of all its runs; empty: each has its own.
            note: For people.
            files: As of `send`.
            data: As of `send`.
            metadata: As of `send`.
            push_config: The receiver of its tasks' notifications, in A2A's format: {"url": "https://…"}.

        Raises:
            InvalidError: the server rejects it; the message names the field. Status 409: there is another one
                of this id.
        """
        parts = await parts_of(content, files, data)
        body = _body(parts, metadata, cron, every, at)
        given = {"timeZone": time_zone, "contextId": context_id, "note": note, "id": id}
        body |= {name: value for name, value in given.items() if value} | {"overlap": overlap}
        if push_config:
            body["pushConfig"] = cast("JsonValue", push_config)
        body["agent"] = agent or await self._connection.agent_id()
        return read(Schedule, await self._request(Address.CREATE_SCHEDULE, body=body))

    async def change_schedule(  # noqa: PLR0913 -- all have names and defaults
        self,
        schedule_id: str,
        *content: Content,
        cron: str = "",
        every: str | timedelta = "",
        at: str | datetime = "",
        time_zone: str = "",
        overlap: Overlap | None = None,
        context_id: str | None = None,
        note: str | None = None,
        files: Files = (),
        data: Json = None,
        metadata: Mapping[str, Json] | None = None,
        push_config: Mapping[str, Json] | None = None,
    ) -> Schedule:
        """Change the given fields of a schedule. Arguments as of `create_schedule`.

        Raises:
            NotFoundError: there is no such schedule.
            InvalidError: the server rejects it; the message names the field.
        """
        has_message = content or files or data is not None
        parts = await parts_of(content, files, data) if has_message else []
        body = _body(parts, metadata, cron, every, at)
        if time_zone:
            body["timeZone"] = time_zone
        given = {"overlap": overlap, "contextId": context_id, "note": note}
        body |= {name: value for name, value in given.items() if value is not None}
        if push_config is not None:
            body["pushConfig"] = cast("JsonValue", push_config)
        return read(Schedule, await self._request(Address.CHANGE_SCHEDULE, schedule_id, body=body))

    async def pause_schedule(self, schedule_id: str) -> Schedule:
        """Pause a schedule: it starts no tasks until it is resumed. Repeating it is not an error.

        Raises:
            NotFoundError: there is no such schedule.
        """
        return read(Schedule, await self._request(Address.PAUSE_SCHEDULE, schedule_id))

    async def resume_schedule(self, schedule_id: str) -> Schedule:
        """Resume a schedule. Repeating it is not an error.

        Raises:
            NotFoundError: there is no such schedule.
        """
        return read(Schedule, await self._request(Address.RESUME_SCHEDULE, schedule_id))

    async def run_schedule(self, schedule_id: str) -> str:
        """Run a schedule now; return the id of its task, empty if it waits for the one before.

        Raises:
            NotFoundError: there is no such schedule.
            InvalidError: the task before it still runs, and `overlap` skips this one (status 409).
        """
        return str((await self._request(Address.RUN_SCHEDULE, schedule_id)).get("taskId", ""))

    async def delete_schedule(self, schedule_id: str, *, owner: str = "") -> None:
        """Delete a schedule; tasks that it has started go on. `owner` as of `schedules`.

        Raises:
            NotFoundError: there is no such schedule.
        """
        await self._request(Address.DELETE_SCHEDULE, schedule_id, query={"owner": owner})


def _body(
    parts: list[Part],
    metadata: Mapping[str, Json] | None,
    cron: str,
    every: str | timedelta,
    at: str | datetime,
) -> dict[str, JsonValue]:
    """Return the given fields of a schedule.

    Raises:
        InvalidError: the time is invalid.
    """
    if isinstance(every, timedelta):
        every = f"{int(every.total_seconds())}s"
    given = {"cron": cron, "every": every, "at": at.isoformat() if isinstance(at, datetime) else at}
    body: dict[str, JsonValue] = {name: value for name, value in given.items() if value}
    if parts:
        message = message_json(message_of(parts, metadata, message_id="scheduled"))
        body["message"] = {name: value for name, value in message.items() if name != "messageId"}
    elif metadata:
        raise InvalidError("metadata is of a message; give the message, too")
    return body
