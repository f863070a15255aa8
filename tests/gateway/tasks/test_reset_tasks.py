"""Tasks that an operator resets after they ended: their view and their actions, at once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest, Task, TaskState
from redis.asyncio import Redis
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from everloop.gateway.tasks.fanout import EventFanout
from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import Question, QuestionKind
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import running_gateway, unique, working
from tests.gateway.tasks.silent_tasks import reset, services, view_of
from tests.support.a2a_client import connected, request, send
from tests.support.fakes.ports import CountingTools, ScriptedModel, answer, asks

WORKING, COMPLETED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED, FAILED = TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_FAILED
SELDOM = 3600.0
"""Seconds between two checks of a silent task: only the request itself makes the gateway check."""


@pytest.fixture
def redis_url(redis_url: str) -> str:
    """A database of its own: a sweep fails if another test has left a task without a worker."""
    return redis_url.replace("/0", "/2")


@pytest_asyncio.fixture
async def views(redis_url: str) -> AsyncGenerator[TaskViews]:
    async with connect_redis(redis_url) as redis:
        yield TaskViews(redis)


class HeldTools(CountingTools):
    """Calls `ask…` ask once before they are done; the call `slow` waits for `gate`."""

    def __init__(self) -> None:
        super().__init__(reply=_question)
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        if call.call.id == "slow":
            self.entered.set()
            await self.gate.wait()
        return await super().run_tool(call)


def _question(call: RunToolInput) -> ToolReply | None:
    asker = call.call.id
    if not asker.startswith("ask") or call.answers:
        return None
    tool_call = ToolCall(id=asker, name="x", arguments="{}")
    return Question(id=asker, kind=QuestionKind.CONFIRMATION, text="May I?", call=tool_call)


@dataclass(frozen=True)
class Harness:
    """The real workflow with fakes behind its model and tools, and a client of its gateway."""

    client: Client
    views: TaskViews
    queue: str
    a2a: A2AClient
    streaming: A2AClient
    tools: HeldTools

    async def shown(self, task_id: str) -> Task:
        return await self.a2a.get_task(GetTaskRequest(id=task_id))

    async def until(self, task_id: str, state: int) -> Task:
        while (task := await self.shown(task_id)).status.state != state:
            pass
        return task

    async def parked(self, task_id: str) -> Task:
        """Return the task when it asks and its workflow has recorded the published question."""
        task, handle = await self.until(task_id, INPUT_REQUIRED), self.client.get_workflow_handle(task_id)
        while True:
            run = (await handle.describe()).raw_description
            if not run.pending_activities and not run.HasField("pending_workflow_task"):
                return task

    async def see(self, method: str, task_id: str, state: State) -> None:
        """Read a task, or sweep as gateways do every few seconds, until its view has this state."""
        sweep = services(self.client, self.views, queue=self.queue).sweep
        while await self.views.state(task_id) is not state:
            await (sweep.reconcile_open() if method == "sweep" else self.shown(task_id))

    async def see_question(self, method: str, task_id: str, question_id: str) -> None:
        """Read, or sweep, until the view has this question."""
        sweep = services(self.client, self.views, queue=self.queue).sweep
        while [q.id for q in (await view_of(self.views, task_id)).status.questions] != [question_id]:
            await (sweep.reconcile_open() if method == "sweep" else self.shown(task_id))

    async def terminate(self, task_id: str) -> None:
        """End the task as an operator does, and let the gateway notice."""
        await self.client.get_workflow_handle(task_id).terminate()
        await services(self.client, self.views, queue=self.queue).reconciler.reconcile(task_id)
        assert (await self.shown(task_id)).status.state == FAILED


@asynccontextmanager
async def harnessed(
    client: Client, views: TaskViews, call: str, pause: float, *, then: str = ""
) -> AsyncGenerator[Harness]:
    """Run an agent that makes this call, or two, and then answers; and a gateway that looks after `pause`."""
    queue, tools = unique("reset"), HeldTools()
    model = ScriptedModel(*(asks((each, "x")) for each in (call, then) if each), answer("done"))
    async with (
        working(client, views, queue, model, tools),
        running_gateway(client, views, queue=queue, fanout=EventFanout(views, idle_check=pause)) as gateway,
        connected(gateway.url, streaming=False) as a2a,
        connected(gateway.url) as streaming,
    ):
        yield Harness(client, views, queue, a2a, streaming, tools)


@pytest.mark.parametrize("method", ["GetTask", "sweep", "SendMessage", "SubscribeToTask", "CancelTask"])
async def test_a_parked_task_that_was_terminated_and_reset_asks_again(
    client: Client, views: TaskViews, method: str
) -> None:
    """It does not repeat statuses from before the reset; the sweep, or any action on it, finds it."""
    pause = 0.05 if method == "GetTask" else SELDOM
    async with harnessed(client, views, "ask", pause) as harness:
        task = await send(harness.a2a, request(unique("reset"), return_immediately=True))
        asked = await harness.parked(task.id)
        await harness.terminate(task.id)
        await reset(client, task.id)
        if method == "SubscribeToTask":
            first = await anext(harness.streaming.subscribe(SubscribeToTaskRequest(id=task.id)))
            assert first.task.status.state == INPUT_REQUIRED
        if method == "sweep":
            sweep = services(client, views, queue=harness.queue).sweep
            while await views.state(task.id) is not State.INPUT_REQUIRED:
                await sweep.find_reset()
        if method == "CancelTask":
            canceled = await harness.a2a.cancel_task(CancelTaskRequest(id=task.id))
            assert canceled.status.state == TaskState.TASK_STATE_CANCELED
            return
        if method == "GetTask":
            shown = await harness.until(task.id, INPUT_REQUIRED)
            assert shown.status.message.parts == asked.status.message.parts
        done = await send(harness.a2a, request("yes", task_id=task.id))
    assert done.status.state == COMPLETED
    assert [call.call.id for call in harness.tools.calls] == ["ask", "ask"]


@pytest.mark.parametrize("method", ["GetTask", "sweep"])
async def test_a_task_that_was_reset_while_it_worked_waits_again(
    client: Client, views: TaskViews, method: str
) -> None:
    """It waits with a question from before, which it does not publish again; its view has it all the same."""
    pause = 0.05 if method == "GetTask" else SELDOM
    async with harnessed(client, views, "ask", pause, then="slow") as harness:
        task = await send(harness.a2a, request(unique("reset"), return_immediately=True))
        await harness.parked(task.id)
        await send(harness.a2a, request("yes", task_id=task.id, return_immediately=True))
        await harness.tools.entered.wait()
        await harness.see(method, task.id, State.WORKING)
        await reset(client, task.id, to_before=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)
        await harness.see(method, task.id, State.INPUT_REQUIRED)
        asked = await harness.until(task.id, INPUT_REQUIRED)
        assert asked.status.message.parts[0].text
        harness.tools.gate.set()
        done = await send(harness.a2a, request("yes", message_id="again", task_id=task.id))
    assert done.status.state == COMPLETED


@pytest.mark.parametrize("method", ["GetTask", "sweep"])
async def test_a_question_that_redis_lost_takes_the_place_of_the_one_before(
    client: Client, views: TaskViews, redis_url: str, method: str
) -> None:
    """The state is the same; the number of the status shows that another question is open."""
    pause = 0.05 if method == "GetTask" else SELDOM
    async with (
        harnessed(client, views, "ask", pause, then="ask again") as harness,
        connect_redis(redis_url) as redis,
    ):
        task = await send(harness.a2a, request(unique("lost"), return_immediately=True))
        before = await harness.parked(task.id)
        kept = await _copied(redis, task.id)
        await send(harness.a2a, request("yes", task_id=task.id, return_immediately=True))
        while (asked := await harness.parked(task.id)).status.message == before.status.message:
            pass
        await _put_back(redis, kept)
        assert (await view_of(views, task.id)).status.questions[0].id == "ask"
        await harness.see_question(method, task.id, "ask again")
        shown = await harness.shown(task.id)
        assert shown.status.message == asked.status.message
        done = await send(harness.a2a, request("yes", task_id=task.id))
    assert done.status.state == COMPLETED


async def _copied(redis: Redis, task_id: str) -> dict[bytes | str, bytes]:
    keys = await redis.keys(f"everloop:task:{{{task_id}}}:*")
    return {key: content for key in keys if (content := await redis.dump(key))}


async def _put_back(redis: Redis, kept: dict[bytes | str, bytes]) -> None:
    """Remove the last acknowledged writes of Redis, as after a failover."""
    for key, content in kept.items():
        await redis.restore(key, 0, content, replace=True)


async def test_a_task_that_was_reset_in_a_tool_works_again(client: Client, views: TaskViews) -> None:
    """Its next status is far away; until then it is not called failed."""
    async with harnessed(client, views, "slow", 0.05) as harness:
        task = await send(harness.a2a, request(unique("reset"), return_immediately=True))
        await harness.tools.entered.wait()
        await harness.terminate(task.id)
        await reset(client, task.id)
        await harness.until(task.id, WORKING)
        harness.tools.gate.set()
        await harness.until(task.id, COMPLETED)


async def test_a_reset_task_without_a_worker_is_not_called_ended(client: Client, views: TaskViews) -> None:
    """No process can report its state, so the client gets a retry time."""
    async with harnessed(client, views, "ask", SELDOM) as harness:
        task = await send(harness.a2a, request(unique("reset"), return_immediately=True))
        await harness.parked(task.id)
        await harness.terminate(task.id)
    await reset(client, task.id)
    async with running_gateway(client, views, queue=harness.queue) as gateway:
        response = await gateway.call("CancelTask", {"id": task.id})
    assert response.status_code == 503
    assert "no worker answers" in response.json()["error"]["message"].lower()
    await client.get_workflow_handle(task.id).terminate()
