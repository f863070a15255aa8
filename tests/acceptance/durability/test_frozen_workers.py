"""A worker is frozen for longer than every timeout, and goes on: what it does then is written nowhere."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState

from tests.chaos.link import running_link
from tests.support.a2a_client import Answer, connected, request, response_of
from tests.support.rigs.deployment import Deployment, kept_by, running_deployment
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, tool_call

AGENT = "tests.support.agents.frozen:agent"

OVERTAKEN = "another attempt has taken this call over"


@pytest_asyncio.fixture
async def everloop(tmp_path: Path, model: ScriptedOpenAI) -> AsyncGenerator[Deployment]:
    async with running_deployment(tmp_path, model.base_url, agents=AGENT) as running:
        yield running


@pytest.mark.parametrize("tool", ["work", pytest.param("work_quickly", marks=pytest.mark.slow)])
async def test_a_tool_that_thaws_writes_nothing(
    model: ScriptedOpenAI, everloop: Deployment, tmp_path: Path, tool: str
) -> None:
    """No progress, no value that it keeps, no artifact, none deleted, no event, no outcome, no result."""
    folder = tmp_path / "marks"
    folder.mkdir()
    model.script = [Reply([tool_call(tool, json.dumps({"folder": str(folder)}))]), Reply(["Done."])]
    gateway = await everloop.add_gateway()

    port = int(everloop.temporal_address.rpartition(":")[2])
    async with connected(gateway.url) as client, running_link(port) as to_temporal:
        frozen = await everloop.add_worker(TEMPORAL_ADDRESS=to_temporal.address)
        answer = Answer()
        reading = asyncio.create_task(answer.read(client.send_message(request("Work."))))
        await until((folder / "begun").exists)
        os.kill(frozen.pid, signal.SIGSTOP)
        if tool == "work":
            to_temporal.cut()  # else Temporal may hand it the next attempts, and wait for each
        await everloop.add_worker()
        await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))
        before = await kept_by(everloop)
        (folder / "gate").touch()
        os.kill(frozen.pid, signal.SIGCONT)
        await until((folder / "ended").exists)
        await everloop.until_logged(OVERTAKEN)
        after = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert response_of(task) == "Done."
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    (result,) = model.requests[1].tool_results
    assert int(result.removeprefix("by ")) > 1
    assert {name for name, kept in (await kept_by(everloop)).items() if before.get(name) != kept} == set()
    assert after == task
    assert len((folder / "refused").read_text().splitlines()) == 7
