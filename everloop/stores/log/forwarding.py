"""What the subscribers of a client's task get of an event of a sub-agent's task. Pure.

The rules stand in `everloop.workflows.contract.events`.
"""

import json

from pydantic import JsonValue

from everloop.workflows.contract.events import SubAgentEvent, TaskCreated, TaskEvent
from everloop.workflows.contract.names import child_path, is_child_task_id
from everloop.workflows.contract.parts import is_sendable

MAX_FORWARDED_BYTES = 66_000
"""Of an event as JSON, so that the largest answer that comes whole has room. Of a larger event its short
fields are forwarded: what it holds stands elsewhere."""

MAX_CUT_CHARACTERS = 1_000
"""Of each text of an event that is cut."""

_INTERNAL = {"received", "questions", "shows", "content"}
"""Messages between agents, questions of the client's task, the required content of a view, and content of
earlier chunks."""


def forwarded(task_id: str, event: TaskEvent) -> SubAgentEvent | None:
    """Return what is forwarded to the task of the client; None for nothing."""
    if not is_child_task_id(task_id) or isinstance(event, TaskCreated):
        return None
    content = event.model_dump(mode="json", exclude=_INTERNAL)
    return SubAgentEvent(path=child_path(task_id), event=content if _fits(content) else _cut(content))


def _fits(content: dict[str, JsonValue]) -> bool:
    """Whether clients can be sent an event, and it is not too large to be sent beside all others."""
    text = json.dumps(content, ensure_ascii=False)
    return len(text.encode(errors="replace")) <= MAX_FORWARDED_BYTES and is_sendable(content)


def _cut(content: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return numbers and beginnings of texts: of a chunk, which artifact it belongs to, and where."""
    kept = {name: _shortened(value) for name, value in content.items() if not isinstance(value, dict | list)}
    return {**kept, "cut": True}


def _shortened(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and len(value) > MAX_CUT_CHARACTERS:
        return f"{value[:MAX_CUT_CHARACTERS]}…"
    return value
