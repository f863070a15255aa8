"""The forwarding of a sub-agent's events to the subscribers of the client's task. Pure.

The rules are in `everloop.workflows.contract.events`.
"""

import json

from pydantic import JsonValue

from everloop.workflows.contract.events import SubAgentEvent, TaskCreated, TaskEvent
from everloop.workflows.contract.names import child_path, is_child_task_id
from everloop.workflows.contract.parts import is_sendable

MAX_FORWARDED_BYTES = 66_000
"""Maximum size of a forwarded event as JSON, enough for the largest answer in one piece. Of a larger event,
only the short fields are forwarded; its content is stored elsewhere."""

MAX_CUT_CHARACTERS = 1_000
"""Maximum length of each text of a cut event."""

_INTERNAL = {"received", "questions", "shows", "content"}
"""Messages between agents, questions of the client's task, the required content of a view, and content of
earlier chunks."""


def forwarded(task_id: str, event: TaskEvent) -> SubAgentEvent | None:
    """Return the event for the client's task; None if it is not forwarded."""
    if not is_child_task_id(task_id) or isinstance(event, TaskCreated):
        return None
    content = event.model_dump(mode="json", exclude=_INTERNAL)
    return SubAgentEvent(path=child_path(task_id), event=content if _fits(content) else _cut(content))


def _fits(content: dict[str, JsonValue]) -> bool:
    """Return True if an event can be sent to clients and is small enough to forward."""
    text = json.dumps(content, ensure_ascii=False)
    return len(text.encode(errors="replace")) <= MAX_FORWARDED_BYTES and is_sendable(content)


def _cut(content: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return an event's numbers and the beginnings of its texts, such as a chunk's artifact and index."""
    kept = {name: _shortened(value) for name, value in content.items() if not isinstance(value, dict | list)}
    return {**kept, "cut": True}


def _shortened(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and len(value) > MAX_CUT_CHARACTERS:
        return f"{value[:MAX_CUT_CHARACTERS]}…"
    return value
