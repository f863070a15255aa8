"""What clients supplied for the tools of a task, and nobody else may see."""

import json
from typing import cast

from pydantic import JsonValue
from redis.asyncio import Redis

from everloop.runtime.redis import cipher_of
from everloop.stores.keys import registry_key, secrets_key
from everloop.stores.lifetimes import TASK_TTL
from everloop.stores.scripts import Step, run_scripts

# Secrets in Redis: a hash for each task, with the fields `message:<id>` and `name:<name>` → JSON.
#
# `accepted:<message id> <name>` is there for what was accepted once.


class Secrets:
    """JSON values that never stand in a history, view, event, log line or trace.

    A message brings a secret before anybody knows whether its task takes it as an answer. Once it has, the
    tool that asked accepts it under the name that it asked for.

    Each call is one round trip. The end of the task deletes the key; the time to live, 7 days, is for what
    comes after it.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)

    async def put(self, task_id: str, message_id: str, value: JsonValue) -> None:
        """Keep what a message has brought; no tool sees it yet."""
        sealed = self._cipher.seal_text(json.dumps(value), _purpose(task_id))
        words = [int(TASK_TTL.total_seconds()), _brought(message_id), sealed]
        keys = [secrets_key(task_id), registry_key(task_id)]
        await run_scripts(self._redis, Step(task_id, "calls/bring_secret.lua", keys, words, bool))

    async def accept(self, task_id: str, message_id: str, name: str) -> None:
        """Make what a message has brought the secret of this name, in place of another one.

        Repeating it changes nothing, also when another message has brought a new one since; nor does it where
        nothing was brought, or it is forgotten.
        """
        fields = [_brought(message_id), _accepted(name), f"accepted:{message_id} {name}"]
        step = Step(task_id, "calls/accept_secret.lua", [secrets_key(task_id)], fields, bool)
        await run_scripts(self._redis, step)

    async def get(self, task_id: str, name: str) -> JsonValue:
        """Return an accepted secret, None if there is none."""
        kept = cast("str | None", await self._redis.hget(secrets_key(task_id), _accepted(name)))
        if kept is None:
            return None
        return cast("JsonValue", json.loads(self._cipher.unseal_text(kept, _purpose(task_id))))

    async def forget(self, task_id: str) -> None:
        """Forget all secrets of a task, accepted or not; repeating it changes nothing."""
        await self._redis.delete(secrets_key(task_id))


def _purpose(task_id: str) -> str:
    return f"secrets {task_id}"


def _brought(message_id: str) -> str:
    return f"message:{message_id}"


def _accepted(name: str) -> str:
    return f"name:{name}"
