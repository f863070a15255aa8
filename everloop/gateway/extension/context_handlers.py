"""Contexts of an owner: conversations, with all messages of their tasks.

GET   /contexts                 the last changed first; ?query= searches words of the title
GET   /contexts/{id}
PATCH /contexts/{id}            title and retention
GET   /contexts/{id}/messages   messages with tool calls, direct answers, and times
PATCH /tasks/{id}               retention
GET   /artifacts                of all contexts, or with ?contextId= of one
"""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import ClassVar

from a2a.utils.errors import InvalidParamsError
from pydantic import JsonValue
from starlette.responses import Response

from everloop.gateway.auth.scopes import may_use
from everloop.gateway.errors import TaskUnknownError
from everloop.gateway.extension.deletion_handlers import may_see, require_all_of, unknown_context
from everloop.gateway.extension.history_handlers import find_task, message_json
from everloop.gateway.http.http_calls import HttpCall, RequestBody, answer
from everloop.gateway.requests.fields import page_token
from everloop.gateway.services import Services
from everloop.gateway.tasks.artifact_json import artifact_json
from everloop.gateway.tasks.history_items import Item
from everloop.gateway.tasks.snapshots import refuse_if_read_only
from everloop.runtime.protocol.a2a_tasks import TaskUrl, timestamp
from everloop.stores.log.contexts import ContextInfo, ContextTask
from everloop.workflows.contract.names import context_key, root_task_id
from everloop.workflows.contract.parts import text_problem

MAX_TITLE = 200
"""Maximum characters of a title from a client."""

MAX_DAYS = 36_500

_SAID = frozenset({"message", "modelReply", "toolResult"})
_ROLES = {"modelReply": "assistant", "toolResult": "tool"}
_LENGTH = re.compile(r"([1-9][0-9]{0,6})([hd])")


class ContextChange(RequestBody):
    """Changes to a context."""

    expected: ClassVar[str] = '{"title": "…", "retention": "30d"}, or one of them; null for the usual one'

    title: str = ""
    retention: str | None = None


class TaskChange(RequestBody):
    """Changes to a task."""

    expected: ClassVar[str] = '{"retention": "7d"}, or null for the usual one'

    retention: str | None


async def list_contexts(services: Services, call: HttpCall) -> Response:
    """List contexts, with ?query= those with matching titles."""
    page = await services.views.contexts.page(
        call.owner, call.page.size, call.page.token, call.query("query")
    )
    shown: list[JsonValue] = [context_json(each) for each in page.contexts if may_see(call, each)]
    return answer({"contexts": shown, "nextPageToken": page.next_page_token})


async def show_context(services: Services, call: HttpCall) -> Response:
    """Show a context."""
    return answer({"context": context_json(await _find(services, call, call.id()))})


async def change_context(services: Services, call: HttpCall) -> Response:
    """Change the title or the retention, or both."""
    body = await call.body(ContextChange)
    context_id, given = call.id(), body.model_fields_set
    context = await _find(services, call, context_id)
    if "retention" in given:
        require_all_of(call, context)
        await services.views.contexts.set_retention(call.owner, context_id, read_retention(body.retention))
    if "title" in given:
        await services.views.contexts.set_title(call.owner, context_id, _title(body.title))
    return await show_context(services, call)


async def change_task(services: Services, call: HttpCall) -> Response:
    """Change the retention of a task."""
    retention = read_retention((await call.body(TaskChange)).retention)
    task_id = call.id()
    view = (await find_task(services, call, task_id)).view
    refuse_if_read_only(task_id)
    if not await services.views.contexts.set_retention(call.owner, view.context_id, retention, task_id):
        raise unknown_context(view.context_id)  # deleted a moment ago: its messages would be lost
    return answer({"task": {"id": task_id, "retention": retention_text(retention)}})


async def list_messages(services: Services, call: HttpCall) -> Response:
    """List the messages of a context's tasks, the oldest first."""
    context, page = await _find(services, call, call.id()), call.page
    after, offset = page.read_token(_read_place, ("", 0))
    tasks = [each for each in context.tasks if may_use(call.caller, each.agent_id)]
    shown = list[JsonValue]()
    for task in tasks:
        place = _place(task)
        if place < after:
            continue
        number = 0
        async with aclosing(_said_in(services, call, context, task)) as said:
            async for message in said:
                number += 1
                if place == after and number <= offset:
                    continue
                if len(shown) == page.size:
                    return answer({"messages": shown, "nextPageToken": _token(place, number - 1)})
                shown.append(message)
    return answer({"messages": shown, "nextPageToken": ""})


async def _said_in(
    services: Services, call: HttpCall, context: ContextInfo, task: ContextTask
) -> AsyncGenerator[dict[str, JsonValue]]:
    """Yield the messages of a task from Temporal's history, or else from the stored conversation."""
    about: dict[str, JsonValue] = {"taskId": task.task_id, "agent": task.agent_id}
    url = TaskUrl(task.task_id, context.context_id, services.settings.url)
    is_stored = False
    try:
        async with aclosing(services.histories.events(url)) as past:
            async for event in past:
                is_stored = True
                if is_said(event.item):
                    role = _ROLES.get(event.item.type)
                    data = event.item.data | ({"role": role} if role else {})
                    yield {"at": timestamp(event.item.at), **about, **data}
    except TaskUnknownError:
        if is_stored:  # it was deleted a moment ago
            return
        key, conversations = context_key(call.owner, context.context_id), services.stores.conversations
        for message in await conversations.messages_of(key, task.task_id) if conversations else ():
            at = task.created_at if message.role == "user" else task.changed_at
            yield {"at": timestamp(at), **about, **message_json(message, url)}


async def list_artifacts(services: Services, call: HttpCall) -> Response:
    """List artifacts of all contexts, or of one, without their contents; the newest of each context first."""
    page, context_id = call.page, call.query("contextId")
    if context_id:
        contexts, token = (await _find(services, call, context_id),), ""
    else:
        found = await services.views.contexts.page(call.owner, page.size, page.token)
        contexts, token = found.contexts, found.next_page_token
    shown = list[JsonValue]()
    for context in contexts:
        agents = {task.task_id: task.agent_id for task in context.tasks}
        stored = await services.stores.artifacts.list_artifacts(context_key(call.owner, context.context_id))
        for each in sorted(stored, key=lambda artifact: artifact.created_at, reverse=True):
            if may_use(call.caller, agents.get(root_task_id(each.task_id), "")):
                url = services.settings.url
                shown.append(artifact_json(each, context.context_id, url, operations=False))
    return answer({"artifacts": shown, "nextPageToken": token})


async def _find(services: Services, call: HttpCall, context_id: str) -> ContextInfo:
    """Return a context that the caller may see.

    Raises:
        NotFoundError: it does not exist.
    """
    context = await services.views.contexts.get(call.owner, context_id)
    if context is None or not may_see(call, context):
        raise unknown_context(context_id)
    return context


def context_json(context: ContextInfo) -> dict[str, JsonValue]:
    """Return a context as JSON for clients."""
    return {
        "id": context.context_id,
        "title": context.title,
        "createdAt": timestamp(context.created_at),
        "updatedAt": timestamp(context.updated_at),
        "tasks": context.count,
        "openTasks": context.open_tasks,
        "agents": list(context.agents),
        "usage": context.usage.to_metadata(),
        "retention": retention_text(context.retention),
    }


def is_said(item: Item) -> bool:
    """Whether an item is a message: not a summary, a failure or a rejection."""
    return item.type in _SAID and not item.data.keys() & {"error", "summary", "refused"}


def read_retention(text: str | None) -> timedelta | None:
    """Parse a retention; None for the default of the settings.

    Raises:
        InvalidParamsError: it is not a duration.
    """
    if text is None:
        return None
    found = _LENGTH.fullmatch(text)
    length = timedelta(**{"hours" if found[2] == "h" else "days": int(found[1])}) if found else None
    if length is None or length > timedelta(days=MAX_DAYS):
        raise InvalidParamsError(
            f"retention is no length of time: send 12h or 30d (at most {MAX_DAYS}d), or null for the usual"
        )
    return length


def retention_text(retention: timedelta | None) -> str | None:
    """Return a retention in the form that clients write."""
    if retention is None:
        return None
    hours = round(retention.total_seconds() / 3600)
    return f"{hours}h" if hours % 24 else f"{hours // 24}d"


def _title(text: str) -> str:
    title = " ".join(text.split())
    if problem := text_problem(title, MAX_TITLE) or ("" if title else "is empty"):
        raise InvalidParamsError(f"title {problem}; send 1 to {MAX_TITLE} characters")
    return title


def _place(task: ContextTask) -> str:
    """Return the position of a task among those of its context; later tasks have greater ones."""
    return f"{task.created_at.timestamp():017.6f} {task.task_id}"


def _read_place(token: bytes) -> tuple[str, int]:
    """Return the task at which a page begins, and the number of its messages on earlier pages."""
    place, offset = json.loads(token)
    return str(place), int(offset)


def _token(place: str, offset: int) -> str:
    return page_token(json.dumps([place, offset]).encode())
