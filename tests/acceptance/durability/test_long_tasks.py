"""Long and large tasks: in several runs, and with payloads over the limit of a history."""

import shutil
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest
from google.protobuf.json_format import MessageToDict
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.servers.scripted_openai import Reply, ScriptedOpenAI, tool_call

SHORT_HISTORIES = ("limit.historyCount.suggestContinueAsNew=200",)
"""Temporal asks for a new run after so many events, not after 4,096."""

RESULT = 20_000
LARGE = 900_000


def _call(number: int, size: int) -> Reply:
    return Reply([tool_call("repeat", f'{{"text": "x", "times": {size}}}')])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("iterations", "settings"),
    [(40, SHORT_HISTORIES), pytest.param(300, (), marks=pytest.mark.slow)],
    ids=["shorter histories", "Temporal as it is"],
)
async def test_a_long_task_goes_on_in_a_new_run(
    model: ScriptedOpenAI, tmp_path: Path, iterations: int, settings: tuple[str, ...]
) -> None:
    """At the limit of its history; neither model nor client notices."""
    model.script = [*(_call(n, RESULT) for n in range(iterations)), Reply(["All ", "done."])]
    async with running_deployment(tmp_path, model.base_url, temporal_settings=settings) as everloop:
        await everloop.add_worker()
        gateway = await everloop.add_gateway()
        async with connected(gateway.url) as client:
            answer = await Answer().read(client.send_message(request("Work long.")))
            task = await client.get_task(GetTaskRequest(id=answer.task_id))
        runs = await _runs(everloop, task.id)

    assert response_of(task) == answer.text == "All done."
    assert answer.finals == 1
    last = model.requests[-1]
    assert len(model.requests) == iterations + 1
    assert len(last.tool_results) == iterations
    assert {len(result) for result in last.tool_results} == {RESULT}
    usage = MessageToDict(task.metadata)["usage"]
    assert usage["inputTokens"] == 10 * (iterations + 1)
    assert len(runs) > 1


async def _runs(everloop: Deployment, task_id: str) -> list[str]:
    client = await Client.connect(everloop.temporal_address)
    return [run.run_id async for run in client.list_workflows(f"WorkflowId = '{task_id}'")]


async def test_a_lost_blob_ends_the_task_with_its_name(model: ScriptedOpenAI, everloop: Deployment) -> None:
    """The task ends at once: the client reads the missing key."""
    model.script = [Reply(["Never asked."])]
    gateway = await everloop.add_gateway()

    async with connected(gateway.url, streaming=False) as client:
        submitted = await send(client, request("y" * LARGE, return_immediately=True))
        blobs = Path(everloop.environment["EVERLOOP_BLOB_DIRECTORY"])
        (key,) = [path.name for path in blobs.rglob("*") if path.is_file() and path.stat().st_size > LARGE]
        shutil.rmtree(blobs / "payloads")
        await everloop.add_worker()
        temporal = await Client.connect(everloop.temporal_address, data_converter=WIRE_DATA_CONVERTER)
        handle = temporal.get_workflow_handle_for(AgentTask.run, submitted.id)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()

    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == failures.BLOB_MISSING
    assert key in failed.value.cause.message
    assert len(model.requests) == 0
