"""Secrets of a task: stored by name, deleted together, shown to tools alone."""

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis

from everloop.stores.keys import head_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.secrets import Secrets
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import new_id, status, submitted


@pytest.mark.parametrize("value", ["sé\x00\n", "", {"user": "ada", "pins": [1, None]}, 0, False, "\ud800"])
async def test_a_secret_is_any_json_value(secrets: Secrets, value: JsonValue) -> None:
    """An accepted secret is returned as the supplied JSON value; accepting it again changes nothing."""
    task_id = new_id()
    await secrets.put(task_id, "m", value)

    for _ in range(2):
        await secrets.accept(task_id, "m", "token")

    assert await secrets.get(task_id, "token") == value


async def test_what_was_not_accepted_is_none(secrets: Secrets) -> None:
    """Another name or task, or a message that was not accepted, has no secret."""
    task_id = new_id()
    await secrets.put(task_id, "m", "x")
    await secrets.accept(task_id, "m", "token")
    await secrets.put(task_id, "token", "y")
    await secrets.put(task_id, "password", "z")

    assert await secrets.get(task_id, "token") == "x"
    assert await secrets.get(task_id, "password") is None
    assert await secrets.get(task_id, "m") is None
    assert await secrets.get(new_id(), "token") is None


async def test_a_later_secret_replaces_an_earlier_one(secrets: Secrets) -> None:
    """A later accepted secret replaces an earlier, possibly wrong one; others replace nothing."""
    task_id = new_id()
    for message_id, value in (("1", "wrong"), ("2", "right"), ("3", "refused")):
        await secrets.put(task_id, message_id, value)

    await secrets.accept(task_id, "1", "token")
    await secrets.accept(task_id, "2", "token")
    await secrets.accept(task_id, "1", "token")  # by an attempt that was suspended

    assert await secrets.get(task_id, "token") == "right"


async def test_all_secrets_of_a_task_are_forgotten(secrets: Secrets) -> None:
    """All secrets of a task can be deleted, repeatedly; those of other tasks stay."""
    task_id, other = new_id(), new_id()
    for owner in (task_id, other):
        await secrets.put(owner, "m", "x")
        await secrets.accept(owner, "m", "token")

    for _ in range(2):
        await secrets.forget(task_id)

    await secrets.accept(task_id, "m", "again")
    assert [await secrets.get(task_id, name) for name in ("token", "again")] == [None, None]
    assert await secrets.get(other, "token") == "x"


@pytest.mark.parametrize("ends", ["child", "root"])
async def test_secrets_are_forgotten_when_the_clients_task_ends(redis: Redis, ends: str) -> None:
    """Secrets are deleted in the step that publishes the last status of the client's task.

    The end of a sub-agent's task deletes none.
    """
    view, views, secrets = submitted(), TaskViews(redis), Secrets(redis)
    await secrets.put(view.task_id, "m", "x")
    await views.create(view)
    await secrets.accept(view.task_id, "m", "token")
    ending = view.task_id if ends == "root" else child_task_id(view.task_id, "call")

    await views.publish(ending, "run", [status(1, state=TaskState.COMPLETED)])

    assert await secrets.get(view.task_id, "token") == (None if ends == "root" else "x")


async def test_secrets_are_forgotten_though_the_view_was_lost(redis: Redis) -> None:
    """Secrets are deleted although the view was lost: a restored one has the keys that may exist."""
    view, views, secrets = submitted(), TaskViews(redis), Secrets(redis)
    await views.create(view)
    await secrets.put(view.task_id, "m", "x")
    await secrets.accept(view.task_id, "m", "token")
    await redis.delete(head_key(view.task_id))
    await views.restore(view)

    await views.publish(view.task_id, "run", [status(1, state=TaskState.COMPLETED)])

    assert await secrets.get(view.task_id, "token") is None
