"""Limits of an owner's schedules: the same as those of the owner's requests."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.activities.scheduled_tasks import ScheduledTasks
from everloop.gateway.auth.access import AccessControl
from everloop.gateway.extension import schedule_handlers
from everloop.gateway.settings import Attachments
from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.artifact_store import ArtifactSettings
from everloop.stores.artifacts.schedule_files import make_schedule_files
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.quotas import LimitSettings, Quotas
from everloop.workflows.contract.http_extension import HTTP_BASE
from tests.gateway.harness import Named, PromptModel, running_gateway, unique, working

SCHEDULES = f"{HTTP_BASE}/schedules"


@asynccontextmanager
async def office(
    client: Client, redis_url: str, model: PromptModel, **variables: int
) -> AsyncGenerator[httpx.AsyncClient]:
    """A gateway, and a worker that has these limits; callers are who they say."""
    queue = unique("limited")
    async with connect_redis(redis_url) as redis:
        views, quotas = TaskViews(redis), Quotas(redis)
        files = make_schedule_files(ArtifactSettings(), redis, RedisBlobs(redis), views.retention)
        webhooks = ScheduleWebhooks(redis, PushConfigs(redis))
        limits = LimitSettings.model_validate(variables)
        scheduled = ScheduledTasks(files, webhooks, quotas, limits)
        async with (
            working(client, views, queue, model, schedules=scheduled),
            running_gateway(
                client,
                views,
                queue=queue,
                access=AccessControl(Named()),
                attachments=Attachments(files, webhooks, quotas),
            ) as gateway,
        ):
            yield gateway.http


@pytest_asyncio.fixture
async def model(views: TaskViews) -> PromptModel:
    return PromptModel(views)


async def _run(http: httpx.AsyncClient, owner: str, text: str) -> str:
    """Make a schedule, and start a task of it; return its id."""
    name, headers = unique("s"), {"owner": owner}
    body = {"id": name, "message": {"parts": [{"text": text}]}, "cron": "0 0 1 1 *"}
    made = await http.post(SCHEDULES, json=body, headers=headers)
    assert made.status_code == 201, made.text
    started = await http.post(f"{SCHEDULES}/{name}:run", headers=headers)
    return str(started.json()["taskId"])


async def _status(http: httpx.AsyncClient, owner: str, task_id: str, *states: str) -> Any:  # noqa: ANN401 -- JSON
    """Wait until a task is in one of these states; return its status."""
    while True:
        params = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task_id}}
        answer = await http.post("/", json=params, headers={"owner": owner})
        assert answer.status_code == 200, (answer.status_code, answer.text)
        task = answer.json().get("result")
        if task and task["status"]["state"] in states:
            return task["status"]


WORKING, FAILED, COMPLETED = "TASK_STATE_WORKING", "TASK_STATE_FAILED", "TASK_STATE_COMPLETED"


async def test_tasks_of_schedules_count_as_open_tasks(
    client: Client, redis_url: str, model: PromptModel
) -> None:
    """A task over the limit fails at once with the reason; when another has ended the next one runs."""
    owner, stranger, held = unique("owner"), unique("stranger"), asyncio.Event()
    model.scripts["hold"] = [held, "done"]
    async with office(client, redis_url, model, max_open_tasks=2) as http:
        tasks = [await _run(http, owner, "hold") for _ in range(4)]
        statuses = [await _status(http, owner, task, WORKING, FAILED) for task in tasks]
        others = await _status(http, stranger, await _run(http, stranger, "Hi."), COMPLETED, FAILED)
        held.set()
        for task in tasks[:2]:
            await _status(http, owner, task, COMPLETED)
        later = await _status(http, owner, await _run(http, owner, "Hi."), COMPLETED, FAILED)
    assert [status["state"] for status in statuses] == [WORKING, WORKING, FAILED, FAILED]
    assert "2 tasks that have not ended" in statuses[-1]["message"]["parts"][0]["text"]
    assert (others["state"], later["state"]) == (COMPLETED, COMPLETED)


async def test_tasks_of_schedules_count_as_requests(
    client: Client, redis_url: str, model: PromptModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task over the rate waits, because its owner's other requests may have used up the rate."""
    monkeypatch.setattr("everloop.activities.scheduled_tasks.LONGEST_WAIT", timedelta(seconds=2))
    owner = unique("owner")
    async with office(client, redis_url, model, requests_per_minute=60, request_burst=2) as http:
        waited = [await _run(http, owner, "Hi.") for _ in range(3)]
        ended = [await _status(http, owner, task, COMPLETED, FAILED) for task in waited]
    async with office(client, redis_url, model, requests_per_minute=1, request_burst=1) as http:
        owner = unique("owner")
        tasks = [await _run(http, owner, "Hi.") for _ in range(2)]
        refused = [await _status(http, owner, task, COMPLETED, FAILED) for task in tasks]
    assert [status["state"] for status in ended] == [COMPLETED] * 3
    assert sorted(status["state"] for status in refused) == [COMPLETED, FAILED]
    (told,) = [status["message"] for status in refused if status["state"] == FAILED]
    assert "1 request a minute" in told["parts"][0]["text"]


async def test_schedules_that_are_made_at_once_are_counted(
    client: Client, redis_url: str, model: PromptModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal lists a schedule only after a while; a repeated or removed one takes no room."""
    monkeypatch.setattr(schedule_handlers, "MOST", 3)
    owner = unique("owner")
    async with office(client, redis_url, model) as http:

        async def make(name: str) -> int:
            body = {"id": name, "message": {"parts": [{"text": "Hi."}]}, "every": "1h"}
            return (await http.post(SCHEDULES, json=body, headers={"owner": owner})).status_code

        names = [unique("s") for _ in range(12)]
        made = await asyncio.gather(*map(make, names))
        kept = [name for name, status in zip(names, made, strict=True) if status == 201]
        again = [await make(name) for name in kept]
        removed = await http.delete(f"{SCHEDULES}/{kept[0]}", headers={"owner": owner})
        one_more = await make(unique("s"))
    assert Counter(made) == {201: 3, 409: 9}
    assert (again, removed.status_code, one_more) == ([201] * 3, 200, 201)


@pytest.mark.parametrize(
    ("when", "is_refused"),
    [
        ({"every": "59s"}, True),
        ({"every": "60s"}, False),
        ({"cron": "@every 1s"}, True),
        ({"cron": "@every 90s/1s"}, False),
        ({"cron": "*/5 * * * * * *"}, True),
        ({"cron": "30 0 9 * * 1-5 *"}, False),
        ({"cron": "* * * * *"}, False),
        ({"cron": "@hourly"}, False),
    ],
)
async def test_a_schedule_runs_once_a_minute_at_most(
    client: Client, redis_url: str, model: PromptModel, when: dict[str, str], *, is_refused: bool
) -> None:
    """In every notation, also as a change."""
    headers, message = {"owner": unique("owner")}, {"parts": [{"text": "Hi."}]}
    async with office(client, redis_url, model) as http:
        made = await http.post(SCHEDULES, json={"id": "a", "message": message, **when}, headers=headers)
        await http.post(SCHEDULES, json={"id": "b", "message": message, "every": "1h"}, headers=headers)
        changed = await http.patch(f"{SCHEDULES}/b", json=when, headers=headers)
        for name in ("a", "b"):
            await http.delete(f"{SCHEDULES}/{name}", headers=headers)
    assert (made.status_code, changed.status_code) == ((400, 400) if is_refused else (201, 200))
    if is_refused:
        assert "at most once a minute" in made.json()["error"]["message"]
