"""Schedules of an owner: messages that are sent to an agent at set times, each as a new task.

GET    /schedules                    those of the owner
POST   /schedules                    create one; repeating it changes nothing
GET    /schedules/{id}               with its next and its last runs
PATCH  /schedules/{id}               change the given fields
DELETE /schedules/{id}               delete it; tasks that it has started go on
POST   /schedules/{id}:pause, :resume, :run
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import structlog
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue
from pydantic.alias_generators import to_camel
from starlette.responses import Response
from structlog.typing import FilteringBoundLogger

from everloop.gateway.auth.scopes import may_use
from everloop.gateway.errors import TemporalUnavailableError
from everloop.gateway.extension.schedule_bodies import (
    NewSchedule,
    RequestedSchedule,
    ScheduleChange,
    fields_of,
    read_change,
    read_new,
)
from everloop.gateway.http.http_calls import HttpCall, answer
from everloop.gateway.http.http_errors import ConflictError, NotFoundError
from everloop.gateway.requests.fields import marked, page_token, unmarked
from everloop.gateway.services import Services
from everloop.runtime.concurrency import for_each
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.protocol.a2a_tasks import TaskUrl, timestamp, to_message
from everloop.runtime.schedules.schedule_definition import ScheduleDefinition, problem_of_id, schedule_id
from everloop.runtime.schedules.schedules import (
    START_TIMEOUT,
    KnownSchedule,
    ScheduleAwayError,
    ScheduleExistsError,
    ScheduleRefusedError,
    ScheduleUnknownError,
    StartedTask,
)
from everloop.stores.artifacts.schedule_files import context_of_schedule
from everloop.stores.push.configs import PushConfig
from everloop.workflows.contract.messages import UserMessage

_log: FilteringBoundLogger = structlog.get_logger(__name__)

MOST = 100
"""Maximum schedules of an owner."""

SHOWN_RUNS = 10
"""Maximum runs of a schedule, past or future, which is all that Temporal returns; lists have one of each."""


async def list_schedules(services: Services, call: HttpCall) -> Response:
    """List schedules, each with its next and its last run."""
    page = call.page
    place = page.read_token(lambda text: unmarked(text, call.owner), b"")
    with _translated():
        found = await services.schedules.of_owner(call.owner, page.size, place)

    async def show(id_: str) -> JsonValue:
        try:
            stored = await services.schedules.get(id_)
        except ScheduleUnknownError:  # deleted a moment ago
            return None
        except EncryptionError as error:
            # A schedule that cannot be decrypted must not hide the others of its owner.
            _log.warning("schedule left out of a list", schedule_id=id_, reason=str(error))
            return None
        return await _json(services, id_, stored, most_runs=1) if _is_visible(call, stored) else None

    with _translated():
        listed = await for_each(found.ids, show)
    shown: list[JsonValue] = [each for each in listed if each]
    token = page_token(marked(found.token, call.owner)) if found.token else ""
    return answer({"schedules": shown, "nextPageToken": token})


async def show_schedule(services: Services, call: HttpCall) -> Response:
    """Show a schedule."""
    return await _answer(services, *await _find(services, call))


async def create_schedule(services: Services, call: HttpCall) -> Response:
    """Create a schedule. Retries are safe."""
    requested = await read_new(services, call.caller, await call.body(NewSchedule))
    id_, definition = requested.definition.id, requested.definition
    with _translated():
        listed = (await services.schedules.of_owner(call.owner, MOST)).ids
        if not await services.attachments.quotas.reserve_schedule(call.owner, id_, MOST, listed):
            raise ConflictError(f"there are {MOST} schedules, and an owner may have no more; delete one")
        # Files first, with a time to live: after a crash the schedule may never be created.
        await services.attachments.files.bring(call.owner, id_, requested.files or {})
        try:
            await services.schedules.add(definition)
        except ScheduleExistsError:
            stored = await services.schedules.get(id_)
            if not _is_visible(call, stored) or not _is_same(stored.definition, definition):
                raise
        await _keep(services, call, id_, requested)
        return await _answer(services, id_, await services.schedules.get(id_), status=201)


async def change_schedule(services: Services, call: HttpCall) -> Response:
    """Change the given fields."""
    body = await call.body(ScheduleChange)
    id_, stored = await _find(services, call)
    requested = await read_change(services, call.caller, body, stored.definition)

    def changed(before: ScheduleDefinition) -> ScheduleDefinition:
        """Apply the changes to the current definition, which may have other changes since."""
        fields = {name: getattr(requested.definition, name) for name in fields_of(body)}
        keeps = requested.definition.keeps or (before.keeps and not stored.definition.keeps)
        return replace(before, **fields, identity=requested.definition.identity, keeps=keeps)

    with _translated():
        await services.attachments.files.bring(call.owner, id_, requested.files or {})
        await services.schedules.change(id_, changed)
        await _keep(services, call, id_, requested, drops_config="push_config" in body.model_fields_set)
        return await _answer(services, id_, await services.schedules.get(id_))


async def delete_schedule(services: Services, call: HttpCall) -> Response:
    """Delete a schedule; tasks that it has started go on."""
    id_, stored = await _find(services, call)
    with _translated():
        # Last, so that after a crash in between a retry finds the schedule.
        await services.attachments.webhooks.remove(id_)
        await services.attachments.files.remove(stored.definition.owner, id_)
        await services.schedules.remove(id_)
        await services.attachments.quotas.release_schedule(stored.definition.owner, id_)
    return answer({"id": call.id()})


async def pause_schedule(services: Services, call: HttpCall) -> Response:
    """Pause a schedule: it starts no tasks."""
    return await _do(services, call, services.schedules.pause)


async def resume_schedule(services: Services, call: HttpCall) -> Response:
    """Resume a paused schedule."""
    return await _do(services, call, services.schedules.resume)


async def _do(services: Services, call: HttpCall, change: Callable[[str], Awaitable[object]]) -> Response:
    id_, _ = await _find(services, call)
    with _translated():
        await change(id_)
    return await show_schedule(services, call)


async def run_schedule(services: Services, call: HttpCall) -> Response:
    """Start a task of a schedule now."""
    id_, stored = await _find(services, call)
    with _translated():
        task_id = await services.schedules.trigger(id_)
    if task_id:
        return answer({"taskId": task_id}, 201)
    if stored.definition.overlap.startswith("buffer"):
        return answer({"taskId": ""}, 202)
    raise ConflictError(
        f"nothing has started within {START_TIMEOUT:g} s: the task before it still runs, and overlap is "
        f"{stored.definition.overlap!r}; or it was run in this very second already"
    )


async def _find(services: Services, call: HttpCall) -> tuple[str, KnownSchedule]:
    """Return a schedule of the owner, and its id in Temporal.

    Raises:
        NotFoundError: it does not exist for this caller.
    """
    id_ = schedule_id(call.owner, call.id())
    if problem_of_id(call.id()):
        raise _unknown(call.id())
    try:
        with _translated():
            stored = await services.schedules.get(id_)
    except NotFoundError:
        raise _unknown(call.id()) from None
    if not _is_visible(call, stored):
        raise _unknown(call.id())
    return id_, stored


async def _keep(
    services: Services, call: HttpCall, id_: str, requested: RequestedSchedule, *, drops_config: bool = False
) -> None:
    if requested.files is not None:
        await services.attachments.files.keep(call.owner, id_, requested.files)
    if requested.config:
        await services.attachments.webhooks.put(id_, requested.config)
    elif drops_config:
        await services.attachments.webhooks.remove(id_)


# JSON of schedules for clients.


async def _answer(services: Services, id_: str, stored: KnownSchedule, status: int = 200) -> Response:
    return answer(await _json(services, id_, stored), status)


async def _json(
    services: Services, id_: str, stored: KnownSchedule, most_runs: int = SHOWN_RUNS
) -> dict[str, JsonValue]:
    definition, when = stored.definition, stored.definition.recurrence
    said = UserMessage(message_id="", parts=definition.parts, metadata=dict(definition.metadata))
    url = TaskUrl("", context_of_schedule(id_), services.settings.url)
    message = MessageToDict(to_message(said, url))
    config = await services.attachments.webhooks.get(id_) if definition.keeps else None
    last = stored.last_tasks[::-1][:most_runs]
    times: dict[str, JsonValue] = {"at": timestamp(when.at)} if when.at else {}
    times |= {name: text for name, text in (("cron", when.cron), ("every", when.every)) if text}
    return {
        "id": definition.name,
        "agent": definition.agent_id,
        "message": {"role": message["role"], "parts": message["parts"]}
        | ({"metadata": message["metadata"]} if "metadata" in message else {}),
        **times,
        "timeZone": when.time_zone,
        "overlap": definition.overlap,
        "contextId": definition.context_id,
        "note": definition.note,
        "paused": stored.is_paused,
        "createdAt": timestamp(stored.created_at),
        "nextRuns": [timestamp(at) for at in stored.next_runs[:most_runs]],
        "lastRuns": list(
            await asyncio.gather(*(_run_json(services, definition.owner, stored, each) for each in last))
        ),
        **({"pushConfig": _config_json(config)} if config else {}),
    }


async def _run_json(services: Services, owner: str, stored: KnownSchedule, run: StartedTask) -> JsonValue:
    snapshot = await services.views.load(run.task_id, most=0)
    if snapshot and snapshot.view.owner == owner:
        state = f"TASK_STATE_{snapshot.view.status.state.name}"
    else:  # queued without a worker, or expired everywhere
        state = "TASK_STATE_SUBMITTED" if run.task_id in stored.running else "TASK_STATE_UNSPECIFIED"
    return {"taskId": run.task_id, "at": timestamp(run.at), "state": state}


def _is_visible(call: HttpCall, stored: KnownSchedule) -> bool:
    return stored.definition.owner == call.owner and may_use(call.caller, stored.definition.agent_id)


def _is_same(stored: ScheduleDefinition, requested: ScheduleDefinition) -> bool:
    """Whether a schedule equals the requested one: a retry, after a lost response."""
    words = ("agent_id", "parts", "metadata", "overlap", "context_id", "note")
    is_same_time = stored.recurrence.spec == requested.recurrence.spec  # 90m is 1h30m
    return is_same_time and all(getattr(stored, word) == getattr(requested, word) for word in words)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"there is no schedule {name[:100]!r} of this owner")


def _config_json(config: PushConfig) -> dict[str, JsonValue]:
    """Return the public fields of a config: token and credentials are for the webhook only."""
    scheme = {"authentication": {"scheme": config.scheme}} if config.has_authentication else {}
    return {"id": config.id, "url": config.url, **cast("dict[str, Any]", scheme)}


@contextmanager
def _translated() -> Generator[None]:
    """Translate errors of schedules into A2A errors."""
    try:
        yield
    except ScheduleAwayError as error:
        raise TemporalUnavailableError from error
    except ScheduleExistsError as error:
        raise ConflictError(
            f"{error}, and it is another one; change it by PATCH, or give this one another id"
        ) from None
    except ScheduleUnknownError as error:
        raise NotFoundError(str(error)) from None
    except ScheduleRefusedError as error:
        field = to_camel(error.field.replace(" ", "_"))
        raise InvalidParamsError(f"{field}: {error}" if field else str(error)) from None
