"""Each kind of work scales alone; workers drain; several processes are one worker."""

import asyncio
from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import psutil
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState
from temporalio.client import Client

from tests.support.a2a_client import Answer, connected, request, response_of
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.servers.processes import ServerProcess
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, tool_call

SCALED = "tests.support.agents.scaled:agents"
ONLY_SPLIT = "takes calls only of tasks begun with EVERLOOP_SPLIT_QUEUES=true"


async def _who_ran_what(everloop: Deployment, task_id: str) -> dict[str, set[int]]:
    """Return activity type → process ids of the workers that ran it; a worker is called PID@HOST."""
    temporal = await Client.connect(everloop.temporal_address)
    task = temporal.get_workflow_handle(task_id)
    await task.result()  # its client is answered before it is over
    kinds, ran = dict[int, str](), defaultdict[str, set[int]](set)
    async for event in task.fetch_history_events():
        if event.HasField("activity_task_scheduled_event_attributes"):
            kinds[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        if event.HasField("activity_task_started_event_attributes"):
            started = event.activity_task_started_event_attributes
            ran[kinds[started.scheduled_event_id]].add(int(started.identity.partition("@")[0]))
    return dict(ran)


async def test_each_kind_of_work_has_workers_of_its_own(tmp_path: Path) -> None:
    """Models, tools, and activities with a queue by name run where that is served, and nowhere else."""
    gpu = f"gpu-{uuid4()}"
    calls = [
        tool_call("add", '{"a": 1, "b": 2}'),
        tool_call("paint", '{"text": "a cat"}', index=1),
        tool_call("event_loop", "{}", index=2),
    ]
    async with (
        ScriptedOpenAI([Reply(calls), Reply(["Done."]), Reply(["Apart."])]) as model,
        running_deployment(
            tmp_path, model.base_url, agents=SCALED, SCALED_QUEUE=gpu, EVERLOOP_SPLIT_QUEUES="true"
        ) as everloop,
    ):
        workers = {
            name: await everloop.add_worker("--queues", name)
            for name in ("workflows,push,narrator", "model", "tools", gpu)
        }
        gateway = await everloop.add_gateway()
        async with connected(gateway.url) as client:
            answer = await Answer().read(client.send_message(request("Paint.")))
            task = await client.get_task(GetTaskRequest(id=answer.task_id))
        async with connected(f"{gateway.url}/agents/apart") as client:
            other = await Answer().read(client.send_message(request("Think.")))
        ran = await _who_ran_what(everloop, answer.task_id)
        apart = await _who_ran_what(everloop, other.task_id)
        said = [line["queues"] for line in everloop.logs() if line.get("event") == ONLY_SPLIT]

    assert response_of(task) == "Done."
    assert sorted(model.requests[1].tool_results) == ["3", "painted a cat", "uvloop"]
    assert ran["call_model"] == {workers["model"].pid}
    assert ran["run_tool"] == {workers["tools"].pid, workers[gpu].pid}
    assert ran["publish"] == {workers["workflows,push,narrator"].pid}
    assert apart["call_model"] == {workers[gpu].pid}
    assert said == [["model"], ["tools"]]


async def test_a_worker_that_is_asked_to_end_lets_the_model_finish(tmp_path: Path) -> None:
    """A stream of the model is neither cut nor requested twice."""
    go_on = asyncio.Event()
    async with (
        ScriptedOpenAI([Reply(["Half an ans", go_on, "wer."])]) as model,
        running_deployment(tmp_path, model.base_url, EVERLOOP_SHUTDOWN_GRACE="60") as everloop,
    ):
        worker = await everloop.add_worker()
        gateway = await everloop.add_gateway()
        async with connected(gateway.url) as client:
            answer = Answer()
            reading = asyncio.create_task(answer.read(client.send_message(request("Answer me."))))
            await model.request(1)
            ending = asyncio.create_task(asyncio.to_thread(worker.stop))
            await everloop.until_logged("worker stops")
            other = await everloop.add_worker()
            go_on.set()
            await reading
            code = await ending
            task = await client.get_task(GetTaskRequest(id=answer.task_id))
        ran = await _who_ran_what(everloop, answer.task_id)

    assert code == 0
    assert answer.text == response_of(task) == "Half an answer."
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert len(model.requests) == 1
    assert ran["call_model"] == {worker.pid}
    assert ran["publish"] == {other.pid}


def _children(worker: ServerProcess) -> set[int]:
    return {child.pid for child in psutil.Process(worker.pid).children()}


async def test_several_processes_are_one_worker(tmp_path: Path) -> None:
    """A killed one is replaced, and its task goes on; all end with the first."""
    async with (
        ScriptedOpenAI([Reply(["Half an ans", asyncio.Event()]), Reply(["A whole answer."])]) as model,
        running_deployment(tmp_path, model.base_url, EVERLOOP_TARGET_CPU="0.9") as everloop,
    ):
        worker = await everloop.add_worker("--processes", "2")
        gateway = await everloop.add_gateway()
        first = _children(worker)
        async with connected(gateway.url) as client:
            answer = Answer()
            reading = asyncio.create_task(answer.read(client.send_message(request("Answer me."))))
            await model.request(1)
            for pid in first:
                psutil.Process(pid).kill()
            await reading
        second = _children(worker)
        code = await asyncio.to_thread(worker.stop)

    assert len(first) == len(second) == 2
    assert not first & second
    assert answer.text == "A whole answer."
    assert code == 0
    assert not [pid for pid in second if psutil.pid_exists(pid)]
