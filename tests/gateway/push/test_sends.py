"""Configs that come with messages: refused before the message has any effect, told of all that it has."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.runtime.redis import connect_redis
from tests.gateway.harness import unique
from tests.gateway.push.push_harness import PushHarness, running_push_harness
from tests.support.servers.webhook import running_webhook


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def harness(client: Client, redis_url: str) -> AsyncGenerator[PushHarness]:
    async with connect_redis(redis_url) as redis, running_push_harness(client, redis) as harness:
        yield harness


def a_message(text: str, url: str, config_id: str, task_id: str = "") -> dict[str, object]:
    """The params of a message that brings a config."""
    message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": text}], "taskId": task_id}
    config = {"url": url, "id": config_id}
    return {
        "message": message,
        "configuration": {"returnImmediately": True, "taskPushNotificationConfig": config},
    }


async def test_a_message_with_an_eleventh_config_is_not_taken_in(harness: PushHarness) -> None:
    """Whoever sends it again without the config has its effect once; one of the ten may come with it."""
    gateway, prompt, gate = harness.gateway.http, unique("held"), asyncio.Event()
    harness.model.scripts[prompt] = [gate]
    async with running_webhook() as hook:
        sent = await gateway.call("SendMessage", a_message(prompt, hook.url, "0"))
        task_id = sent.json()["result"]["task"]["id"]
        for number in range(1, 10):
            await gateway.call(
                "CreateTaskPushNotificationConfig", {"taskId": task_id, "id": f"{number}", "url": hook.url}
            )
        refused = await gateway.call("SendMessage", a_message("pay 5", hook.url, "more", task_id))
        taken = await gateway.call("SendMessage", a_message("pay 7", hook.url, "3", task_id))
        gate.set()
        await hook.until_told("TASK_STATE_COMPLETED")
    task = (await gateway.call("GetTask", {"id": task_id})).json()["result"]
    assert "Delete one" in refused.json()["error"]["message"]
    assert "error" not in taken.json()
    told = [message["parts"][0]["text"] for message in task["history"] if message["role"] == "ROLE_USER"]
    assert told == [prompt, "pay 7"]


async def test_a_webhook_that_is_away_for_too_long_misses_what_was_sent_meanwhile(
    harness: PushHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal tries each notification for its time; what comes when the webhook is back arrives."""
    monkeypatch.setattr(harness.port, "delivery_time", timedelta(milliseconds=1))
    prompt, gate = unique("held"), asyncio.Event()
    harness.model.scripts[prompt] = [gate]
    async with running_webhook(503, 503) as hook:
        await harness.gateway.http.call("SendMessage", a_message(prompt, hook.url, "away"))
        await hook.until(lambda hook: not hook.script)
        gate.set()
        await hook.until_told("TASK_STATE_COMPLETED")
    assert len({each.id for each in hook.refused}) == 1
    assert hook.states == ["TASK_STATE_COMPLETED"]


async def test_whoever_starts_a_task_hears_all_of_it(harness: PushHarness) -> None:
    """Also what happened before its config was set: the first try of its request died before that."""
    gateway, prompt, gate, held = harness.gateway.http, unique("held"), asyncio.Event(), asyncio.Event()
    harness.model.scripts[prompt] = [held.set, gate]
    async with running_webhook() as hook:
        params = a_message(prompt, hook.url, "c")
        await gateway.call(
            "SendMessage", {"message": params["message"], "configuration": {"returnImmediately": True}}
        )
        await held.wait()
        await gateway.call("SendMessage", params)
        await hook.until_told("TASK_STATE_WORKING")
        gate.set()
        await hook.until_told("TASK_STATE_COMPLETED")
    assert hook.states == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]


async def test_also_of_a_task_that_has_ended_meanwhile(harness: PushHarness) -> None:
    """Each status and each artifact, as if the first try had come through."""
    gateway = harness.gateway.http
    async with running_webhook() as hook:
        params = a_message(unique("prompt"), hook.url, "c")
        ended = await gateway.call("SendMessage", {"message": params["message"]})
        await gateway.call("SendMessage", params)
        await hook.until_told("TASK_STATE_COMPLETED")
    assert ended.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [each.state for each in hook.taken] == ["TASK_STATE_WORKING", "", "TASK_STATE_COMPLETED"]
