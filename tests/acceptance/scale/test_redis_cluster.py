"""Whole tasks on a cluster of three primaries and three replicas, while primaries die and slots move."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, TaskState

from everloop.stores.keys import log_key
from tests.support.a2a_client import Answer, connected, request, response_of
from tests.support.rigs.deployment import ACCEPTANCE_AGENT, Deployment, Service, running_service
from tests.support.servers.processes import until
from tests.support.servers.redis_cluster import RedisCluster, running_cluster_as_server
from tests.support.servers.scripted_openai import Reply, tool_call

TASKS = 8
REPEAT = json.dumps({"text": "ab", "times": 2})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    directory = tmp_path_factory.mktemp("cluster")
    async with running_service(directory, ACCEPTANCE_AGENT, running_cluster_as_server) as running:
        yield running


@pytest.fixture
def service(_service: Service) -> Service:
    _service.script(())
    return _service


def cluster_of(everloop: Deployment) -> RedisCluster:
    assert isinstance(everloop.valkey, RedisCluster)
    return everloop.valkey


async def test_tasks_on_all_primaries_run_and_are_listed(service: Service) -> None:
    """Each streams its answer; its owner gets all of them in one list."""
    service.script(
        lambda received: (
            Reply(["The ", "answer."]) if received.tool_results else Reply([tool_call("repeat", REPEAT)])
        )
    )
    async with connected(service.gateway.url) as client:
        answers = await asyncio.gather(
            *(Answer().read(client.send_message(request(f"Task {number}."))) for number in range(TASKS))
        )
        listed = (await client.list_tasks(ListTasksRequest(page_size=50))).tasks
        tasks = [await client.get_task(GetTaskRequest(id=answer.task_id)) for answer in answers]

    assert (
        [answer.text for answer in answers]
        == [response_of(task) for task in tasks]
        == ["The answer."] * TASKS
    )
    assert {task.status.state for task in tasks} == {TaskState.TASK_STATE_COMPLETED}
    assert {answer.task_id for answer in answers} <= {task.id for task in listed}
    primaries = {(await cluster_of(service.everloop).primary_of(log_key(a.task_id))).port for a in answers}
    assert len(primaries) > 1


@pytest.mark.parametrize("what", ["its primary is killed", "its slot moves"])
async def test_a_task_goes_on_while_redis_changes(service: Service, ledger: Path, what: str) -> None:
    """In the middle of a tool and of an answer: the tool acts once, the client reads all of it once."""
    cluster, gate, rest = cluster_of(service.everloop), ledger.with_name("gate"), asyncio.Event()
    arguments = json.dumps({"ledger": str(ledger), "gate": str(gate)})
    service.model.script = [
        Reply([tool_call("write_slowly", arguments)]),
        Reply(["All ", rest, "of it."]),
    ]

    async with connected(service.gateway.url) as client:
        answer = Answer()
        reading = asyncio.create_task(answer.read(client.send_message(request("Write."))))
        await until(lambda: ledger.is_file() and ledger.stat().st_size)
        for go_on in (gate.touch, rest.set):
            key = log_key(answer.task_id)
            if what == "its slot moves":
                await cluster.move_slot(key)
            else:
                killed = await cluster.primary_of(key)
                await cluster.kill_primary(killed)
                await cluster.start_again(killed)
            go_on()
            if go_on == gate.touch:
                await until(lambda: "All " in answer.text)
        await reading
        task = await client.get_task(GetTaskRequest(id=answer.task_id))

    assert answer.text == response_of(task) == "All of it."
    assert answer.finals == 1
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert len(ledger.read_text().splitlines()) == 1
