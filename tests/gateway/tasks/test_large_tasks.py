"""Tasks of many megabytes: answers, refusals, and the bytes that are shown at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from a2a.types.a2a_pb2 import SubscribeToTaskRequest, TaskState
from a2a.utils.errors import UnsupportedOperationError
from google.protobuf.json_format import MessageToDict
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.context import ANONYMOUS
from everloop.gateway.tasks import snapshots as large_tasks
from everloop.runtime.redis import connect_redis
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import Snapshot
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import Artifact, TaskView
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import (
    Named,
    RunningGateway,
    StoodIn,
    a_view,
    running_gateway,
    stand_in_worker,
    unique,
)
from tests.gateway.streams.followed_tasks import FollowedTask
from tests.support.a2a_client import connected, request, send
from tests.support.servers.processes import until

LIMIT = 3_000_000
LARGE = "x" * 1_250_000
SMALL = "x" * 10_000


class LargeViews(TaskViews):
    """Records the tasks that were loaded whole; each such load waits for its `pace`."""

    loaded: list[str]
    sized: list[str]
    pace: asyncio.Semaphore | None = None
    before_whole: Callable[[str], Any] | None = None

    async def load(
        self, task_id: str, *, most: int | None = None, history_length: int | None = None
    ) -> Snapshot | None:
        if most == 0:
            self.sized.append(task_id)
        if most is None:
            self.loaded.append(task_id)
            if self.before_whole:
                await self.before_whole(task_id)
            if self.pace:
                await self.pace.acquire()
        return await super().load(task_id, most=most, history_length=history_length)


@pytest_asyncio.fixture(loop_scope="session")
async def large(redis_url: str) -> AsyncGenerator[LargeViews]:
    """Tasks may have 3 MB."""
    async with connect_redis(redis_url) as redis:
        views = LargeViews(redis, RetentionSettings(max_task_bytes=LIMIT))
        views.loaded, views.sized = [], []
        yield views


@pytest_asyncio.fixture(loop_scope="session")
async def served(client: Client, large: LargeViews) -> AsyncGenerator[RunningGateway]:
    """A gateway that starts no tasks."""
    async with running_gateway(client, large, queue="none", access=AccessControl(Named())) as gateway:
        yield gateway


async def stored_task(
    views: TaskViews,
    *texts: str,
    state: State = State.COMPLETED,
    artifact: str = "done",
    owner: str = ANONYMOUS,
) -> TaskView:
    """Store a task with these messages."""
    done = Artifact(artifact_id="response", parts=(TextPart(text=artifact),), complete=state.is_terminal)
    view = a_view(*texts, state=state, owner=owner, artifacts=(done,))
    await views.restore(view)
    return view


async def get(
    gateway: RunningGateway, task_id: str, *, owner: str = ANONYMOUS, **params: object
) -> dict[str, Any]:
    response = await gateway.call("GetTask", {"id": task_id, **params}, owner=owner)
    return response.json()


async def test_a_task_over_the_limit_is_refused_with_where_to_read_it(
    served: RunningGateway, large: LargeViews
) -> None:
    """GetTask tells size, limit, setting, and that a smaller historyLength works, which it does."""
    task = await stored_task(large, LARGE, LARGE, LARGE, "last")
    refused = await get(served, task.task_id)
    loaded = list(large.loaded)
    short = await get(served, task.task_id, historyLength=1)
    none = await get(served, task.task_id, historyLength=0)
    text = refused["error"]["message"]
    for word in (task.task_id, "3.8 MB", "3.0 MB", "EVERLOOP_MAX_TASK_BYTES", "historyLength", "ListTasks"):
        assert word in text
    assert loaded == []
    assert [message["messageId"] for message in short["result"]["history"]] == ["m3"]
    assert short["result"]["artifacts"][0]["parts"] == [{"text": "done"}]
    assert "history" not in none["result"]
    assert "leftOut" not in short["result"].get("metadata", {})


async def test_a_task_up_to_the_limit_is_shown_whole(served: RunningGateway, large: LargeViews) -> None:
    """Repeatedly: each answer gives back its room, on every binding."""
    task = await stored_task(large, LARGE, LARGE)
    for _ in range(2 * large_tasks.AT_ONCE + 1):
        got = await get(served, task.task_id)
        assert [len(message["parts"][0]["text"]) for message in got["result"]["history"]] == [len(LARGE)] * 2
        over_rest = await served.http.get(f"/tasks/{task.task_id}")
        assert len(over_rest.json()["history"]) == 2
        legacy = await served.http.get(f"/v1/tasks/{task.task_id}", headers={"A2A-Version": "0.3"})
        assert legacy.status_code == 200
    assert large.loaded == [task.task_id] * 3 * (2 * large_tasks.AT_ONCE + 1)


async def test_so_many_bytes_are_shown_at_a_time_in_order(served: RunningGateway, large: LargeViews) -> None:
    """Requests without room wait in the order of arrival, and do not block small ones."""
    tasks = [(await stored_task(large, LARGE, LARGE)).task_id for _ in range(6)]
    small = await stored_task(large, SMALL)
    large.pace = asyncio.Semaphore(0)
    answers: list[asyncio.Task[dict[str, Any]]] = []
    for number, task_id in enumerate(tasks, 1):
        answers.append(asyncio.create_task(get(served, task_id)))
        await until(lambda count=number: len(large.sized) == count)
    await until(lambda: len(large.loaded) == large_tasks.AT_ONCE)
    assert (await get(served, small.task_id))["result"]["id"] == small.task_id
    for done in range(len(tasks)):
        assert large.loaded == tasks[: done + large_tasks.AT_ONCE]
        large.pace.release()
        await asyncio.wait(answers[: done + 1])
        expected = min(done + 1 + large_tasks.AT_ONCE, len(tasks))
        await until(lambda count=expected: len(large.loaded) == count)
    assert [(await answer)["result"]["id"] for answer in answers] == tasks


async def test_who_waits_too_long_is_told_to_come_again(
    served: RunningGateway, large: LargeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a status and a retry time; clients that left meanwhile have freed their room."""
    task = await stored_task(large, LARGE, LARGE)
    large.pace = asyncio.Semaphore(0)
    first = [asyncio.create_task(get(served, task.task_id)) for _ in range(large_tasks.AT_ONCE)]
    await until(lambda: len(large.loaded) == large_tasks.AT_ONCE)
    leaving = asyncio.create_task(get(served, task.task_id))
    await until(lambda: len(large.sized) == large_tasks.AT_ONCE + 1)
    leaving.cancel()
    monkeypatch.setattr(large_tasks, "WAIT", 0.01)
    late = await served.http.get(f"/tasks/{task.task_id}")
    assert late.status_code == 503
    assert late.headers["Retry-After"] == str(large_tasks.RETRY_AFTER)
    assert "large tasks" in late.json()["error"]["message"]
    monkeypatch.undo()
    again = [asyncio.create_task(get(served, task.task_id)) for _ in first]
    release_all(large)
    for answer in (*first, *again):
        assert "result" in await answer


async def test_a_stream_of_a_task_over_the_limit_begins_without_its_content(
    served: RunningGateway, large: LargeViews
) -> None:
    """Its metadata say so, and its updates come; the room stays for others."""
    view = await stored_task(large, LARGE, LARGE, LARGE, state=State.WORKING, artifact="")
    task = FollowedTask(view.task_id, large)
    async with connected(served.url) as a2a:
        events = a2a.subscribe(SubscribeToTaskRequest(id=task.id))
        first = (await anext(events)).task
        await task.write("more")
        await task.complete()
        rest = [event async for event in events]
    left_out = MessageToDict(first.metadata)["leftOut"]
    assert left_out["fields"] == ["history", "artifacts"]
    assert left_out["storedBytes"] > LIMIT
    assert "historyLength" in left_out["hint"]
    assert (list(first.history), list(first.artifacts)) == ([], [])
    assert first.status.state == TaskState.TASK_STATE_WORKING
    assert rest[0].artifact_update.artifact.parts[0].text == "more"
    assert rest[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert large.loaded == []


async def test_a_list_leaves_out_what_is_too_large_for_it(served: RunningGateway, large: LargeViews) -> None:
    """The task is listed, with its status, and its metadata say what is missing."""
    owner = unique("owner")
    task = await stored_task(large, *[LARGE] * 7, owner=owner)
    await stored_task(large, SMALL, owner=owner)
    page = (await served.call("ListTasks", {"includeArtifacts": True}, owner=owner)).json()["result"]
    small, cut = page["tasks"]
    assert len(small["history"]) == 1
    assert "metadata" not in small
    assert (cut["id"], cut["status"]["state"]) == (task.task_id, "TASK_STATE_COMPLETED")
    assert cut["metadata"]["leftOut"]["storedBytes"] >= 7 * len(LARGE)
    assert "history" not in cut


async def test_a_task_takes_no_more_than_its_limit(client: Client, large: LargeViews) -> None:
    """A follow-up over it is refused and says what to do; a short one that the task waits for gets through.

    It is answered with the task, without messages if these are too large.
    """
    queue = unique("full")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(stand_in_worker(client, queue))
        gateway = await stack.enter_async_context(running_gateway(client, large, queue=queue))
        a2a = await stack.enter_async_context(connected(gateway.url, streaming=False))
        task = StoodIn(client, large, await send(a2a, request("long", return_immediately=True)))
        repeated = request("short", task_id=task.id, return_immediately=True)
        await send(a2a, repeated)
        await task.publish(State.WORKING, repeated, request(LARGE), request(LARGE))
        with pytest.raises(UnsupportedOperationError) as refused:
            await send(a2a, request("y" * 900_000, task_id=task.id, return_immediately=True))
        assert len(await task.messages()) == 2
        for word in (task.id, "EVERLOOP_MAX_TASK_BYTES", "without taskId", "referenceTaskIds"):
            assert word in str(refused.value)
        await task.publish(State.INPUT_REQUIRED, *(request("z" * 1_000_000) for _ in range(3)))
        with pytest.raises(UnsupportedOperationError):
            await send(a2a, request("y" * 20_000, task_id=task.id, return_immediately=True))
        again = await send(a2a, repeated)
        answered = await send(a2a, request("yes", task_id=task.id, return_immediately=True))
        assert [len(text) for text in await task.texts()][1:] == [5, 3]
        for cut in (again, answered):
            assert (cut.id, list(cut.history)) == (task.id, [])
            assert "leftOut" in cut.metadata
        await task.end()


def release_all(views: LargeViews) -> None:
    """Release all waiting and future loads."""
    pace, views.pace = views.pace, None
    assert pace
    for _ in range(20):
        pace.release()
