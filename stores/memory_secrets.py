"""Secrets in memory, for one process and for tests."""

from collections import defaultdict

from pydantic import JsonValue

from stores.secrets import Secrets


class MemorySecrets(Secrets):
    """Keeps everything until it is forgotten or the process ends."""

    def __init__(self) -> None:
        self._tasks: defaultdict[str, dict[str, JsonValue]] = defaultdict(dict)

    async def put(self, task_id: str, name: str, value: JsonValue) -> None:
        self._tasks[task_id][name] = value

    async def get(self, task_id: str, name: str) -> JsonValue:
        return self._tasks[task_id].get(name)

    async def forget(self, task_id: str) -> None:
        self._tasks.pop(task_id, None)
