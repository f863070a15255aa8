"""Metrics of running processes: the exact ones are right, and all of the dashboard exist."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.client import Client
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskPushNotificationConfig

from everloop.gateway.context import ANONYMOUS
from everloop.local.servers import LOOPBACK, free_port
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from everloop.stores.keys import head_key, log_key, snapshot_key
from tests.support.a2a_client import Answer, connected, request, response_of
from tests.support.deploy.prometheus import APPEAR_LATER, ROOT, Scrape, named_metrics, scrape
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.servers.scripted_openai import Refusal, Reply, ScriptedOpenAI, tool_call
from tests.support.servers.webhook import Webhook, running_webhook

CALLS = [tool_call("repeat", '{"text": "x", "times": 2}'), tool_call("made_up", index=1)]
SCRIPT = [
    Refusal(429, headers={"retry-after-ms": "1"}),
    Reply(CALLS, usage=(30, 7)),
    Reply(["Half an ans", asyncio.Event()]),
    Reply(["A whole answer."], usage=(40, 5)),
]
MODELS = '[models."openai/scripted"]\nprice = { input = 1000, output = 100000 }'
ITERATION = "everloop_iteration_duration_seconds"
STATUS, DELIVERIES = "everloop_tasks_status_total", "everloop_push_deliveries_total"
MODEL_LABELS = {"gen_ai_agent_id", "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"}


@dataclass(frozen=True)
class Watched:
    """A task whose first worker was killed, and the metrics of each process.

    The gateway also before the kill.
    """

    task: Task
    notified: int
    killed: Scrape
    worker: Scrape
    gateway_before: Scrape
    gateway: Scrape

    @property
    def workers(self) -> Scrape:
        return Scrape(self.killed.samples + self.worker.samples)

    @property
    def all(self) -> Scrape:
        return Scrape(self.workers.samples + self.gateway.samples)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A streamed task with tools and a webhook; its view is lost and rebuilt at the end.

    The second worker keeps no task in memory, so that it replays the task at each step.
    """
    directory = tmp_path_factory.mktemp("watched")
    file = directory / "models.toml"
    file.write_text(MODELS)
    settings = {"EVERLOOP_PUSH_ALLOW": "127.0.0.0/8", "EVERLOOP_MODELS_FILE": str(file)}
    async with (
        ScriptedOpenAI(SCRIPT) as model,
        running_webhook() as hook,
        running_deployment(directory, model.base_url, **settings) as everloop,
    ):
        return await _watch(everloop, hook)


async def _watch(everloop: Deployment, hook: Webhook) -> Watched:
    ports = [_next_port(everloop)]
    worker = await everloop.add_worker()
    ports.append(_next_port(everloop))
    gateway = await everloop.add_gateway()
    async with connected(gateway.url) as client:
        answer, half = Answer(), asyncio.Event()
        reading = asyncio.create_task(_read(client, hook, answer, half))
        await half.wait()
        await hook.until_delivered("TASK_STATE_WORKING")
        killed, told = await _until_counted(ports[0], len(hook.taken)), len(hook.taken)
        before = await scrape(ports[1])
        worker.kill()
        ports.append(_next_port(everloop))
        everloop.environment["EVERLOOP_MAX_CACHED_WORKFLOWS"] = "0"
        await everloop.add_worker()
        await reading
        await hook.until_delivered("TASK_STATE_COMPLETED")
        await _lose_view(everloop.redis_url, answer.task_id)
        task = await client.get_task(GetTaskRequest(id=answer.task_id))
    after = await _until(ports[1], lambda it: {"everloop_tasks_open"} <= it.names and not _subscribers(it))
    # A rebuilt view notifies its webhooks once more, at some later time.
    counted = await _until(
        ports[2], lambda it: it.sum(DELIVERIES, outcome="delivered") == len(hook.taken) - told
    )
    return Watched(task, len(hook.taken), killed, counted, before, after)


def _next_port(everloop: Deployment) -> int:
    """Choose where the next process serves its metrics."""
    port = free_port()
    everloop.environment["EVERLOOP_METRICS_ADDRESS"] = f"{LOOPBACK}:{port}"
    return port


async def _read(client: Client, hook: Webhook, answer: Answer, half: asyncio.Event) -> None:
    message = request("Go.")
    config = TaskPushNotificationConfig(url=hook.url)
    message.configuration.task_push_notification_config.CopyFrom(config)
    async for response in client.send_message(message):
        answer.add(response)
        if "Half an ans" in answer.text:
            half.set()


async def _lose_view(redis_url: str, task_id: str) -> None:
    async with connect_redis(redis_url, NO_CIPHER) as redis:
        await redis.delete(head_key(task_id), snapshot_key(task_id), log_key(task_id))


async def _until(port: int, is_so: Callable[[Scrape], bool]) -> Scrape:
    """Return the metrics of a process once a condition is true."""
    while not is_so(scraped := await scrape(port)):  # noqa: ASYNC110 -- another process tells
        await asyncio.sleep(0.05)
    return scraped


async def _until_counted(port: int, delivered: int) -> Scrape:
    """Return the metrics of a worker once it has counted the webhook's notifications."""
    return await _until(port, lambda it: it.sum(DELIVERIES, outcome="delivered") >= delivered)


def _subscribers(scraped: Scrape) -> float:
    return scraped.sum("everloop_subscribers")


async def test_a_status_counts_once_although_a_worker_was_killed(watched: Watched) -> None:
    """The second worker publishes the statuses of the first one again without counting them."""
    states = ("working", "completed", "failed", "canceled", "rejected", "input-required")

    assert response_of(watched.task) == "A whole answer."
    assert watched.killed.sum(STATUS, state="working") == 1
    assert [watched.workers.sum(STATUS, state=state) for state in states] == [1, 1, 0, 0, 0, 0]
    assert watched.workers.sum(STATUS, agent="acceptance") == 2
    assert watched.gateway.sum("everloop_tasks_started_total", agent="acceptance") == 1


async def test_model_calls_tokens_and_cost_are_right(watched: Watched) -> None:
    """A refused call counts under its status, one that died with its worker only by its first chunk."""
    counts = "gen_ai_client_operation_duration_seconds_count"

    assert watched.workers.sum(counts, error_type="429") == 1
    assert watched.workers.sum(counts) == 3
    assert watched.workers.sum("gen_ai_client_operation_time_to_first_chunk_seconds_count") == 3
    assert watched.workers.sum("gen_ai_client_token_usage_sum", gen_ai_token_type="input") == 70
    assert watched.workers.sum("gen_ai_client_token_usage_sum", gen_ai_token_type="output") == 12
    assert watched.workers.sum("everloop_model_cost_total") == pytest.approx(0.07 + 1.2)


async def test_an_iteration_counts_where_it_ended_and_replays_add_nothing(watched: Watched) -> None:
    """The task has two; the worker that ended the second one has replayed both again and again."""
    for process in (watched.killed, watched.worker):
        assert process.sum(f"{ITERATION}_count", agent="acceptance") == 1
        assert process.sum(f"{ITERATION}_count") == 1
        assert process.sum(f"{ITERATION}_sum") > 0


async def test_tools_streams_and_notifications_are_counted(watched: Watched) -> None:
    """With their results; a tool name that the model made up is not a label."""
    calls = watched.workers

    assert calls.sum("everloop_tool_calls_total", tool="repeat", outcome="ok") == 1
    assert calls.sum("everloop_tool_calls_total", tool="unknown", outcome="invalid") == 1
    assert calls.sum("everloop_tool_calls_total") == 2
    assert calls.sum("everloop_tool_duration_seconds_count", tool="repeat") == 1
    assert calls.sum(DELIVERIES, outcome="delivered") == watched.notified >= 2
    assert calls.sum(DELIVERIES) == watched.notified
    assert (_subscribers(watched.gateway_before), _subscribers(watched.gateway)) == (1, 0)
    assert watched.gateway_before.sum("everloop_stream_lag_seconds_count") > 0
    assert watched.gateway.sum("everloop_views_rebuilt_total") == 1
    assert watched.gateway.sum("everloop_server_reachable") == 2


async def test_the_temporal_sdk_s_metrics_are_there_with_our_buckets(watched: Watched) -> None:
    """In seconds, with buckets beyond the 10 s at which the SDK's own end."""
    latency = "temporal_activity_schedule_to_start_latency_seconds_bucket"

    assert watched.worker.sum(latency, le="1800") > 0
    assert watched.gateway.sum("temporal_request_total", operation="StartWorkflowExecution") >= 1


async def test_everything_that_the_dashboard_the_alerts_and_the_guides_read_exists(watched: Watched) -> None:
    """Under exactly these names, in the metrics of this test's processes."""
    assert named_metrics() - watched.all.names <= APPEAR_LATER


async def test_every_metric_has_the_labels_of_the_documentation(watched: Watched) -> None:
    """Every metric of ours has exactly the documented labels."""
    found: dict[str, set[str]] = {}
    for name, labels, _ in watched.all.samples:
        if name.startswith(("everloop_", "gen_ai_")):
            family = re.sub(r"_(?:bucket|count|sum)$", "", name)
            found.setdefault(family, set()).update(labels.keys() - {"le"})

    documented = _documented_labels()
    assert {name: documented[name] for name in found} == found


async def test_no_label_says_whose_task_it_is(watched: Watched) -> None:
    """Neither owners nor contexts nor tasks: their number is unbounded, and they are private."""
    values = {value for _, labels, _ in watched.all.samples for value in labels.values()}

    assert not values & {watched.task.id, watched.task.context_id, ANONYMOUS}


def _documented_labels() -> dict[str, set[str]]:
    rows = re.findall(
        r"^\| `(?:everloop|gen_ai)[^|]*\| `(\w+)` \|[^|]*\|([^|]*)\|",
        Path(ROOT / "docs/operation/metrics.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {
        name: {label.replace(".", "_") for label in re.findall(r"`([\w.]+)`", labels)}
        | (MODEL_LABELS if name.startswith("gen_ai_") else set())
        for name, labels in rows
    }
