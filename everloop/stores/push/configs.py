"""Push notification configs of a task, and the position that each client has acknowledged."""

from datetime import timedelta
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from everloop.runtime.redis import cipher_of, transact
from everloop.stores.keys import push_configs_key, registry_key
from everloop.stores.lifetimes import TASK_TTL
from everloop.stores.log.log_types import Snapshot
from everloop.stores.scripts import Step, run_scripts
from everloop.workflows.contract.payloads import Wire

MAX_CONFIGS = 10
"""Limit of push notification configs per task."""


class TooManyPushConfigsError(Exception):
    """The task has `MAX_CONFIGS` push notification configs."""

    def __init__(self) -> None:
        super().__init__(
            f"the task has {MAX_CONFIGS} push notification configs, the most that it may have; "
            "delete or change one"
        )


class PushConfig(Wire):
    """The webhook of a client, with the credentials by which the client recognizes us.

    `token` is sent back unchanged. `scheme` and `credentials` are those of HTTP's Authorization header, which
    is left out if they are empty. `owner` is the task's: owners get equal shares of the deliveries.
    `is_legacy`: the client speaks A2A 0.3. `context_id` and `public_url` are data of the task and of the
    gateway for notifications. Its repr is short, because it holds secrets.
    """

    id: str
    task_id: str
    owner: str
    context_id: str
    url: str
    token: str = ""
    has_authentication: bool = False
    scheme: str = ""
    credentials: str = ""
    is_legacy: bool = False
    public_url: str

    def __repr__(self) -> str:
        return f"PushConfig(id={self.id!r}, task_id={self.task_id!r})"

    __str__ = __repr__


def first_position(snapshot: Snapshot) -> str:
    """Return the position from which the webhook of a new config is notified, given the state of its task.

    A webhook of a task that works gets all events from now on. A webhook of a task that has ended, or waits
    for an answer, gets the complete task first (an empty position).
    """
    state = snapshot.view.status.state
    return "" if state.is_terminal or state.is_interrupted else snapshot.position


# Push notification configs in Redis: a hash for each task.
#
# Its fields: `config:<id>` → JSON, `position:<id>` → the position that the client has acknowledged, and
# `known`, which stays when the last config is removed: a hash without it was lost.

_CONFIG, _POSITION, _TASK_FIELD, _KEEP = "config:", "position:", "known", "keep"
_CHANGED = -1
"""Answer of scripts if the config has changed since it was read."""


class PushConfigs:
    """The configs of each task, and the position in its stream that each client has acknowledged.

    Each call is one round trip or two, and may be repeated.

    `ttl` counts from the last `put`, `get` or `advance`, or from the end of the task (default 7 days).
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = TASK_TTL) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._ttl = int(ttl.total_seconds())

    async def put(self, config: PushConfig, *, position: str = "") -> None:
        """Set a config, replacing one of the same id.

        `position` is the one that its webhook has acknowledged. If it is empty, the webhook gets the complete
        task first. It is ignored if the config had the same URL before.

        Raises:
            TooManyPushConfigsError: The task has 10 others.
        """
        was_put = _CHANGED
        while was_put == _CHANGED:
            before = await self._sealed(config.task_id, config.id)
            is_same = before and self._unsealed(config.task_id, before).url == config.url
            was_put = await self._run(
                "put",
                config.task_id,
                _CONFIG + config.id,
                self._cipher.seal_text(config.model_dump_json(), _purpose(config.task_id)),
                before or "",
                _POSITION + config.id,
                _KEEP if is_same else position,
                MAX_CONFIGS,
                _TASK_FIELD,
            )
        if not was_put:
            raise TooManyPushConfigsError

    async def get(self, task_id: str, config_id: str) -> PushConfig | None:
        """Return a config, and restart the time to live of the task's configs."""
        sealed = await self._run("get", task_id, _CONFIG + config_id)
        return self._unsealed(task_id, str(sealed)) if sealed else None

    async def list_configs(self, task_id: str) -> list[PushConfig]:
        """Return all configs of a task, by id."""
        fields = cast("dict[str, str]", await self._redis.hgetall(push_configs_key(task_id)))
        configs = (sealed for field, sealed in sorted(fields.items()) if field.startswith(_CONFIG))
        return [self._unsealed(task_id, sealed) for sealed in configs]

    async def config_ids(self, task_id: str) -> list[str]:
        """Return the ids of the configs of a task, unordered. It is cheap for tasks without configs."""
        fields = cast("list[str]", await self._redis.hkeys(push_configs_key(task_id)))
        return [field.removeprefix(_CONFIG) for field in fields if field.startswith(_CONFIG)]

    async def delete(self, task_id: str, config_id: str) -> None:
        """Remove a config. A missing one is not an error."""
        await self._redis.hdel(push_configs_key(task_id), _CONFIG + config_id, _POSITION + config_id)

    async def delete_unchanged(self, config: PushConfig) -> None:
        """Remove a config, unless it was changed meanwhile."""
        key, field = push_configs_key(config.task_id), _CONFIG + config.id

        async def delete(pipeline: Pipeline) -> None:
            kept = cast("str | None", await pipeline.hget(key, field))
            pipeline.multi()
            # Not by its own JSON: another version of us may have written it.
            if kept and self._unsealed(config.task_id, kept) == config:
                pipeline.hdel(key, field, _POSITION + config.id)

        await transact(self._redis, delete, key)

    async def knows(self, task_id: str) -> bool:
        """True if a task ever had configs, even if all were removed. If False, configs may have been lost."""
        return bool(await self._redis.hexists(push_configs_key(task_id), _TASK_FIELD))

    async def position(self, task_id: str, config_id: str) -> str:
        """Return the position that the webhook has acknowledged, empty if it has acknowledged none."""
        key, field = push_configs_key(task_id), _POSITION + config_id
        return cast("str | None", await self._redis.hget(key, field)) or ""

    async def advance(self, config: PushConfig, *, start: str, end: str) -> None:
        """Record that the webhook has acknowledged the task from `start` up to `end`.

        It does nothing if the config was removed or has another webhook, or the position has changed.
        """
        was_done = _CHANGED
        while was_done == _CHANGED:
            sealed = await self._sealed(config.task_id, config.id)
            if sealed is None or self._unsealed(config.task_id, sealed).url != config.url:
                return
            was_done = await self._run(
                "advance", config.task_id, _CONFIG + config.id, sealed, _POSITION + config.id, start, end
            )

    async def _run(self, operation: str, task_id: str, *words: str | int) -> str | int | None:
        def read(reply: str | int | None) -> str | int | None:
            return reply

        arguments = [self._ttl, *words]
        keys = [push_configs_key(task_id), registry_key(task_id)]
        (reply,) = await run_scripts(
            self._redis, Step(task_id, f"push/{operation}.lua", keys, arguments, read)
        )
        return reply

    async def _sealed(self, task_id: str, config_id: str) -> str | None:
        found = await self._redis.hget(push_configs_key(task_id), _CONFIG + config_id)
        return cast("str | None", found)

    def _unsealed(self, task_id: str, sealed: str) -> PushConfig:
        return PushConfig.model_validate_json(self._cipher.unseal_text(sealed, _purpose(task_id)))


def _purpose(task_id: str) -> str:
    return f"push configs {task_id}"
