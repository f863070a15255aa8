"""Schedules of clients, validated and in our own terms.

All functions raise A2A errors that name the field, the problem and the expected value.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar, Literal
from zoneinfo import ZoneInfo

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, PushNotificationNotSupportedError
from pydantic import Field, JsonValue

from everloop.agents.agent import Agent
from everloop.agents.errors import UnknownAgentError
from everloop.gateway.auth.scopes import check_agent
from everloop.gateway.context import Caller, identity_of
from everloop.gateway.http.http_calls import MAX_NOTE, RequestBody
from everloop.gateway.requests.fields import check_id
from everloop.gateway.requests.incoming_messages import IncomingMessage, read_message
from everloop.gateway.requests.proto import read_params
from everloop.gateway.services import Services
from everloop.runtime.schedules.recurrence import (
    SHORTEST,
    Recurrence,
    is_within_a_minute,
    read_interval,
)
from everloop.runtime.schedules.schedule_definition import (
    MAX_MESSAGE_BYTES,
    ScheduleDefinition,
    problem_of_id,
)
from everloop.stores.artifacts.changes import NewPart
from everloop.stores.push.configs import PushConfig

Overlap = Literal["skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"]

_TIMES = ("cron", "every", "at")

_MAX_TIME = 200
"""Maximum characters of a time expression. Temporal responds to much longer ones as in an outage."""

_ZONE = re.compile(r"(?!Local$)[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
"""Possible name of a time zone. `Local` is that of Temporal's machine."""

_LAST_YEAR = 2100
"""The last year that Temporal can store."""


class ScheduleChange(RequestBody):
    """Changes to a schedule. Missing fields stay unchanged."""

    expected: ClassVar[str] = (
        '{"message": {"parts": [{"text": "…"}]}, "cron": "0 9 * * 1-5", "timeZone": "Europe/Berlin"}, or '
        '"every": "30m", or "at": "2026-12-01T09:00:00Z" in place of "cron"'
    )

    message: dict[str, JsonValue] | None = None
    cron: str = Field(default="", max_length=_MAX_TIME)
    every: str = Field(default="", max_length=_MAX_TIME)
    at: str = Field(default="", max_length=_MAX_TIME)
    time_zone: str = Field(default="", max_length=_MAX_TIME)
    overlap: Overlap = "skip"
    context_id: str = ""
    note: str = Field(default="", max_length=MAX_NOTE)
    push_config: dict[str, JsonValue] | None = None


class NewSchedule(ScheduleChange):
    """New schedule."""

    id: str = ""
    agent: str = ""


@dataclass(frozen=True)
class RequestedSchedule:
    """Requested schedule, with the objects to store for it. `files` None: unchanged."""

    definition: ScheduleDefinition
    files: Mapping[str, NewPart] | None
    config: PushConfig | None


async def read_new(services: Services, caller: Caller, body: NewSchedule) -> RequestedSchedule:
    """Validate a new schedule."""
    if body.message is None:
        raise InvalidParamsError(f"message is missing; send {body.expected}")
    if body.id and (problem := problem_of_id(body.id)):
        raise InvalidParamsError(f"id does not fit: {problem}")
    agent = _agent(services, caller, body.agent or services.agents.default.id)
    plain = ScheduleDefinition(
        agent_id=agent.id,
        agent_name=agent.name,
        parts=(),
        recurrence=_recurrence(body, None),
        owner=caller.owner,
        name=body.id,
        priority=agent.priority,
        splits_queues=services.settings.split_queues,
    )
    return await read_change(services, caller, body, plain)


def _agent(services: Services, caller: Caller, agent_id: str) -> Agent:
    try:
        agent = services.agents.find(agent_id)
    except UnknownAgentError:
        raise InvalidParamsError(
            f"agent is {agent_id[:100]!r}, which is none of this server; GET /agents lists those"
        ) from None
    check_agent(caller, agent.id)
    return agent


async def read_change(
    services: Services, caller: Caller, body: ScheduleChange, before: ScheduleDefinition
) -> RequestedSchedule:
    """Return a schedule with a caller's changes."""
    agent = _agent(services, caller, before.agent_id)
    incoming = _read_message(body, agent, caller.owner) if body.message is not None else None
    after = replace(
        before,
        identity=identity_of(caller),
        parts=incoming.message.parts if incoming else before.parts,
        metadata=incoming.message.metadata if incoming else before.metadata,
        recurrence=_recurrence(body, before.recurrence),
        overlap=body.overlap if "overlap" in body.model_fields_set else before.overlap,
        note=body.note if "note" in body.model_fields_set else before.note,
        context_id=_context(body, incoming, before),
    )
    config = await _config(services, body, after)
    files = {file.artifact_id: file.part for file in incoming.files} if incoming else None
    keeps_config = bool(config) or ("push_config" not in body.model_fields_set and before.keeps)
    keeps_files = bool(files) if files is not None else before.keeps
    return RequestedSchedule(replace(after, keeps=keeps_config or keeps_files), files, config)


def _read_message(body: ScheduleChange, agent: Agent, owner: str) -> IncomingMessage:
    given = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", **(body.message or {})}
    params = read_params(pb.SendMessageRequest, {"message": given})
    for name in ("taskId", "referenceTaskIds"):
        if given.get(name):
            raise InvalidParamsError(f"message.{name} cannot be: each run is a task of its own; leave it out")
    return read_message(params, owner, agent, max_bytes=MAX_MESSAGE_BYTES)


async def _config(
    services: Services, body: ScheduleChange, definition: ScheduleDefinition
) -> PushConfig | None:
    if body.push_config is None:
        return None
    if services.push is None:
        raise PushNotificationNotSupportedError("this server does not send push notifications")
    config = read_params(pb.TaskPushNotificationConfig, body.push_config)
    try:
        await services.push.check(config, definition.owner)
    except InvalidParamsError as error:
        raise InvalidParamsError(f"pushConfig.{error}") from None
    return services.push.read(config, definition.id, definition.owner, context_id=definition.context_id)


def fields_of(body: ScheduleChange) -> list[str]:
    """Return the fields of a definition that a change covers."""
    given = body.model_fields_set
    fields = [name for name in ("overlap", "note", "context_id") if name in given]
    if given & {*_TIMES, "time_zone"}:
        fields.append("recurrence")
    return [*fields, "parts", "metadata"] if "message" in given else fields


def _context(body: ScheduleChange, incoming: IncomingMessage | None, before: ScheduleDefinition) -> str:
    if "context_id" in body.model_fields_set:
        return check_id(body.context_id, "contextId") if body.context_id else ""
    return (incoming and incoming.context_id) or before.context_id


def _recurrence(body: ScheduleChange, before: Recurrence | None) -> Recurrence:
    """Return the recurrence of a schedule; unchanged if the body has none.

    Raises:
        InvalidParamsError: the recurrence is missing, ambiguous, or not a valid time.
    """
    given = [name for name in _TIMES if getattr(body, name)]
    if len(given) > 1 or not (given or before):
        raise InvalidParamsError("a schedule has one of cron, every and at; send one of them")
    zone = body.time_zone or (before.time_zone if before else "UTC")
    if body.time_zone and not _ZONE.fullmatch(zone):
        raise InvalidParamsError("timeZone is no name of the IANA database; give one, such as Europe/Berlin")
    if not given and before:
        return before if before.at else replace(before, time_zone=zone)
    if body.every:
        try:
            interval = read_interval(body.every)
        except ValueError as error:
            raise InvalidParamsError(f"every: {error}") from None
        if interval < SHORTEST:
            raise _too_often("every")
    if body.cron and is_within_a_minute(body.cron):
        raise _too_often("cron")
    return Recurrence(body.cron.strip(), body.every, zone, _time(body.at, zone) if body.at else None)


def _too_often(field: str) -> InvalidParamsError:
    return InvalidParamsError(f"{field}: a schedule runs at most once a minute; let it run less often")


def _time(text: str, zone: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=at.tzinfo or ZoneInfo(zone)).astimezone(UTC).replace(microsecond=0)
    except (ValueError, OSError, KeyError, OverflowError):
        raise InvalidParamsError(
            "at is no time; write 2026-12-01T09:00:00Z, or leave out the Z and name a timeZone"
        ) from None
    if at <= datetime.now(UTC):
        raise InvalidParamsError("at is over; give a time to come")
    if at.year > _LAST_YEAR:
        raise InvalidParamsError(f"at is behind the year {_LAST_YEAR}; give an earlier time")
    return at
