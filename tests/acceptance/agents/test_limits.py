"""Limits at which a task ends, also after the death of its worker."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, Task, TaskState
from google.protobuf.json_format import MessageToDict

from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.rigs.deployment import Service, running_service
from tests.support.servers.processes import until
from tests.support.servers.scripted_openai import Reply, Script, tool_call

MODELS = """
[models."openai/first"]
price = { input = 1.0, output = 0.0 }
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def limited(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    directory = tmp_path_factory.mktemp("limited")
    file = directory / "models.toml"
    file.write_text(MODELS)
    agents, variables = "tests.support.agents.limited:agent", {"EVERLOOP_MODELS_FILE": str(file)}
    async with running_service(directory, agents, **variables) as service:
        yield service


async def _run(service: Service, script: Script) -> Task:
    service.script(script)
    async with connected(service.gateway.url, streaming=False) as client:
        return await send(client, request("Go."))


def _note(usage: tuple[int, int] = (10, 5)) -> Reply:
    return Reply([tool_call("note", '{"text": "x"}')], usage=usage)


_DEAR = _note((600_000, 0))
"""A costly reply; two of them are over the limit."""


async def test_a_task_stops_at_its_cost(limited: Service) -> None:
    """The model does not answer when asked to; the status names the limit, and the cost is recorded."""
    task = await _run(limited, [_DEAR] * 5)

    assert task.status.state == TaskState.TASK_STATE_FAILED
    assert MessageToDict(task.status.message.metadata) == {"reason": "CostLimit"}
    assert "Limits(cost=...)" in task.status.message.parts[0].text
    usage = MessageToDict(task.metadata)["usage"]
    assert usage == {"inputTokens": 1_800_000, "outputTokens": 0, "cost": pytest.approx(1.8)}
    assert len(limited.model.requests) == 3


async def test_a_worker_killed_in_the_last_call(limited: Service) -> None:
    """Another worker repeats it once, without tools; the client has one whole answer."""
    limited.script([_DEAR, _DEAR, Reply(["Half of", asyncio.Event()]), Reply(["Half of it."])])

    async with connected(limited.gateway.url) as client:
        reading = asyncio.create_task((answer := Answer()).read(client.send_message(request("Go."))))
        await until(lambda: answer.text == "Half of")
        await limited.replace_worker()
        await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "Half of it."
    assert (answer.finals, task.status.state) == (1, TaskState.TASK_STATE_COMPLETED)
    assert MessageToDict(task.status.message.metadata) == {"reason": "CostLimit"}
    assert ["tools" in received.body for received in limited.model.requests] == [True, True, False, False]
