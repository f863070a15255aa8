"""A worker is frozen for longer than every timeout, and goes on: its late writes are refused."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState

from everloop.client import Client as EverloopClient
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Deployment, kept_by, running_deployment
from tests.support.servers.processes import until
from tests.support.servers.relay import Link, running_relay
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, ScriptedOpenAI, tool_call

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
    """No progress, no stored value, no artifact, no deletion of one, no event, no outcome, no result."""
    folder = tmp_path / "marks"
    folder.mkdir()
    model.script = [Reply([tool_call(tool, json.dumps({"folder": str(folder)}))]), Reply(["Done."])]
    gateway = await everloop.add_gateway()

    port = int(everloop.temporal_address.rpartition(":")[2])
    async with connected(gateway.url) as client, running_relay(Link(port)) as to_temporal:
        frozen = await everloop.add_worker(TEMPORAL_ADDRESS=to_temporal.address)
        answer = Answer()
        reading = asyncio.create_task(answer.read(client.send_message(request("Work."))))
        await until((folder / "begun").exists)
        os.kill(frozen.pid, signal.SIGSTOP)
        if tool == "work":
            to_temporal.cut()  # otherwise Temporal may hand it the next attempts, and wait for each
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


@pytest.mark.slow
async def test_what_thaws_when_its_task_is_deleted_brings_nothing_back(
    model: ScriptedOpenAI, everloop: Deployment, tmp_path: Path
) -> None:
    """Neither a tool's work nor a model's words: the deletion was reported as complete."""
    folder, more = tmp_path / "marks", asyncio.Event()
    folder.mkdir()

    def script(received: ReceivedRequest) -> Reply:
        if "Work." in str(received.messages[-1]):
            return Reply([tool_call("work", json.dumps({"folder": str(folder)}))])
        return Reply(["Half ", more, "an ", "answer."])

    model.script = script
    gateway = await everloop.add_gateway()
    port = int(everloop.temporal_address.rpartition(":")[2])
    async with (
        connected(gateway.url) as client,
        EverloopClient(gateway.url) as deleting,
        running_relay(Link(port)) as to_temporal,
    ):
        frozen = await everloop.add_worker(TEMPORAL_ADDRESS=to_temporal.address)
        works = await send(client, request("Work.", return_immediately=True))
        speaks = await send(client, request("Speak.", return_immediately=True))
        await until((folder / "begun").exists)
        while response_of(await client.get_task(GetTaskRequest(id=speaks.id))) != "Half ":
            pass
        os.kill(frozen.pid, signal.SIGSTOP)
        to_temporal.cut()
        await everloop.add_worker()
        for task in (works, speaks):
            deletion = await deleting.delete_task(task.id)
            while deletion.state == "running":
                await asyncio.sleep(0.2)
                deletion = await deleting.deletion(deletion.id)
            assert deletion.state == "done"
        before = await kept_by(everloop)
        (folder / "gate").touch()
        more.set()
        os.kill(frozen.pid, signal.SIGCONT)
        await until((folder / "ended").exists)
        await until(lambda: _count_logged(everloop, OVERTAKEN) == 2)
        after = await kept_by(everloop)

    assert after == before
    assert not [name for name in after if works.id in name or speaks.id in name]


def _count_logged(everloop: Deployment, words: str) -> int:
    return sum(words in str(line.get("event")) for line in everloop.logs())
