"""Housekeeping and rebuilding of views, with real processes: removed, kept and restored data."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, ListTasksRequest, Task, TaskState
from google.protobuf.json_format import MessageToDict
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.gateway.auth.api_keys import add_key, new_key
from everloop.gateway.auth.scopes import READ, WRITE
from everloop.local.servers import LOOPBACK, free_port
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from everloop.stores.keys import (
    ARTIFACTS_LISTED_SINCE_KEY,
    CONVERSATIONS_KEY,
    STORE_ID_KEY,
    conversation_key,
    head_key,
    log_key,
    outcomes_key,
    owner_tasks_key,
    records_key,
    transcript_key,
)
from everloop.stores.log.log_store import TaskViews
from everloop.stores.retention.users import FOLDER
from everloop.workflows.contract.housekeeping_payloads import Kind, housekeeping_schedule_id
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskState as Ended
from tests.stores.examples import submitted
from tests.support.a2a_client import connected, request, send
from tests.support.deploy.prometheus import scrape
from tests.support.many_tasks import expire_task
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.rigs.people import PEOPLE_AGENT, call
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.processes import ServerProcess, run_everloop
from tests.support.servers.scripted_openai import Refusal, Reply, ScriptedOpenAI

OWNERS = ("acme", "bolt")
DAY = 24 * 3600
DAYS = {
    "EVERLOOP_TASK_TTL_DAYS": 2,
    "EVERLOOP_TRANSCRIPT_TTL_DAYS": 3,
    "EVERLOOP_TOOL_RECORD_TTL_DAYS": 4,
    "EVERLOOP_CONVERSATION_TTL_DAYS": 5,
    "EVERLOOP_ARTIFACT_TTL_DAYS": 6,
    "EVERLOOP_BLOB_TTL_DAYS": 8,
}
DONE = Reply(["Done."])
REMOVED = "everloop_housekeeping_removed_total"


@dataclass(frozen=True)
class Cluster:
    """A deployment with two owners, and the replies of its model."""

    model: ScriptedOpenAI
    everloop: Deployment
    worker: ServerProcess
    metrics_port: int
    clients: dict[str, A2AClient]
    redis: Redis
    temporal: Client

    async def command(self, *arguments: str) -> tuple[int, str]:
        """Run a command; return its exit code and its output."""
        return await run_everloop(self.everloop.environment, *arguments)

    async def task(self, owner: str, *script: Reply | Refusal) -> Task:
        """Start a task of an owner with this script of the model, and wait until it stops."""
        self.model.script = script
        self.model.requests.clear()
        return await send(self.clients[owner], request("Hello"))

    async def shown(self, owner: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return an owner's tasks in the order of the list: as listed, and as read."""
        client = self.clients[owner]
        page = await client.list_tasks(ListTasksRequest(include_artifacts=True, history_length=50))
        assert page.total_size == len(page.tasks)
        asked = [await client.get_task(GetTaskRequest(id=task.id)) for task in page.tasks]
        return [
            (MessageToDict(one), MessageToDict(same)) for one, same in zip(page.tasks, asked, strict=True)
        ]


def key_of(owner: str, path: Path) -> str:
    """Add a key of an owner to the file of keys."""
    key, kept = new_key(owner, (READ, WRITE), None)
    add_key(path, kept)
    return seed_secret(key)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cluster]:
    directory = tmp_path_factory.mktemp("town")
    auth = {"EVERLOOP_AUTH": "api-key", "EVERLOOP_API_KEYS_FILE": str(directory / "keys")}
    keys = {owner: key_of(owner, directory / "keys") for owner in OWNERS}
    async with AsyncExitStack() as opened:
        model = await opened.enter_async_context(ScriptedOpenAI())
        kept = {name: str(days) for name, days in DAYS.items()}
        deployed = running_deployment(directory, model.base_url, agents=PEOPLE_AGENT, **auth, **kept)
        everloop = await opened.enter_async_context(deployed)
        port = free_port()
        everloop.environment["EVERLOOP_METRICS_ADDRESS"] = f"{LOOPBACK}:{port}"
        worker = await everloop.add_worker()
        del everloop.environment["EVERLOOP_METRICS_ADDRESS"]
        gateway = await everloop.add_gateway()
        clients = {
            owner: await opened.enter_async_context(
                connected(gateway.url, streaming=False, headers={"X-API-Key": key})
            )
            for owner, key in keys.items()
        }
        redis = await opened.enter_async_context(connect_redis(everloop.redis_url, NO_CIPHER))
        temporal = await Client.connect(everloop.temporal_address)
        yield Cluster(model, everloop, worker, port, clients, redis, temporal)


class Ages(NamedTuple):
    """Ages in seconds just before and after the end of a class; no other class ends between them."""

    before: float
    after: float


def around(setting: str) -> Ages:
    return Ages((DAYS[setting] - 0.5) * DAY, (DAYS[setting] + 0.5) * DAY)


def keep(cluster: Cluster, key: str, seconds: float) -> Path:
    """Put a blob into the store as if that was so long ago."""
    path = Path(cluster.everloop.environment["EVERLOOP_BLOB_DIRECTORY"]) / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"content")
    put_at = time.time() - seconds
    os.utime(path, (put_at, put_at))
    return path


@pytest_asyncio.fixture
async def unscheduled(cluster: Cluster) -> AsyncGenerator[None]:
    """Disable the scheduled cleanup, which runs every five minutes of the clock."""
    queue = cluster.everloop.environment["EVERLOOP_TASK_QUEUE"]
    schedule = cluster.temporal.get_schedule_handle(housekeeping_schedule_id(queue))
    await schedule.pause()
    while (await schedule.describe()).info.running_actions:  # noqa: ASYNC110 -- a fact of a server
        await asyncio.sleep(0.05)
    yield
    await schedule.unpause()


@pytest.mark.usefixtures("unscheduled")
async def test_what_nobody_needs_is_removed(cluster: Cluster) -> None:
    """And nothing else: nothing within the time of its class, no payload of a workflow in Temporal.

    The worker has recorded that it uses the store.
    """
    environment = cluster.everloop.environment
    users = Path(environment["EVERLOOP_BLOB_DIRECTORY"], FOLDER).glob("*/*")
    assert [user.name for user in users] == [environment["EVERLOOP_TASK_QUEUE"]]
    task = await cluster.task("acme", Reply([call("book", {"kind": "selection", "ledger": "-"})]), DONE)
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    gone, known = f"payloads/{uuid4()}/a", f"payloads/{task.id}/a"
    of_artifact, of_payload = around("EVERLOOP_ARTIFACT_TTL_DAYS"), around("EVERLOOP_BLOB_TTL_DAYS")
    removed = [keep(cluster, gone, of_payload.after), keep(cluster, "artifact/0123/a", of_artifact.after)]
    stays = [
        keep(cluster, known, of_payload.after),
        keep(cluster, f"payloads/{uuid4()}/a", of_payload.before),
        keep(cluster, "artifact/0123/b", of_artifact.before),
    ]
    of_talk = around("EVERLOOP_CONVERSATION_TTL_DAYS")
    talks = {"silent": of_talk.after, "newer": of_talk.before}
    await cluster.redis.zadd(
        CONVERSATIONS_KEY, {talk: (time.time() - age) * 1000 for talk, age in talks.items()}
    )
    expired = submitted(owner="o")
    ended = expired.status.model_copy(update={"state": Ended.COMPLETED})
    await TaskViews(cluster.redis).create(expired.model_copy(update={"status": ended}))
    await expire_task(cluster.redis, expired)
    await cluster.redis.set(ARTIFACTS_LISTED_SINCE_KEY, time.time() - of_artifact.after)

    expected = {
        "expired views": "1",
        "conversations": "1",
        "blobs that no artifact names": "1",
        "payloads of workflows that are gone": "1",
    }
    for options, column in ((["--dry-run"], "WOULD BE REMOVED"), ([], "REMOVED")):
        assert all(path.exists() for path in [*removed, *stays])
        code, told = await cluster.command("housekeeping", "run", *options)
        head, *rows = told.splitlines()
        assert (code, head.split(None, 1)) == (0, ["KIND", column]), told
        counts = {name.strip(): count for name, count in (row.rsplit(None, 1) for row in rows)}
        assert {name: count for name, count in counts.items() if count != "0"} == expected
    assert not any(path.exists() for path in removed)
    assert all(path.exists() for path in stays)
    assert await cluster.redis.exists(owner_tasks_key("o")) == 0
    assert talks.keys() & set(await cluster.redis.zrange(CONVERSATIONS_KEY, 0, -1)) == {"newer"}
    counted = await scrape(cluster.metrics_port)
    assert {kind: counted.sum(REMOVED, kind=kind) for kind in Kind} == {
        **dict.fromkeys(Kind, 0),
        **dict.fromkeys((Kind.VIEWS, Kind.CONVERSATIONS, Kind.ARTIFACT_BLOBS, Kind.PAYLOADS), 1),
    }


async def test_the_schedule_of_the_housekeeping_is_shown(cluster: Cluster) -> None:
    """By its name in Temporal; it runs."""
    code, told = await cluster.command("housekeeping", "status")
    assert code == 0
    assert f"schedule  everloop-housekeeping-{cluster.everloop.environment['EVERLOOP_TASK_QUEUE']}" in told
    assert "paused    no" in told


async def test_each_class_is_kept_for_its_own_time(cluster: Cluster, ledger: Path) -> None:
    """As in the settings, from the last use on; its events for an hour."""
    payment = call("pay", {"amount": 1, "to": "Ada", "ledger": str(ledger)})
    task = await cluster.task("acme", Reply([payment]), DONE)
    context = context_key("acme", task.context_id)
    keys = {
        head_key(task.id): "EVERLOOP_TASK_TTL_DAYS",
        transcript_key(task.id, "*"): "EVERLOOP_TRANSCRIPT_TTL_DAYS",
        records_key(task.id): "EVERLOOP_TOOL_RECORD_TTL_DAYS",
        outcomes_key(task.id): "EVERLOOP_TRANSCRIPT_TTL_DAYS",
        conversation_key(context): "EVERLOOP_CONVERSATION_TTL_DAYS",
    }
    for pattern, setting in keys.items():
        found = await cluster.redis.keys(pattern)
        assert found, pattern
        for key in found:
            left, days = await cluster.redis.ttl(key), DAYS[setting]
            assert (days - 1) * DAY < left <= days * DAY, (key, setting, left)
    assert 0 < await cluster.redis.ttl(log_key(task.id)) <= 3600


async def test_views_come_back_after_redis_was_emptied(cluster: Cluster) -> None:
    """All of them, unchanged, for each owner; new tasks start meanwhile, and a kill does no harm."""
    question = Reply([call("book", {"kind": "selection", "ledger": "-"})])
    for owner in OWNERS:
        await cluster.task(owner, DONE)
        await cluster.task(owner, Refusal(401))
        await cluster.task(owner, question)
        canceled = await cluster.task(owner, question)
        await cluster.clients[owner].cancel_task(CancelTaskRequest(id=canceled.id))
    ended = await cluster.task("acme", question)
    await cluster.temporal.get_workflow_handle(ended.id).terminate()
    await until_ended(cluster.clients["acme"], ended.id)
    before = {owner: await cluster.shown(owner) for owner in OWNERS}
    store = await cluster.redis.get(STORE_ID_KEY)

    await cluster.redis.flushall()
    command = [sys.executable, "-m", "everloop", "reindex", "--at-once", "1"]
    killed = ServerProcess(command, cluster.everloop.directory / "reindex.log", cluster.everloop.environment)
    killed.start()
    await until_views_come(killed, cluster.redis)
    killed.kill()
    again = asyncio.create_task(cluster.command("reindex"))
    new = {owner: await cluster.task(owner, DONE) for owner in OWNERS}
    code, told = await again

    assert code == 0, told
    assert "0 not restored" in told
    assert await cluster.redis.get(STORE_ID_KEY) == store
    for owner in OWNERS:
        after = await cluster.shown(owner)
        assert after[0][0]["id"] == new[owner].id
        assert after[1:] == before[owner]


async def test_what_is_not_restored_is_named(cluster: Cluster) -> None:
    """With the reason, and an exit code; here no query is answered, because there is no worker."""
    task = await cluster.task("acme", Reply([call("book", {"kind": "selection", "ledger": "-"})]), DONE)
    await cluster.redis.flushall()
    cluster.worker.kill()
    code, told = await cluster.command("reindex", "--owner", "acme", "--agent", "desk")

    assert code == 1
    assert f"everloop: task {task.id} not restored: no worker answers for it" in told


async def until_views_come(process: ServerProcess, redis: Redis) -> None:
    while process.is_running():
        if await redis.keys("everloop:task:*:head"):
            return
        await asyncio.sleep(0)


async def until_ended(client: A2AClient, task_id: str) -> None:
    task = await client.get_task(GetTaskRequest(id=task_id))
    while task.status.state != TaskState.TASK_STATE_FAILED:
        await asyncio.sleep(0.2)
        task = await client.get_task(GetTaskRequest(id=task_id))
