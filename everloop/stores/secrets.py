"""Secrets that clients supplied for the tools of a task."""

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
# `accepted:<message id> <name>` marks what was accepted once.


class Secrets:
    """JSON values that are never in a history, view, event, log line or trace.

    A message brings a secret before its task has accepted it as an answer. After that, the tool that asked
    accepts the secret under the name that it asked for.

    Each call is one round trip. The end of the task deletes the key; the time to live, 7 days, is for secrets
    that arrive later.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)

    async def put(self, task_id: str, message_id: str, value: JsonValue) -> None:
        """Store the secret of a message. No tool can read it yet."""
        sealed = self._cipher.seal_text(json.dumps(value), _purpose(task_id))
        words = [int(TASK_TTL.total_seconds()), _brought(message_id), sealed]
        keys = [secrets_key(task_id), registry_key(task_id)]
        await run_scripts(self._redis, Step(task_id, "calls/bring_secret.lua", keys, words, bool))

    async def accept(self, task_id: str, message_id: str, name: str) -> None:
        """Store the secret of a message under this name, replacing an earlier one.

        Repeating it changes nothing, even after another message has brought a new one. Nor does it change
        anything if the message has no secret, or it was deleted.
        """
        fields = [_brought(message_id), _accepted(name), f"accepted:{message_id} {name}"]
        step = Step(task_id, "calls/accept_secret.lua", [secrets_key(task_id)], fields, bool)
        await run_scripts(self._redis, step)

    async def get(self, task_id: str, name: str) -> JsonValue:
        """Return an accepted secret, or None."""
        sealed = cast("str | None", await self._redis.hget(secrets_key(task_id), _accepted(name)))
        if sealed is None:
            return None
        return cast("JsonValue", json.loads(self._cipher.unseal_text(sealed, _purpose(task_id))))

    async def forget(self, task_id: str) -> None:
        """Delete all secrets of a task, accepted or not. Repeating it changes nothing."""
        await self._redis.delete(secrets_key(task_id))


def _purpose(task_id: str) -> str:
    return f"secrets {task_id}"


def _brought(message_id: str) -> str:
    return f"message:{message_id}"


def _accepted(name: str) -> str:
    return f"name:{name}"
