"""Notifications arrive whatever process dies: in order, at least once, and without leaking secrets."""

from collections.abc import AsyncGenerator
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    SendMessageRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from everloop.stores.keys import push_configs_key
from tests.support.a2a_client import connected, request, response_of, send
from tests.support.rigs.deployment import Deployment, Gateway, running_deployment
from tests.support.rigs.people import PEOPLE_AGENT, Harness, call, effects, say
from tests.support.secret_search import files_with, redis_keys_with
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.processes import ServerProcess, redis_answers, wait_until_answers
from tests.support.servers.scripted_openai import ScriptedOpenAI
from tests.support.servers.webhook import Webhook, running_webhook

WORKING, ASKS, COMPLETED = "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"

SECRETS = ("token", "credentials", "key")


@pytest_asyncio.fixture
async def everloop(tmp_path: Path, model: ScriptedOpenAI) -> AsyncGenerator[Deployment]:
    """A deployment with full logs that may notify this machine."""
    (tmp_path / "everloop").mkdir()
    settings = {"EVERLOOP_PUSH_ALLOW": "127.0.0.0/8", "EVERLOOP_LOG_LEVEL": "debug"}
    async with running_deployment(
        tmp_path / "everloop", model.base_url, agents=PEOPLE_AGENT, **settings
    ) as running:
        yield running


@pytest.fixture
def secret() -> str:
    return seed_secret(f"secret-{uuid4()}")


def _config(hook: Webhook, secret: str, task_id: str = "") -> TaskPushNotificationConfig:
    """A config with a secret in every possible field."""
    token, credentials, key = (f"{secret}-{name}" for name in SECRETS)
    return TaskPushNotificationConfig(
        task_id=task_id,
        url=f"{hook.url}?key={key}",
        token=token,
        authentication=AuthenticationInfo(scheme="Bearer", credentials=credentials),
    )


def _pays(ledger: Path, hook: Webhook, secret: str) -> SendMessageRequest:
    message = request(f"Pay. {ledger}", return_immediately=True)
    message.configuration.task_push_notification_config.CopyFrom(_config(hook, secret))
    return message


def _heard(hook: Webhook) -> list[str]:
    """Return the states that a client gets from its notifications, without repetitions by id."""
    by_id = {each.id: each.state for each in hook.taken}
    return [state for state, _ in groupby(filter(None, by_id.values()))]


async def _everything_dies(everloop: Deployment, *processes: ServerProcess) -> None:
    """Kill the processes and Redis, and start Redis again."""
    for process in (*processes, everloop.valkey):
        process.kill()
    everloop.valkey.start()
    await wait_until_answers(everloop.valkey, lambda: redis_answers(everloop.redis_url), "valkey")


async def _answer(client: A2AClient, task: Task) -> None:
    message = say(task.id, "yes")
    message.configuration.return_immediately = True
    await send(client, message)


@pytest.mark.timeout(600)
async def test_notifications_survive_all_that_dies(
    model: ScriptedOpenAI, everloop: Deployment, ledger: Path, secret: str
) -> None:
    """A webhook is away while the task asks, and again while it ends; each time all else is killed as well.

    It gets all of it in order when it is back. Meanwhile neither the task nor another webhook waits for it,
    and its client's secrets are in one place.
    """
    worker, gateway = await everloop.add_worker(), await everloop.add_gateway()
    harness = Harness(model, everloop, gateway)
    harness.expect(call("pay", {"amount": 5000, "to": "Ada", "ledger": str(ledger)}))
    async with running_webhook() as lame, running_webhook() as steady:
        await lame.stop()
        async with connected(gateway.url, streaming=False) as client:
            task = await send(client, _pays(ledger, lame, secret))
            await client.create_task_push_notification_config(_config(steady, secret, task.id))
        await steady.until_delivered(ASKS)
        await _everything_dies(everloop, worker, gateway.process)
        await lame.start()
        worker = await everloop.add_worker()
        await lame.until_delivered(ASKS)
        asked = _heard(lame)

        await lame.stop()
        gateway = await everloop.add_gateway()
        async with connected(gateway.url, streaming=False) as client:
            await _answer(client, task)
            await steady.until_delivered(COMPLETED)
            done = await client.get_task(GetTaskRequest(id=task.id))
        await _everything_dies(everloop, worker, gateway.process)
        await lame.start()
        await everloop.add_worker()
        await lame.until_delivered(COMPLETED)
        places = await redis_keys_with(everloop.redis_url, secret)

    assert asked == [WORKING, ASKS]
    assert _heard(lame) == [WORKING, ASKS, WORKING, COMPLETED]
    assert _heard(steady)[-3:] == [ASKS, WORKING, COMPLETED]
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    assert (response_of(done), effects(ledger)) == ("Done.", [[5000, "Ada"]])
    assert {each.headers["authorization"] for each in lame.taken} == {f"Bearer {secret}-credentials"}
    assert {each.target for each in lame.taken} == {f"/hook?key={secret}-key"}
    assert places == {push_configs_key(task.id)}
    assert files_with(everloop.directory, secret) <= {"valkey"}


async def test_a_config_that_redis_forgot_is_set_again(
    model: ScriptedOpenAI, everloop: Deployment, ledger: Path, secret: str
) -> None:
    """Redis is emptied: the task goes on, its configs are gone.

    One that is set again gets its notifications.
    """
    await everloop.add_worker()
    gateway: Gateway = await everloop.add_gateway()
    harness = Harness(model, everloop, gateway)
    harness.expect(call("pay", {"amount": 5000, "to": "Ada", "ledger": str(ledger)}))
    async with running_webhook() as hook, connected(gateway.url, streaming=False) as client:
        task = await send(client, _pays(ledger, hook, secret))
        await hook.until_delivered(ASKS)
        async with connect_redis(everloop.redis_url, NO_CIPHER) as redis:
            await redis.flushall()
        left = await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id=task.id)
        )
        await client.create_task_push_notification_config(_config(hook, secret, task.id))
        await hook.until(lambda hook: "task" in hook.taken[-1].body)
        await _answer(client, task)
        await hook.until_delivered(COMPLETED)

    assert not left.configs
    assert _heard(hook)[:2] == [WORKING, ASKS]
    assert _heard(hook)[-1] == COMPLETED
    assert effects(ledger) == [[5000, "Ada"]]
