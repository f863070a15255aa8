"""Redis loses its last writes, with data that a status refers to: clients get all of it all the same."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from a2a.client import Client
from a2a.types.a2a_pb2 import (
    GetTaskRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.rigs.operator import in_state
from tests.support.rigs.people import question, say
from tests.support.servers.processes import until
from tests.support.servers.relay import Held, RedisRelay, running_relay
from tests.support.servers.rollback import RedisCopy
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, tool_call
from tests.support.servers.webhook import Webhook, running_webhook

AGENT = "tests.support.agents.rolled_back:agent"

pytestmark = pytest.mark.one_server  # the held request is on the way to one


@dataclass(frozen=True)
class Room:
    """An Everloop whose worker holds back statuses of one state, and a webhook."""

    everloop: Deployment
    to_redis: RedisRelay
    client: Client
    hook: Webhook

    async def subscribe(self, task_id: str) -> tuple[Answer, "asyncio.Task[Answer]"]:
        """Return the subscriber's events, once it has the first, and the asyncio task that reads the rest."""
        config = TaskPushNotificationConfig(task_id=task_id, url=self.hook.url)
        await self.client.create_task_push_notification_config(config)
        stream, answer = self.client.subscribe(SubscribeToTaskRequest(id=task_id)), Answer()
        answer.add(await anext(stream))
        return answer, asyncio.create_task(answer.read(stream))

    async def get(self, task_id: str) -> Task:
        return await self.client.get_task(GetTaskRequest(id=task_id))


@asynccontextmanager
async def _room(
    model: ScriptedOpenAI, folder: Path, held: TaskState = TaskState.TASK_STATE_UNSPECIFIED
) -> AsyncGenerator[Room]:
    state = TaskState.Name(held).removeprefix("TASK_STATE_").lower().replace("_", "-")
    words = Held(('"kind":"status"', f'"state":"{state}"'))
    async with (
        running_webhook() as hook,
        running_deployment(
            folder, model.base_url, agents=AGENT, EVERLOOP_PUSH_ALLOW="127.0.0.0/8"
        ) as everloop,
        running_relay(RedisRelay(urlsplit(everloop.redis_url).port or 0, held={state: words})) as to_redis,
    ):
        await everloop.add_worker(EVERLOOP_REDIS_URL=to_redis.url)
        gateway = await everloop.add_gateway()
        async with connected(gateway.url) as client:
            yield Room(everloop, to_redis, client, hook)


@pytest.mark.parametrize("since", ["half of the answer", "its first word"])
async def test_a_completed_task_is_told_with_its_answer(
    model: ScriptedOpenAI, tmp_path: Path, since: str
) -> None:
    """The end of the model's reply is lost, and the status after it is not: no number is missing."""
    begun, more = asyncio.Event(), asyncio.Event()
    model.script = [Reply([begun, "Half, ", more, "whole."])]
    async with _room(model, tmp_path, TaskState.TASK_STATE_COMPLETED) as room:
        task = await _begin(room, "Answer me.")
        await until(lambda: bool(model.requests))
        copy = await RedisCopy.take(room.everloop.redis_url)
        begun.set()
        if since == "half of the answer":
            while response_of(await room.get(task.id)) != "Half, ":  # noqa: ASYNC110 -- another process writes it
                await asyncio.sleep(0.05)
            copy = await RedisCopy.take(room.everloop.redis_url)
        more.set()
        await room.to_redis.until_held()

        await copy.bring_back()
        subscriber, reading = await room.subscribe(task.id)
        await room.to_redis.let_go()

        await reading
        await room.hook.until_delivered("TASK_STATE_COMPLETED")
        ended = await room.get(task.id)

    assert ended.status.state == subscriber.states[-1] == TaskState.TASK_STATE_COMPLETED
    assert response_of(ended) == subscriber.text == "Half, whole."
    assert "Half, whole." in _told(room.hook)


async def test_a_task_that_asks_is_told_with_what_it_has_written(
    model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Its views are lost, and the artifact of one of its calls is not: it is in another store."""
    gate = tmp_path / "gate"
    writing = Reply([tool_call("write_report", json.dumps({"gate": str(gate)}))])
    asking = Reply([tool_call("request_input", '{"question": "Shall I send it?"}')])
    model.script = [writing, asking, Reply(["Sent."])]
    async with _room(model, tmp_path, TaskState.TASK_STATE_INPUT_REQUIRED) as room:
        task = await _begin(room, "Report.")
        await until(gate.with_name("gate.begun").exists)
        copy = await RedisCopy.take(room.everloop.redis_url, "everloop:task:*")
        gate.touch()
        await room.to_redis.until_held()

        await copy.bring_back()
        subscriber, reading = await room.subscribe(task.id)
        await room.to_redis.let_go()

        asked = await in_state(room.client, task.id, TaskState.TASK_STATE_INPUT_REQUIRED)
        await room.hook.until_delivered("TASK_STATE_INPUT_REQUIRED")
        told = _told(room.hook)
        await send(room.client, say(task.id, "yes", question=str(question(asked)["id"])))
        await reading
        ended = await room.get(task.id)

    for shown in (asked, ended):
        assert {artifact.artifact_id for artifact in shown.artifacts} >= {"report"}
    assert "report" in {
        artifact.artifact_id
        for response in subscriber.responses
        for artifact in (*response.task.artifacts, response.artifact_update.artifact)
    }
    assert '"rows": 3' in told
    assert response_of(ended) == "Sent."


async def test_who_follows_a_task_is_not_set_back_with_redis(model: ScriptedOpenAI, tmp_path: Path) -> None:
    """They have got its question: a view without it is older than they are, though it lacks nothing else."""
    more = asyncio.Event()
    asking = [tool_call("request_input", '{"question": "Shall I?"}')]
    model.script = [Reply([more, *asking]), Reply(["Done."])]
    async with _room(model, tmp_path) as room:
        task = await _begin(room, "Ask me.")
        await until(lambda: bool(model.requests))
        copy = await RedisCopy.take(room.everloop.redis_url)
        more.set()
        subscriber, reading = await room.subscribe(task.id)
        asked = await in_state(room.client, task.id, TaskState.TASK_STATE_INPUT_REQUIRED)
        await until(lambda: subscriber.states[-1] == TaskState.TASK_STATE_INPUT_REQUIRED)

        await copy.bring_back()
        seen = len(subscriber.responses)
        await until(lambda: len(subscriber.responses) > seen)
        states = [*subscriber.states]
        await send(room.client, say(task.id, "yes", question=str(question(asked)["id"])))
        await reading

    assert subscriber.responses[seen].HasField("task")
    assert states[-2:] == [TaskState.TASK_STATE_INPUT_REQUIRED] * 2
    assert subscriber.text == "Done."


async def _begin(room: Room, text: str) -> Task:
    async for response in room.client.send_message(request(text, return_immediately=True)):
        return response.task
    raise AssertionError


def _told(hook: Webhook) -> str:
    """Return all notifications."""
    return "\n".join(json.dumps(taken.body) for taken in hook.taken)
