"""Secrets of a task: kept by name, forgotten together, shown to nobody."""

from datetime import timedelta

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis

from stores.redis_secrets import RedisSecrets
from stores.secrets import Secrets
from tests.stores.examples import new_id
from workflows.contract.names import secrets_key


@pytest.mark.parametrize("value", ["sé\x00\n", "", {"user": "ada", "pins": [1, None]}, 0, False, "\ud800"])
async def test_a_secret_is_any_json_value(secrets: Secrets, value: JsonValue) -> None:
    """It comes back as it was supplied."""
    task_id = new_id()

    await secrets.put(task_id, "token", value)

    assert await secrets.get(task_id, "token") == value


async def test_what_was_not_supplied_is_none(secrets: Secrets) -> None:
    """Another name, or another task, has a secret of its own or none."""
    task_id = new_id()
    await secrets.put(task_id, "token", "x")

    assert await secrets.get(task_id, "password") is None
    assert await secrets.get(new_id(), "token") is None


async def test_a_later_secret_replaces_an_earlier_one(secrets: Secrets) -> None:
    """The first one may have been wrong."""
    task_id = new_id()
    await secrets.put(task_id, "token", "wrong")

    await secrets.put(task_id, "token", "right")

    assert await secrets.get(task_id, "token") == "right"


async def test_all_secrets_of_a_task_are_forgotten(secrets: Secrets) -> None:
    """Those of other tasks stay; forgetting again changes nothing."""
    task_id, other = new_id(), new_id()
    for name in ("token", "password"):
        await secrets.put(task_id, name, "x")
    await secrets.put(other, "token", "y")

    for _ in range(2):
        await secrets.forget(task_id)

    assert [await secrets.get(task_id, name) for name in ("token", "password")] == [None, None]
    assert await secrets.get(other, "token") == "y"


async def test_a_store_does_not_show_what_it_keeps(secrets: Secrets) -> None:
    """Its representation may stand in a log."""
    await secrets.put(new_id(), "token", "hush-hush")

    assert "hush-hush" not in f"{secrets!r} {secrets}"


async def test_secrets_expire(redis: Redis) -> None:
    """A task whose end nobody published leaves nothing behind; each secret begins the time anew."""
    task_id = new_id()
    kept = RedisSecrets(redis, ttl=timedelta(hours=1))
    await kept.put(task_id, "token", "x")
    await redis.expire(secrets_key(task_id), 5)

    await kept.put(task_id, "password", "y")

    assert 3_500 < await redis.ttl(secrets_key(task_id)) <= 3_600
