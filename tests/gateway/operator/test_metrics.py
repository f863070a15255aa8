"""What a gateway counts and measures."""

import asyncio
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from temporalio.client import Client

from everloop.deploy.local.servers import LOOPBACK
from everloop.gateway.operator.health import Gauges
from everloop.gateway.tasks.fanout import EventFanout
from everloop.gateway.tasks.tasks import Tasks
from everloop.runtime.redis import cancel, connect_redis
from everloop.stores.views.interface import START
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.events import Thought
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import AgentSpec, TaskInput
from tests.gateway.harness import unique
from tests.support.recorded_metrics import Recorded
from tests.support.servers.processes import ROOT

REACHABLE = "everloop.server.reachable"
OPEN, LAG, SUBSCRIBERS = "everloop.tasks.open", "everloop.stream.lag", "everloop.subscribers"
"""Names of metrics."""


async def test_the_lag_of_each_event_is_measured_once(redis_url: str) -> None:
    """However many subscribers there are; what was written before anybody listened was not late."""
    async with connect_redis(redis_url) as redis:
        views, task_id, recorded = RedisTaskViews(redis), unique("lag"), Recorded()
        fanout = EventFanout(views)
        await views.publish(task_id, "run", [Thought(iteration=1, text="old")])
        await asyncio.sleep(0.002)  # positions have milliseconds
        async with fanout.subscribe(task_id, START) as first, fanout.subscribe(task_id, START) as second:
            assert recorded.gauge(SUBSCRIBERS) == {(): 2}
            reading = asyncio.create_task(fanout.run())
            await asyncio.sleep(0.002)
            await views.publish(task_id, "run", [Thought(iteration=1, text="new")])
            for subscription in (first, second):
                assert [await anext(subscription), await anext(subscription)]
            await cancel(reading)
    assert recorded.counts(LAG) == {(): 1}
    assert 0 <= recorded.sums(LAG).get((), 0) < 60
    assert recorded.gauge(SUBSCRIBERS) == {(): 0}


async def test_open_tasks_are_counted_by_agent_and_state(client: Client) -> None:
    """As visibility has them; an agent's id is no query, and tasks that ended or are others' do not count."""
    agent_id, recorded = f"{unique('it')}'s mine", Recorded()
    tasks, task_ids = Tasks(client, unique("nobody")), [unique("open") for _ in range(3)]
    for task_id in task_ids:
        await tasks.start(task_id, _task(agent_id), summary="open")
    await client.get_workflow_handle(task_ids[0]).terminate()
    asking = Gauges(client, [agent_id, "idle"], {})
    await asking.round()
    while recorded.gauge(OPEN)[agent_id, "submitted"] != 2:
        await asking.round()
    ours = {labels: n for labels, n in recorded.gauge(OPEN).items() if labels[0] in {agent_id, "idle"}}
    assert sum(ours.values()) == 2
    assert len(ours) == 8
    for task_id in task_ids[1:]:
        await client.get_workflow_handle(task_id).terminate()


async def test_each_server_is_looked_at(client: Client) -> None:
    """One that fails is not reachable; when it is back, it is."""
    recorded, failures = Recorded(), [OSError("away")]

    async def redis() -> None:
        if failures:
            raise failures.pop()

    async def temporal() -> None:
        pass

    asking = Gauges(client, [], {"temporal": temporal, "redis": redis})
    await asking.round()
    before = recorded.gauge(REACHABLE)
    await asking.round()
    assert before == {("temporal",): 1, ("redis",): 0}
    assert recorded.gauge(REACHABLE) == {("temporal",): 1, ("redis",): 1}


def test_an_address_that_is_taken_ends_a_worker_too(tmp_path: Path) -> None:
    """At once, with one line that says what to do; a gateway is tested among its processes."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        address = f"{LOOPBACK}:{listener.getsockname()[1]}"
        variables = {"EVERLOOP_METRICS_ADDRESS": address, "OPENAI_API_KEY": "k"}
        ran = subprocess.run(
            [sys.executable, "worker.py"],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            check=False,
        )
    assert ran.returncode == 1
    assert (ran.stdout + ran.stderr).decode() == (
        f"worker: cannot listen on {address} for metrics: Address already in use; stop what listens there, "
        "or set EVERLOOP_METRICS_ADDRESS to another host:port\n"
    )


def _task(agent_id: str) -> TaskInput:
    return TaskInput(
        context_id="context",
        owner="owner",
        agent=AgentSpec(id=agent_id),
        message=UserMessage(message_id="m", parts=(TextPart(text="hi"),)),
        created_at=datetime.now(UTC),
    )
