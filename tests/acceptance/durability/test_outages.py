"""Temporal is away for longer than the heartbeat timeout: running calls go on, and their ends arrive."""

import asyncio
import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client as TemporalClient

from tests.support.a2a_client import Answer, connected, request, response_of
from tests.support.rigs.deployment import Deployment
from tests.support.servers.processes import ServerProcess, temporal_answers, until, wait_until_answers
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, tool_call

OUTAGE = 15.0
LONG_OUTAGE = 60.0
"""Seconds of Temporal's outage; after 10 it counts every attempt as lost."""


async def _until_taken_up(everloop: Deployment, task_id: str) -> None:
    """Wait until a call's second attempt runs, or Temporal has a heartbeat of the first one.

    A Temporal that was frozen may accept a heartbeat before it sees that it came late.
    """
    back = datetime.now(UTC)
    client = await TemporalClient.connect(everloop.temporal_address)
    handle = client.get_workflow_handle(task_id)
    while True:
        pending = (await handle.describe()).raw_description.pending_activities
        started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        if not pending or any(each.attempt > 1 and each.state == started for each in pending):
            return
        if any(each.last_heartbeat_time.ToDatetime(UTC) > back for each in pending):
            return
        await asyncio.sleep(0.05)


def _take_away(temporal: ServerProcess, how: str) -> None:
    if how == "killed":
        temporal.kill()
    else:
        os.kill(temporal.pid, signal.SIGSTOP)


async def _bring_back(everloop: Deployment, how: str) -> None:
    if how == "killed":
        everloop.temporal.start()
    else:
        os.kill(everloop.temporal.pid, signal.SIGCONT)
    address = everloop.temporal_address
    await wait_until_answers(everloop.temporal, lambda: temporal_answers(address), "temporal")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("how", "seconds", "ends"),
    [
        ("killed", OUTAGE, "after"),
        pytest.param("frozen", OUTAGE, "during", marks=pytest.mark.slow),
        pytest.param("killed", LONG_OUTAGE, "during", marks=pytest.mark.slow),
        pytest.param("frozen", LONG_OUTAGE, "after", marks=pytest.mark.slow),
    ],
)
async def test_a_tool_that_runs_while_temporal_is_away(  # noqa: PLR0913, PLR0917 -- fixtures and cases
    model: ScriptedOpenAI, everloop: Deployment, ledger: Path, how: str, seconds: float, ends: str
) -> None:
    """It is not idempotent: it takes effect once, and the model reads its result."""
    gate = ledger.with_name("gate")
    arguments = json.dumps({"ledger": str(ledger), "gate": str(gate)})
    model.script = [Reply([tool_call("write_slowly", arguments)]), Reply(["Done."])]
    await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(gateway.url) as client:
        answer = Answer()
        reading = asyncio.create_task(answer.read(client.send_message(request("Write."))))
        await until(lambda: ledger.is_file() and ledger.stat().st_size)
        _take_away(everloop.temporal, how)
        await asyncio.sleep(seconds / 2)
        if ends == "during":
            gate.touch()
        await asyncio.sleep(seconds / 2)
        await _bring_back(everloop, how)
        if ends == "after":
            await _until_taken_up(everloop, answer.task_id)
            gate.touch()
        await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "Done."
    assert answer.states[-1] == task.status.state == TaskState.TASK_STATE_COMPLETED
    assert len(ledger.read_text().splitlines()) == 1
    (result,) = model.requests[1].tool_results
    assert result == "written"


async def test_a_model_that_writes_while_temporal_is_away(
    model: ScriptedOpenAI, everloop: Deployment
) -> None:
    """It is called once, and the client reads its text, once."""
    rest = asyncio.Event()
    model.script = [Reply(["All ", rest, "of it."])]
    await everloop.add_worker()
    gateway = await everloop.add_gateway()

    async with connected(gateway.url) as client:
        answer = Answer()
        reading = asyncio.create_task(answer.read(client.send_message(request("Write."))))
        await until(lambda: "All " in answer.text)
        _take_away(everloop.temporal, "frozen")
        await asyncio.sleep(OUTAGE / 2)
        rest.set()
        await asyncio.sleep(OUTAGE / 2)
        await _bring_back(everloop, "frozen")
        await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "All of it."
    assert answer.finals == 1
    assert len(model.requests) == 1
