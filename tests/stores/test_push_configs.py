"""Push notification configs: stored by id, at most ten for a task, with their position."""

from datetime import timedelta

import pytest
from redis.asyncio import Redis

from everloop.stores.keys import push_configs_key
from everloop.stores.push.configs import MAX_CONFIGS, PushConfig, PushConfigs, TooManyPushConfigsError
from tests.stores.examples import new_id


def config(task_id: str, id_: str = "c", **fields: str) -> PushConfig:
    return PushConfig(
        id=id_,
        task_id=task_id,
        owner="owner",
        context_id="context",
        has_authentication=True,
        scheme="Bearer",
        credentials="hush-hush",
        is_legacy=True,
        public_url="https://agents.example.com",
        **{"url": "https://example.com/hook", "token": "t", **fields},
    )


@pytest.mark.parametrize("id_", ["c", "c:d", "é☃", "position:c", "config:c"])
async def test_a_config_comes_back_as_it_was_set(configs: PushConfigs, id_: str) -> None:
    """A config of any id is returned as it was set; another set replaces it."""
    task_id = new_id()

    await configs.put(config(task_id, id_, token="old"))
    await configs.put(config(task_id, id_))

    assert await configs.get(task_id, id_) == config(task_id, id_)
    assert await configs.list_configs(task_id) == [config(task_id, id_)]
    assert await configs.config_ids(task_id) == [id_]


@pytest.mark.parametrize("change", ["token", "url", "credentials"])
async def test_a_config_that_was_set_anew_is_not_removed_for_what_it_was(
    configs: PushConfigs, change: str
) -> None:
    """A config that was replaced since it was read is not removed; an unchanged one is."""
    task_id = new_id()
    old = config(task_id)
    await configs.put(old.model_copy(update={change: "new"}))
    await configs.delete_unchanged(old)
    kept = await configs.config_ids(task_id)

    await configs.put(old)
    await configs.delete_unchanged(old)

    assert kept == ["c"]
    assert await configs.config_ids(task_id) == []
    assert await configs.position(task_id, "c") == ""


async def test_a_store_that_lost_its_data_knows_no_configs(redis: Redis) -> None:
    """A store without its data has lost the configs until one is set again; removed ones are not lost."""
    task_id, configs = new_id(), PushConfigs(redis)
    await configs.put(config(task_id))
    await redis.delete(push_configs_key(task_id))
    lost = await configs.knows(task_id)
    await configs.put(config(task_id))

    assert not lost
    assert await configs.knows(task_id)
    await configs.delete(task_id, "c")
    assert await configs.knows(task_id)


async def test_a_task_has_ten_configs_at_most(configs: PushConfigs) -> None:
    """A task has ten configs at most: one may be replaced, and a deleted one frees its place."""
    task_id = new_id()
    for number in range(MAX_CONFIGS):
        await configs.put(config(task_id, f"{number}"))

    with pytest.raises(TooManyPushConfigsError):
        await configs.put(config(task_id, "more"))
    await configs.put(config(task_id, "3", token="new"))
    await configs.delete(task_id, "4")
    await configs.put(config(task_id, "more"))

    assert len(await configs.config_ids(task_id)) == MAX_CONFIGS
    assert await configs.get(task_id, "4") is None
    assert await configs.config_ids(new_id()) == []


async def test_a_position_advances_from_where_it_stands(configs: PushConfigs) -> None:
    """A position only advances from its present value, and not for a deleted config."""
    task_id = new_id()
    await configs.put(config(task_id), position="0-0")
    for start, end in (("0-0", "1-0"), ("0-0", "9-0")):
        await configs.advance(config(task_id), start=start, end=end)
    heard = await configs.position(task_id, "c")
    await configs.delete(task_id, "c")
    await configs.advance(config(task_id), start="", end="2-0")
    await configs.advance(config(task_id), start="1-0", end="2-0")

    assert heard == "1-0"
    assert await configs.position(task_id, "c") == ""
    assert await configs.get(task_id, "c") is None


async def test_another_webhook_begins_anew(configs: PushConfigs) -> None:
    """Another webhook starts without a position; a new token keeps it."""
    task_id, other = new_id(), 'https://example.com/hök/"new"'
    await configs.put(config(task_id))
    await configs.advance(config(task_id), start="", end="1-0")
    await configs.put(config(task_id, token="new"), position="0-0")
    same = await configs.position(task_id, "c")

    await configs.put(config(task_id, url=other))
    await configs.advance(config(task_id), start="", end="2-0")
    anew = await configs.position(task_id, "c")
    await configs.advance(config(task_id, url=other), start="", end="3-0")

    assert (same, anew) == ("1-0", "")
    assert await configs.position(task_id, "c") == "3-0"


async def test_a_config_does_not_show_its_secrets() -> None:
    """The representation of a config, which may be logged, has no secrets."""
    shown = f"{config('task')!r} {config('task')} {[config('task')]}"

    assert not any(secret in shown for secret in ("hush-hush", "/hook", "'t'"))


async def test_configs_expire(redis: Redis) -> None:
    """Configs expire unless they are used."""
    task_id, configs = new_id(), PushConfigs(redis, ttl=timedelta(hours=1))
    await configs.put(config(task_id))
    for use in (
        configs.put(config(task_id)),
        configs.get(task_id, "c"),
        configs.advance(config(task_id), start="", end="1-0"),
    ):
        await redis.expire(push_configs_key(task_id), 5)
        await use
        assert 3_500 < await redis.ttl(push_configs_key(task_id)) <= 3_600
