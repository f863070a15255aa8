"""Steps of a task, for clients of the events extension.

The steps are those of its transcript, which Redis stores as long as the view, and Temporal as long as
the workflow's history.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping

import structlog
from pydantic import JsonValue

from everloop.gateway.errors import STORE_FAILURES, GatewayError
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.runtime.protocol.a2a_tasks import result_url
from everloop.runtime.telemetry.logs import task_fields
from everloop.stores.transcripts import Transcripts, fitting
from everloop.workflows.contract.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)
from everloop.workflows.contract.parts import beginning
from everloop.workflows.contract.tasks import TaskView

MAX_BYTES = 4_000_000
"""Maximum bytes of the messages that become steps: the newest ones."""

ALL_BYTES = 64_000_000
"""More than the limit of a transcript (`everloop.workflows.task_limits`), also as JSON."""

MOST_AT_ONCE = 2
"""Maximum concurrent requests that read complete transcripts, which may be large."""

_log = structlog.get_logger()


class TaskSteps:
    """The steps of tasks: one for each reply of the model, with its tool calls."""

    def __init__(self, transcripts: Transcripts, tasks: Tasks, public_url: str) -> None:
        self._transcripts = transcripts
        self._tasks = tasks
        self._public_url = public_url
        self._reading_all = asyncio.Semaphore(MOST_AT_ONCE)

    async def of(self, view: TaskView, message_ids: Collection[str]) -> list[JsonValue] | None:
        """Return the steps of a task, the oldest first; None if they are unavailable now.

        `message_ids` are those of the task's history, of which the view may have the newest messages
        only.
        """
        try:
            messages = await self._transcripts.newest(view.task_id, view.run_id, MAX_BYTES)
            return list(
                steps_of(messages or await self._from_workflow(view), view, message_ids, self._public_url)
            )
        except (GatewayError, *STORE_FAILURES) as error:
            _log.warning("steps not shown", **task_fields(view), error=type(error).__name__)
            return None

    async def result(self, view: TaskView, call_id: str) -> ToolMessage | None:
        """Return the result of a tool call; None if it has not ended, or does not exist.

        Raises:
            GatewayError: neither Redis nor Temporal returns it now.
        """
        async with self._reading_all:
            cached = await self._transcripts.newest(view.task_id, view.run_id, ALL_BYTES)
            messages = cached.values() if cached else await self._tasks.transcript(view.task_id)
            results = (each for each in messages if isinstance(each, ToolMessage))
            return next((each for each in results if each.call_id == call_id), None)

    async def _from_workflow(self, view: TaskView) -> Mapping[int, TranscriptMessage]:
        """Query the workflow for the messages."""
        messages = dict(enumerate(await self._tasks.transcript(view.task_id)))
        sizes = ((at, len(messages[at].model_dump_json().encode())) for at in sorted(messages, reverse=True))
        return {position: messages[position] for position in fitting(sizes, MAX_BYTES)}


def steps_of(
    messages: Mapping[int, TranscriptMessage], view: TaskView, message_ids: Collection[str], public_url: str
) -> Iterator[dict[str, JsonValue]]:
    """Yield the steps in a transcript, without recalled ones of earlier tasks.

    Discarded replies are left out. A call without an outcome has not ended, or its result is too large.
    """
    users = ((at, each) for at, each in messages.items() if isinstance(each, UserMessage))
    start = next((at for at, each in users if each.message_id in message_ids), 0)
    own = [each for at, each in messages.items() if at >= start]
    results = {each.call_id: each for each in own if isinstance(each, ToolMessage)}
    for reply in _replies(own):
        calls: list[JsonValue] = [
            _call(call, results.get(call.id), result_url(public_url, view.task_id, call.id))
            for call in reply.tool_calls
        ]
        yield {
            "model": reply.answered_by,
            "finish_reason": reply.ended_with,
            "thought": beginning(reply.reasoning),
            "text": beginning(reply.text),
            "usage": reply.usage.model_dump(mode="json"),
            "calls": calls,
        }


def _replies(messages: Iterable[TranscriptMessage]) -> Iterator[AssistantMessage]:
    return (each for each in messages if isinstance(each, AssistantMessage) and not each.refused)


def _call(call: ToolCall, result: ToolMessage | None, url: str) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {
        "call_id": call.id,
        "name": call.name,
        "arguments": beginning(call.arguments),
    }
    if result is None:
        return fields
    text = beginning(result.content)
    is_cut = bool(result.whole) or text != result.content
    artifacts: list[JsonValue] = [*result.artifacts]
    raised: dict[str, JsonValue] = {"raised_at": result.raised_at} if result.raised_at else {}
    if result.cached:
        raised["cached"] = True
    return {
        **fields,
        **({"url": url} if is_cut else {}),
        **raised,
        "outcome": result.outcome,
        "result": text,
        "size": result.whole or len(result.content.encode(errors="replace")),
        "cut": is_cut,
        "artifacts": artifacts,
    }
