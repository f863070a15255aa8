"""Webhooks for each task of a schedule, stored as long as the schedule.

Temporal stores the schedule, which must not contain secrets. So the webhook of a schedule is stored as the
push notification config of a task that does not exist; each real task gets a copy.
"""

from datetime import timedelta

from redis.asyncio import Redis

from everloop.stores.keys import push_configs_key, registry_key
from everloop.stores.push.configs import PushConfig, PushConfigs

WITHOUT_END = timedelta(days=36_500)


class ScheduleWebhooks:
    """Webhooks by the id of the schedule, at most one each. `configs` are those of tasks."""

    def __init__(self, redis: Redis, configs: PushConfigs) -> None:
        self._redis = redis
        self._configs = configs
        self._lasting = PushConfigs(redis, ttl=WITHOUT_END)

    async def put(self, schedule_id: str, config: PushConfig) -> None:
        """Set the webhook of a schedule's tasks from now on."""
        await self._lasting.put(config.model_copy(update={"task_id": _task_of(schedule_id)}))
        for config_id in await self._lasting.config_ids(_task_of(schedule_id)):
            if config_id != config.id:
                await self._lasting.delete(_task_of(schedule_id), config_id)

    async def get(self, schedule_id: str) -> PushConfig | None:
        """Return the webhook of a schedule's tasks."""
        return next(iter(await self._lasting.list_configs(_task_of(schedule_id))), None)

    async def remove(self, schedule_id: str) -> None:
        """Delete the webhook of a schedule's further tasks."""
        task_id = _task_of(schedule_id)
        await self._redis.unlink(push_configs_key(task_id), registry_key(task_id))

    async def hand_out(self, schedule_id: str, task_id: str, context_id: str) -> None:
        """Copy the webhook of a schedule to one of its tasks. Repeating it changes nothing.

        Raises:
            TooManyPushConfigsError: The client has set the maximum of configs for the task.
        """
        if config := await self.get(schedule_id):
            named = {"task_id": task_id, "context_id": context_id}
            await self._configs.put(config.model_copy(update=named))


def _task_of(schedule_id: str) -> str:
    """Return the name of a task that cannot exist: ids of tasks begin with agent ids, without spaces."""
    return f"schedule {schedule_id}"
