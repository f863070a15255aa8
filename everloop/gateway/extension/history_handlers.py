"""History of a task, from its beginning, for its owner.

    GET /tasks/{id}/events          events, page by page
    GET /tasks/{id}/transcript      the messages as the model saw them, with times
    GET /tasks/{id}/usage           tokens and cost by model, calls by tool
    GET /tasks/{id}/children        the tasks of its sub-agents, which have these addresses as well

Events come from Temporal's history. They exist as long as the history does, even if Redis lost the
task.
"""

from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue
from pydantic.alias_generators import to_snake
from starlette.responses import Response

from everloop.gateway.auth.scopes import may_use
from everloop.gateway.context import Viewer
from everloop.gateway.errors import TaskUnknownError
from everloop.gateway.http.http_calls import HttpCall, answer
from everloop.gateway.services import Services
from everloop.gateway.tasks.history import EventPosition
from everloop.gateway.tasks.history_items import Data, Item, message_data, reply_data, result_data
from everloop.runtime.protocol.a2a_tasks import TaskUrl, task_url_of, timestamp, to_task
from everloop.stores.log.log_types import Snapshot
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    ToolMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.names import root_task_id, view_message_id
from everloop.workflows.contract.tasks import TaskState

MAX_CHILDREN = 100
"""Maximum number of listed children of a task."""

UNNAMED = "unknown"
"""Model of replies that name none: summaries."""


async def find_task(services: Services, call: HttpCall, task_id: str) -> Snapshot:
    """Return the client's task of a call and its owner; for a sub-agent's task the one above it.

    Raises:
        TaskUnknownError: it does not exist for this caller.
        UnavailableError: its view is lost, and a server that is needed to rebuild it does not respond.
    """
    root = root_task_id(task_id)
    agent_id = await services.snapshots.agent_of(root)
    if agent_id is None or not may_use(call.caller, agent_id):
        raise TaskUnknownError(task_id)
    try:
        return await services.snapshots.open(root, Viewer(call.owner, agent_id))
    except TaskUnknownError:  # another owner's: the same error as for a missing task
        raise TaskUnknownError(task_id) from None


async def list_events(services: Services, call: HttpCall) -> Response:
    """List the events of a task."""
    page = call.page
    after = EventPosition.parse(call.query("after") or page.token)
    events, has_more = await services.histories.page(await _url(services, call), after, page.size)
    following = str(events[-1].place) if has_more else ""
    return answer({"events": [event.to_json() for event in events], "nextPageToken": following})


async def show_transcript(services: Services, call: HttpCall) -> Response:
    """Show the messages as the model saw them."""
    url = await _url(services, call)
    messages = await services.tasks.transcript(url.task_id)
    times = _Times()
    async with aclosing(services.histories.events(url)) as past:
        async for event in past:
            times.note(event.item)
    shown: list[JsonValue] = [
        {"position": at, "at": times.of(at, message), **message_json(message, url)}
        for at, message in enumerate(messages)
        if message.role != "tools"
    ]
    return answer({"messages": shown})


async def show_usage(services: Services, call: HttpCall) -> Response:
    """Show the usage of models and tools."""
    sums = _Sums()
    return answer(sums.to_json(await _add_usage(services, await _url(services, call), sums)))


async def list_children(services: Services, call: HttpCall) -> Response:
    """List the tasks of a task's sub-agents."""
    url = await _url(services, call)
    found: dict[str, None] = {}
    async with aclosing(services.histories.events(url)) as past:
        async for event in past:
            if event.item.type == "subAgent" and (task_id := event.item.data.get("taskId")):
                found[str(task_id)] = None
    shown: list[JsonValue] = []
    for task_id in list(found)[:MAX_CHILDREN]:
        view = await services.tasks.view(task_id)  # a sub-agent's task has no other view
        task = to_task(view, services.settings.url, history_length=0, include_artifacts=False)
        shown.append({"agentId": view.agent_id, "task": MessageToDict(task)})
    return answer({"children": shown, "nextPageToken": ""})


async def _url(services: Services, call: HttpCall) -> TaskUrl:
    """Return the URL of the task in the address, for a caller who may see it."""
    task_id = call.id()
    root = task_url_of((await find_task(services, call, task_id)).view, services.settings.url)
    return TaskUrl(task_id, root.context_id, root.public_url)


async def _add_usage(services: Services, url: TaskUrl, sums: "_Sums") -> Usage:
    """Add the usage of a task and its sub-agents, and return it."""
    children: dict[str, str] = {}
    used = Usage()
    async with aclosing(services.histories.events(url)) as past:
        async for event in past:
            data = event.item.data
            if event.item.type == "modelReply":
                used += sums.add_reply(data)
            elif event.item.type == "toolResult":
                sums.add_call(data)
            elif event.item.type == "subAgent" and data["state"] == TaskState.SUBMITTED:
                children[str(data["taskId"])] = str(data.get("name", ""))
    for task_id, tool in children.items():
        theirs = await _add_usage(services, TaskUrl(task_id, url.context_id, url.public_url), sums)
        sums.add_cost(tool, theirs.cost)
        used += theirs
    return used


def message_json(message: TranscriptMessage, url: TaskUrl) -> dict[str, JsonValue]:
    """Return a message of a transcript."""
    match message:
        case UserMessage():
            return message_data(message, url)
        case ToolMessage():
            return {"role": message.role, **result_data(message, url)}
        case AssistantMessage() | SummaryMessage():
            return {"role": message.role, **reply_data(message)}
        case _:
            return {"role": message.role}


class _Times:
    """Times of a transcript's messages. A message without an event gets the time of the next model call."""

    def __init__(self) -> None:
        self._messages: dict[str, datetime] = {}
        self._results: dict[str, datetime] = {}
        self._replies: dict[int, datetime] = {}
        self._requests: list[tuple[int, datetime]] = []

    def note(self, item: Item) -> None:
        """Record the times of an event."""
        data = item.data
        match item.type:
            case "message" if isinstance(message := data.get("message"), dict):
                self._messages.setdefault(str(message.get("messageId")), item.at)
            case "modelCall" if isinstance(position := data.get("position"), int):
                self._requests.append((position, item.at))
            case "modelReply" if "error" not in data and self._requests:
                self._replies[self._requests[-1][0]] = item.at
            case "toolResult":
                self._results[str(data.get("callId"))] = item.at
            case _:
                pass

    def of(self, position: int, message: TranscriptMessage) -> str | None:
        """Return the time of a message; None if it is older than the task."""
        found = None
        match message:
            case UserMessage():
                found = self._messages.get(view_message_id(message.message_id))
                found = found or (None if message.message_id else self._request_after(position))
            case ToolMessage():
                found = self._results.get(message.call_id)
            case _:
                found = self._replies.get(position)
        return found and timestamp(found)

    def _request_after(self, position: int) -> datetime | None:
        return next((at for length, at in self._requests if length > position), None)


@dataclass
class _Tool:
    calls: int = 0
    failures: int = 0
    seconds: float = 0.0
    cost: float | None = 0.0


class _Sums:
    """Usage of models and tools, by name."""

    def __init__(self) -> None:
        self._models: dict[str, tuple[int, Usage]] = {}
        self._tools: dict[str, _Tool] = {}

    def add_reply(self, data: Data) -> Usage:
        """Count a model call, and return its usage."""
        given = data.get("usage")
        if not isinstance(given, dict):
            return Usage()
        usage = Usage.model_validate({to_snake(name): value for name, value in given.items()})
        name = str(data.get("model") or UNNAMED)
        calls, before = self._models.get(name, (0, Usage()))
        self._models[name] = calls + 1, before + usage
        return usage

    def add_call(self, data: Data) -> None:
        """Count a tool call."""
        tool = self._tools.setdefault(str(data["name"]), _Tool())
        tool.calls += 1
        tool.failures += bool(data["isError"])
        began, ended = (datetime.fromisoformat(str(data[name])) for name in ("startedAt", "endedAt"))
        tool.seconds += (ended - began).total_seconds()

    def add_cost(self, tool: str, cost: float | None) -> None:
        """Count the cost of a sub-agent as a cost of the tool that called it."""
        usage = self._tools.setdefault(tool, _Tool())
        usage.cost = None if cost is None or usage.cost is None else usage.cost + cost

    def to_json(self, total: Usage) -> dict[str, JsonValue]:
        return {
            "total": total.to_metadata(),
            "models": [
                {"model": name, "calls": calls, **usage.to_metadata()}
                for name, (calls, usage) in self._models.items()
            ],
            "tools": [
                {
                    "tool": name,
                    "calls": tool.calls,
                    "failures": tool.failures,
                    "seconds": round(tool.seconds, 3),
                    "cost": tool.cost,
                }
                for name, tool in self._tools.items()
            ],
        }
