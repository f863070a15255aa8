"""Push notification configs in memory, for tests: what they compare the real store with."""

from collections import defaultdict
from dataclasses import dataclass

from everloop.stores.push.configs import MAX_CONFIGS, PushConfig, PushConfigs, TooManyPushConfigsError


@dataclass
class _Stored:
    config: PushConfig
    position: str


class MemoryPushConfigs(PushConfigs):
    """Keeps everything until it is removed or the process ends."""

    def __init__(self) -> None:
        self._tasks: defaultdict[str, dict[str, _Stored]] = defaultdict(dict)

    async def put(self, config: PushConfig, *, position: str = "") -> None:
        stored = self._tasks[config.task_id]
        if config.id not in stored and len(stored) >= MAX_CONFIGS:
            raise TooManyPushConfigsError
        before = stored.get(config.id)
        is_same = before is not None and before.config.url == config.url
        stored[config.id] = _Stored(config, before.position if before and is_same else position)

    async def get(self, task_id: str, config_id: str) -> PushConfig | None:
        stored = self._tasks.get(task_id, {}).get(config_id)
        return stored and stored.config

    async def knows(self, task_id: str) -> bool:
        return task_id in self._tasks

    async def list_configs(self, task_id: str) -> list[PushConfig]:
        return [stored.config for _, stored in sorted(self._tasks.get(task_id, {}).items())]

    async def config_ids(self, task_id: str) -> list[str]:
        return [*self._tasks.get(task_id, {})]

    async def delete(self, task_id: str, config_id: str) -> None:
        self._tasks.get(task_id, {}).pop(config_id, None)

    async def delete_unchanged(self, config: PushConfig) -> None:
        if await self.get(config.task_id, config.id) == config:
            await self.delete(config.task_id, config.id)

    async def position(self, task_id: str, config_id: str) -> str:
        stored = self._tasks.get(task_id, {}).get(config_id)
        return stored.position if stored else ""

    async def advance(self, config: PushConfig, *, start: str, end: str) -> None:
        stored = self._tasks.get(config.task_id, {}).get(config.id)
        if stored and stored.config.url == config.url and stored.position == start:
            stored.position = end
