"""Encryption of stores in Redis, with data of several keys or of none."""

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from everloop.runtime.encryption.cipher import NO_CIPHER, Cipher, UnknownKeyError
from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, TaskQuery
from tests.stores.all_stores import AllStores
from tests.stores.examples import new_id, said, submitted
from tests.support.encryption import keyring
from tests.support.secret_search import redis_keys_with

K1, K2 = keyring("k1"), keyring("k2", "k1")


@pytest.mark.parametrize(
    ("first", "then"),
    [(K1, K1), (K1, K2), (NO_CIPHER, K1), (NO_CIPHER, NO_CIPHER)],
    ids=["one key", "next key", "switched on", "never"],
)
@pytest.mark.one_server  # it makes URLs of one server
async def test_no_store_keeps_a_word_in_plain(own_redis: Redis, first: Cipher, then: Cipher) -> None:
    """Data stored with keys is not found in Redis as plain text, and data of any key or none is read."""
    place = own_redis.connection_pool.connection_kwargs
    url = f"redis://{place['host']}:{place['port']}/0"
    word = f"word-{new_id()}"
    task = submitted().model_copy(update={"history": (said("m1", word),)})
    async with connect_redis(url, first) as one, connect_redis(url, then) as other:
        await AllStores(one, task, word).begin()
        kept_first = await redis_keys_with(url, word)
        await AllStores(other, task, word).go_on()
        await AllStores(other, task, word).check()
        kept = await redis_keys_with(url, word)

    assert bool(kept_first) == (not first.is_on)
    assert bool(kept) == (not first.is_on)


async def test_without_the_key_nothing_is_taken_for_something_else(redis: Redis, encrypted: Redis) -> None:
    """Without its key, a view is an error that names the key, not a partial or unknown view.

    Streams skip such events, and lists leave out such tasks.
    """
    task = submitted()
    other = submitted(owner=task.owner)
    await TaskViews(encrypted).create(task)
    views = TaskViews(redis)
    await views.create(other)

    with pytest.raises(UnknownKeyError, match="'k1', which is not known here"):
        await views.load(task.task_id)
    with capture_logs() as logs:
        page = await views.list_tasks(TaskQuery(task.owner, task.agent_id))
    assert (page.views, page.total) == ((other,), 2)
    assert [log["event"] for log in logs if log.get("task_id") == task.task_id] == ["task left out of a list"]
    events = await views.read({task.task_id: START, other.task_id: START}, wait=0)
    assert [event.task_id for event in events] == [other.task_id]
