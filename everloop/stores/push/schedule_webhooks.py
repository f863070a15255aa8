"""Webhooks that each task of a schedule notifies, kept as long as the schedule is.

Temporal keeps the schedule, and secrets do not belong there. So the webhook of a schedule is kept as the push
notification config of a task that there is not; each task gets a config of its own.
"""

from datetime import timedelta

from redis.asyncio import Redis

from everloop.stores.keys import push_configs_key, registry_key
from everloop.stores.push.configs import PushConfig, PushConfigs

WITHOUT_END = timedelta(days=36_500)


class ScheduleWebhooks:
    """By the id of the schedule, which has one or none. `configs` are those of tasks."""

    def __init__(self, redis: Redis, configs: PushConfigs) -> None:
        self._redis = redis
        self._configs = configs
        self._lasting = PushConfigs(redis, ttl=WITHOUT_END)

    async def put(self, schedule_id: str, config: PushConfig) -> None:
        """Set whom the tasks of a schedule notify from now on."""
        await self._lasting.put(config.model_copy(update={"task_id": _task_of(schedule_id)}))
        for config_id in await self._lasting.config_ids(_task_of(schedule_id)):
            if config_id != config.id:
                await self._lasting.delete(_task_of(schedule_id), config_id)

    async def get(self, schedule_id: str) -> PushConfig | None:
        """Return whom the tasks of a schedule notify."""
        return next(iter(await self._lasting.list_configs(_task_of(schedule_id))), None)

    async def remove(self, schedule_id: str) -> None:
        """Let further tasks of a schedule notify nobody; nothing is left of whom they did."""
        task_id = _task_of(schedule_id)
        await self._redis.unlink(push_configs_key(task_id), registry_key(task_id))

    async def hand_out(self, schedule_id: str, task_id: str, context_id: str) -> None:
        """Let a task of a schedule notify; repeating it changes nothing.

        Raises:
            TooManyPushConfigsError: its client has set as many as there may be.
        """
        if config := await self.get(schedule_id):
            named = {"task_id": task_id, "context_id": context_id}
            await self._configs.put(config.model_copy(update=named))


def _task_of(schedule_id: str) -> str:
    """Name a task that there is not: ids of agents, with which those of tasks begin, have no spaces."""
    return f"schedule {schedule_id}"
