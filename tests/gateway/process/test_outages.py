"""Outages of servers: calls that still work, and errors for clients."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState
from temporalio.client import Client

from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.gateway.harness import (
    PromptModel,
    RunningGateway,
    running_gateway,
    scripted_worker,
    stand_in_worker,
    unique,
)
from tests.support.a2a_client import Answer, connected, request, send
from tests.support.servers.processes import ServerProcess, running_temporal, running_valkey


@dataclass(frozen=True)
class Site:
    """A gateway and a worker with servers of their own, which a test may stop."""

    gateway: RunningGateway
    model: PromptModel
    temporal: ServerProcess
    valkey: ServerProcess


@pytest_asyncio.fixture
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with (
        running_temporal(tmp_path_factory.mktemp("temporal")) as (temporal, address),
        running_valkey(tmp_path_factory.mktemp("valkey")) as (valkey, url),
        connect_redis(url) as redis,
    ):
        client = await Client.connect(address, data_converter=WIRE_DATA_CONVERTER)
        views, queue = TaskViews(redis), unique("outage")
        async with (
            scripted_worker(client, views, queue) as model,
            running_gateway(client, views, queue=queue) as gateway,
        ):
            yield Site(gateway, model, temporal, valkey)
            for server in (temporal, valkey):
                if not server.is_running():
                    server.start()


def message(text: str, task_id: str = "") -> dict[str, object]:
    return {
        "message": {
            "messageId": unique("m"),
            "role": "ROLE_USER",
            "taskId": task_id,
            "parts": [{"text": text}],
        },
        "configuration": {"returnImmediately": True},
    }


def check_unavailable(response: httpx.Response, words: str) -> None:
    """Assert 503, a retry time, and a JSON-RPC error that names the server and says that nothing is lost."""
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    error = response.json()["error"]
    assert error["code"] == -32603
    assert words in error["message"]
    assert "send the same request again" in error["message"].lower()
    for secret in ("Traceback", ".py", "127.0.0.1", "tcp"):
        assert secret not in response.text


async def test_without_temporal_tasks_can_be_read_but_not_changed(site: Site) -> None:
    """GetTask and ListTasks answer from the store; what needs Temporal is 503 until it is back."""
    gateway = site.gateway
    async with connected(gateway.url, streaming=False) as a2a:
        prompt, gate = unique("open"), asyncio.Event()
        site.model.scripts[prompt] = [gate]
        task = await send(a2a, request(prompt, return_immediately=True))
        site.temporal.kill()
        follow_up, *refused = await asyncio.gather(
            gateway.call("SendMessage", message("more", task.id)),
            gateway.call("SendMessage", message("new")),
            gateway.call("SendStreamingMessage", message("new")),
            gateway.call("CancelTask", {"id": task.id}),
            gateway.call("GetTask", {"id": "unknown"}),
        )
        ready = await gateway.http.get("/readyz")
        read = await a2a.get_task(GetTaskRequest(id=task.id))
        listed = (await gateway.call("ListTasks", {})).json()["result"]["tasks"]
        site.temporal.start()
        gate.set()
        done = await _until_taken(a2a_url=gateway.url, text=unique("back"))
    check_unavailable(follow_up, "")  # it cannot tell whether Temporal or the worker is away
    for response in refused:
        check_unavailable(response, "Temporal does not answer")
    assert ready.status_code == 503
    assert ready.json()["checks"]["redis"] == "ok"
    assert ready.json()["checks"]["temporal"] != "ok"
    assert read.id == task.id
    assert [shown["id"] for shown in listed] == [task.id]
    assert done == TaskState.TASK_STATE_COMPLETED


async def _until_taken(a2a_url: str, text: str) -> int:
    """Send the same message until the gateway takes it, as a client would, and return the final state."""
    params = message(text)
    async with httpx.AsyncClient(base_url=a2a_url, headers={"A2A-Version": "1.0"}, timeout=60) as http:
        while True:
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
            response = await http.post("/", json=body)
            if response.status_code == 200:
                break
    async with connected(a2a_url, streaming=False) as a2a:
        task_id = response.json()["result"]["task"]["id"]
        while True:
            task = await a2a.get_task(GetTaskRequest(id=task_id))
            if task.status.state not in {TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING}:
                return task.status.state


async def test_without_redis_nothing_hangs(site: Site) -> None:
    """Every request is 503 at once; open streams wait and go on when Redis is back."""
    gateway = site.gateway
    prompt, gate = unique("open"), asyncio.Event()
    site.model.scripts[prompt] = ["half ", gate, "whole"]
    follower = Answer()
    async with connected(gateway.url) as a2a:
        stream = a2a.send_message(request(prompt))
        while follower.text != "half ":
            follower.add(await anext(stream))
        site.valkey.kill()
        refused = [
            await gateway.call("SendMessage", message("new")),
            await gateway.call("GetTask", {"id": follower.task_id}),
            await gateway.call("ListTasks", {}),
            await gateway.call("CancelTask", {"id": follower.task_id}),
            await gateway.call("SubscribeToTask", {"id": follower.task_id}),
        ]
        ready = await gateway.http.get("/readyz")
        alive = await gateway.http.get("/healthz")
        site.valkey.start()
        gate.set()
        await follower.read(stream)
    for response in refused:
        check_unavailable(response, "The task store does not answer")
    assert (ready.status_code, alive.status_code) == (503, 200)
    assert ready.json()["checks"]["temporal"] == "ok"
    assert ready.json()["checks"]["redis"] != "ok"
    assert follower.text == "half whole"
    assert follower.states[-1] == TaskState.TASK_STATE_COMPLETED


async def test_a_message_that_no_worker_takes_can_be_sent_again(client: Client, views: TaskViews) -> None:
    """Without a worker a follow-up is 503; sent again to a worker that is back, it is taken in once."""
    queue = unique("nobody")
    async with (
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(unique("first"), return_immediately=True))
        follow_up = message(unique("second"), task.id)
        refused = await gateway.call("SendMessage", follow_up)
        async with stand_in_worker(client, queue):
            taken = await gateway.call("SendMessage", follow_up)
            handle = client.get_workflow_handle(task.id)
            taken_in: list[object] = await handle.query("messages")
    check_unavailable(refused, "No worker answers for this task now")
    assert taken.json()["result"]["task"]["id"] == task.id
    assert len(taken_in) == 2
