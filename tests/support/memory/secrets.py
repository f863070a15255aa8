"""Secrets in memory, for tests: what they compare the real store with."""

from collections import defaultdict
from dataclasses import dataclass, field

from pydantic import JsonValue

from everloop.stores.secrets import Secrets


@dataclass
class _TaskSecrets:
    brought: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    accepted: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    messages: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])


class MemorySecrets(Secrets):
    """Keeps everything until it is forgotten or the process ends."""

    def __init__(self) -> None:
        self._tasks: defaultdict[str, _TaskSecrets] = defaultdict(_TaskSecrets)

    async def put(self, task_id: str, message_id: str, value: JsonValue) -> None:
        self._tasks[task_id].brought[message_id] = value

    async def accept(self, task_id: str, message_id: str, name: str) -> None:
        task = self._tasks[task_id]
        if message_id in task.brought and (message_id, name) not in task.messages:
            task.messages.add((message_id, name))
            task.accepted[name] = task.brought[message_id]

    async def get(self, task_id: str, name: str) -> JsonValue:
        return self._tasks[task_id].accepted.get(name)

    async def forget(self, task_id: str) -> None:
        self._tasks.pop(task_id, None)
