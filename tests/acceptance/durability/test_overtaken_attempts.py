"""Requests under way when a worker freezes arrive late, and are refused."""

import asyncio
import json
import os
import signal
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import GetTaskRequest, SendMessageRequest, Task, TaskPushNotificationConfig, TaskState
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from everloop.stores.keys import log_key, records_key
from everloop.stores.scripts import script_sha
from everloop.workflows.contract.names import PUSH_WORKFLOW_TYPE, WORKFLOW_TYPE
from tests.support.a2a_client import connected, request, response_of, send
from tests.support.agents.overtaken import NARRATOR
from tests.support.rigs.deployment import Deployment, kept_by, running_deployment
from tests.support.rigs.people import questions, say
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.relay import Held, Link, RedisRelay, running_relay
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI, tool_call
from tests.support.servers.webhook import Webhook, running_webhook

AGENTS = "tests.support.agents.overtaken:agents"

AUTH_REQUIRED = TaskState.TASK_STATE_AUTH_REQUIRED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED

OLD_PIN, NEW_PIN = "old-5f0c7e31", "new-91b2d4aa"

LATE = {
    # A tool has ended, and its outcome is recorded.
    "ends": Held(("{ends-", '"tool-complete"')),
    "reports": Held(("{reports-", '"tool-progress"')),
    # The client's answer becomes the secret of its name; another message brings another one later.
    "asks": Held(("{asks-", "message:", "name:pin")),
    "narrates": Held(("{narrates-", '"narration"')),
    # The next notification was read, and is about to be posted.
    "pushes": Held(("{pushes-", '"kind":"status"'), of_replies=True),
    # The end of a task: its messages are appended to the conversation, then its end is published.
    "remembers": Held(("everloop:conversation:", ":positions", "remembers-")),
    # Recalled text becomes the beginning of the transcript.
    "recalls": Held(("{recalls-", script_sha("transcript/put.lua"))),
    "compacts": Held(("{compacts-", "prompt got too long")),
}
"""The request that the frozen worker has under way, by agent."""

CALLED = {"reports": "report", "asks": "unlock", "narrates": "wait"}
"""The tool by agent; that of the others is `note`."""

CALLS = {"compacts": 2}
"""The number of tool calls by agent; the others have one."""


class _Script:
    """Lets each agent call its tool and then answer; narrates with another text each time."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate
        self._narrations = 0
        self._asked = Counter[str]()

    def __call__(self, received: ReceivedRequest) -> Reply:
        agent = str(received.body["model"])
        if agent == NARRATOR:
            self._narrations += 1
            return Reply([f"Step {self._narrations}"])
        self._asked[agent] += 1
        if self._asked[agent] > CALLS.get(agent, 1):
            return Reply(["Done."])
        arguments = {"gate": str(self._gate)} if agent == "narrates" else {}
        return Reply([tool_call(CALLED.get(agent, "note"), json.dumps(arguments))])


def _message(hook: Webhook, agent: str) -> SendMessageRequest:
    message = request("Work.", return_immediately=True)
    if agent == "recalls":
        message.message.context_id = str(uuid4())  # otherwise there is nothing to recall, and no search
    if agent == "pushes":
        config = TaskPushNotificationConfig(url=hook.url)
        message.configuration.task_push_notification_config.CopyFrom(config)
    return message


async def _asked(client: A2AClient, task_id: str, state: TaskState, but: str = "") -> tuple[Task, str]:
    """Wait until a task asks another question; return it and the id of the question."""
    while True:
        task = await client.get_task(GetTaskRequest(id=task_id))
        asked = [each for each in questions(task) if each != but]
        if task.status.state == state and asked:
            return task, asked[0]
        await asyncio.sleep(0.1)


async def _answer(client: A2AClient, task_id: str, question: str, text: str) -> None:
    message = say(task_id, text, question=question)
    message.configuration.return_immediately = True
    await send(client, message)


async def _tasks(clients: dict[str, A2AClient], task_ids: dict[str, str]) -> dict[str, Task]:
    asked = {agent: GetTaskRequest(id=task_id) for agent, task_id in task_ids.items()}
    return {agent: await clients[agent].get_task(asking) for agent, asking in asked.items()}


async def _until_narrated(everloop: Deployment, task_id: str) -> None:
    async with connect_redis(everloop.redis_url, NO_CIPHER) as redis:
        while '"narration"' not in str(await redis.xrange(log_key(task_id))):  # noqa: ASYNC110 -- another process writes it
            await asyncio.sleep(0.1)


async def _until_ended(everloop: Deployment, task_ids: dict[str, str]) -> None:
    """Wait for the end of all tasks and their post-completion work, except those that wait for people."""
    temporal = await Client.connect(everloop.temporal_address)
    async for found in temporal.list_workflows("ExecutionStatus = 'Running'"):
        if found.id != task_ids["asks"] and found.workflow_type in {WORKFLOW_TYPE, PUSH_WORKFLOW_TYPE}:
            await temporal.get_workflow_handle(found.id).result()
    async with connect_redis(everloop.redis_url, NO_CIPHER) as redis:
        while any(await _holders_of_narration(redis, task_ids["narrates"])):  # noqa: ASYNC110 -- another process writes it
            await asyncio.sleep(0.1)


async def _holders_of_narration(redis: Redis, task_id: str) -> list[str]:
    """Return the holders of a task's narration lease, "" for an attempt that has ended."""
    records = cast("dict[str, str]", await redis.hgetall(records_key(task_id)))
    leases = [lease for call, lease in records.items() if call.startswith("narration ")]
    assert leases
    return [lease.partition(" ")[0] for lease in leases]


@pytest.mark.one_server  # the held request is on the way to one
@pytest.mark.timeout(400)
async def test_what_arrives_late_is_written_nowhere(model: ScriptedOpenAI, tmp_path: Path) -> None:
    """Neither to a view or its stream, to transcripts, conversations and secrets, nor to a webhook."""
    gate = tmp_path / "gate"
    model.script = _Script(gate)
    settings = {"EVERLOOP_PUSH_ALLOW": "127.0.0.0/8", "EVERLOOP_SHUTDOWN_GRACE": "10"}
    old_pin, new_pin = seed_secret(OLD_PIN), seed_secret(NEW_PIN)

    async with (
        running_webhook() as hook,
        running_deployment(tmp_path, model.base_url, agents=AGENTS, **settings) as everloop,
        running_relay(Link(_port(everloop.temporal_address))) as to_temporal,
        running_relay(RedisRelay(_port(everloop.redis_url), held=LATE)) as to_redis,
    ):
        variables = {"TEMPORAL_ADDRESS": to_temporal.address, "EVERLOOP_REDIS_URL": to_redis.url}
        frozen = await everloop.add_worker(**variables)
        gateway = await everloop.add_gateway()
        async with AsyncExitStack() as stack:
            clients = {
                agent: await stack.enter_async_context(
                    connected(f"{gateway.url}/agents/{agent}", streaming=False)
                )
                for agent in LATE
            }
            task_ids = {agent: (await send(clients[agent], _message(hook, agent))).id for agent in LATE}
            asks, task_id = clients["asks"], task_ids["asks"]
            _, question = await _asked(asks, task_id, AUTH_REQUIRED)
            await _answer(asks, task_id, question, old_pin)
            await to_redis.until_held()
            os.kill(frozen.pid, signal.SIGSTOP)
            to_temporal.cut()  # so that Temporal hands it nothing more

            await everloop.add_worker()
            _, question = await _asked(asks, task_id, AUTH_REQUIRED, but=question)
            await _answer(asks, task_id, question, new_pin)
            _, question = await _asked(asks, task_id, INPUT_REQUIRED)
            await _until_narrated(everloop, task_ids["narrates"])
            gate.touch()
            await hook.until_delivered("TASK_STATE_COMPLETED")
            await _until_ended(everloop, task_ids)
            tasks = await _tasks(clients, task_ids)
            before, told = await kept_by(everloop), list(hook.taken)

            os.kill(frozen.pid, signal.SIGCONT)
            await to_redis.let_go()
            await asyncio.to_thread(frozen.stop)  # it lets calls end that have begun
            changed = {name for name, kept in (await kept_by(everloop)).items() if before.get(name) != kept}
            after = await _tasks(clients, task_ids)
            heard = list(hook.taken)
            await _answer(asks, task_id, question, "yes")
            temporal = await Client.connect(everloop.temporal_address)
            await temporal.get_workflow_handle(task_id).result()
            unlocked = await asks.get_task(GetTaskRequest(id=task_id))

    assert changed == set()
    assert after == tasks
    assert heard == told
    assert [each.id for each in heard] == list(dict.fromkeys(each.id for each in heard))
    assert {agent: response_of(task) for agent, task in tasks.items()} == {
        agent: "" if agent == "asks" else "Done." for agent in LATE
    }
    assert response_of(unlocked) == "Done."


def _port(address: str) -> int:
    port = urlsplit(address if "//" in address else f"//{address}").port
    assert port
    return port
