"""CancelTask, whatever the task does: it ends canceled, and so does all that it has begun."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import (
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from everloop.runtime.redis import connect_redis
from everloop.stores.views.interface import START
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.names import call_key, child_task_id, name_calls
from everloop.workflows.contract.tasks import TaskState as State
from tests.support.a2a_client import Answer, connected, request, send
from tests.support.rigs.deployment import Deployment, Gateway, Service, running_service
from tests.support.servers.scripted_openai import Refusal, Reply, ScriptedOpenAI, tool_call

CANCELED = TaskState.TASK_STATE_CANCELED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
NEWSROOM = "tests.support.agents.chaos:newsroom"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def newsroom(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    """One worker and one gateway for all tasks that are cancelled here."""
    async with running_service(tmp_path_factory.mktemp("newsroom"), NEWSROOM) as running:
        yield running


class Follower:
    """A subscriber of a task, in the background."""

    def __init__(self, responses: AsyncIterator[StreamResponse]) -> None:
        self.answer = Answer()
        self._responses = responses
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def until(self, is_so: Callable[[Answer], bool]) -> None:
        """Wait until what was heard is enough; fail if the stream ends before."""
        async with self._news:
            await self._news.wait_for(lambda: is_so(self.answer) or self._reading.done())
        assert is_so(self.answer), f"the stream ended early: {self.answer.responses}"

    async def end(self) -> Answer:
        """Return what was heard until the stream ended."""
        await self._reading
        return self.answer

    async def _read(self) -> None:
        async for response in self._responses:
            self.answer.add(response)
            async with self._news:
                self._news.notify_all()


@dataclass(frozen=True)
class Case:
    """What a task does when it is cancelled.

    The model is asked as `script` says; of the requests that reach it, those from `first_open` on are
    answered without an end. `has_begun` is true when the subscriber has heard enough. `draft` is the answer
    so far, `children` are the calls that other agents work on.
    """

    script: Sequence[Reply | Refusal]
    first_open: int
    has_begun: Callable[[Answer], bool] = lambda _: True
    draft: str = ""
    children: Sequence[str] = ()


def _endless(text: str = "") -> Reply:
    return Reply([text, asyncio.Event()] if text else [asyncio.Event()])


def _streaming(_: str) -> Case:
    text = "Half an ans"
    return Case([_endless(text)], 1, lambda answer: answer.text == text, draft=text)


def _tools(url: str) -> Case:
    arguments = json.dumps({"url": f"{url}/chat/completions"})
    calls = [tool_call("hold", arguments, index=i) for i in range(5)]
    return Case([Reply(calls), *(_endless() for _ in calls)], 2)


def _child(_: str) -> Case:
    call = tool_call("writer", '{"request": "A poem."}')
    (asked,) = name_calls([ToolCall(id="", name="writer", arguments='{"request": "A poem."}')], 1)
    return Case([Reply([call]), _endless("Half a poem")], 2, children=[call_key(asked)])


async def test_cancel_before_a_worker_comes(model: ScriptedOpenAI, everloop: Deployment) -> None:
    """The gateway says so; the worker that comes ends the workflow as canceled and asks no model.

    Whoever reads the stream of the task, such as a webhook, hears of nothing but the end.
    """
    gateway = await everloop.add_gateway()
    temporal = await Client.connect(everloop.temporal_address)

    async with _following(gateway, "Never mind.") as (client, task, follower):
        canceled = await _cancel_again_and_again(client, task.id)
        answer = await follower.end()
        await everloop.add_worker()
        await _ends_canceled(temporal, task.id)
        shown = await client.get_task(GetTaskRequest(id=task.id))
    async with connect_redis(everloop.redis_url) as redis:
        stream = await TaskViews(redis).read({task.id: START}, wait=0)

    statuses = [each.event for each in stream if isinstance(each.event, StatusChanged)]
    assert {status.state for status in statuses} == {State.CANCELED}
    assert canceled.status.state == shown.status.state == CANCELED
    assert [message.parts[0].text for message in shown.history] == ["Never mind."]
    assert answer.states.count(CANCELED) == 1
    assert answer.states[-1] == CANCELED
    assert not model.requests


@pytest.mark.parametrize("make", [_streaming, _tools, _child])
async def test_cancel(newsroom: Service, make: Callable[[str], Case]) -> None:
    """Remote calls are cut off before anybody hears of the end, nothing runs on, and a draft has failed."""
    model, case = newsroom.model, make(newsroom.model.base_url)
    newsroom.script(case.script)
    temporal = await Client.connect(newsroom.everloop.temporal_address)

    async with _following(newsroom.gateway, "Work.") as (client, task, follower):
        await model.request(len(case.script))
        await follower.until(case.has_begun)
        canceled = await _cancel(client, task.id)
        remote = model.requests[case.first_open - 1 :]
        assert all(request.disconnected.is_set() for request in remote)
        assert await _cancel_again_and_again(client, task.id) == canceled
        answer = await follower.end()
        for id_ in (task.id, *(child_task_id(task.id, call) for call in case.children)):
            await _ends_canceled(temporal, id_)
        shown = await client.get_task(GetTaskRequest(id=task.id))

    assert canceled.status.state == CANCELED
    assert shown == canceled
    assert answer.states.count(CANCELED) == 1
    assert answer.responses[-1].status_update.status.state == CANCELED
    assert [_text(artifact) for artifact in shown.artifacts] == ([case.draft] if case.draft else [])
    assert all(_has_failed(artifact) for artifact in shown.artifacts)
    assert _has_failed(answer.responses[-2].artifact_update.artifact) == bool(case.draft)
    assert len(model.requests) == len(case.script)


@asynccontextmanager
async def _following(gateway: Gateway, text: str) -> AsyncGenerator[tuple[A2AClient, Task, Follower]]:
    """Send a message and subscribe to its task."""
    async with connected(gateway.url, streaming=False) as client, connected(gateway.url) as subscriber:
        task = await send(client, request(text, return_immediately=True))
        yield client, task, Follower(subscriber.subscribe(SubscribeToTaskRequest(id=task.id)))


async def _cancel(client: A2AClient, task_id: str) -> Task:
    return await client.cancel_task(CancelTaskRequest(id=task_id))


async def _cancel_again_and_again(client: A2AClient, task_id: str) -> Task:
    """Cancel several times, also at once; return the one answer to all."""
    first, second = await asyncio.gather(_cancel(client, task_id), _cancel(client, task_id))
    third = await _cancel(client, task_id)
    assert first == second == third
    return third


async def _ends_canceled(temporal: Client, workflow_id: str) -> None:
    """Check that a workflow ends as canceled and leaves nothing that runs."""
    handle = temporal.get_workflow_handle(workflow_id)
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    description = await handle.describe()
    assert description.status is WorkflowExecutionStatus.CANCELED
    assert not description.raw_description.pending_activities
    assert not description.raw_description.pending_children


def _text(artifact: Artifact) -> str:
    return "".join(part.text for part in artifact.parts)


def _has_failed(artifact: Artifact) -> bool:
    return artifact.metadata.fields["status"].string_value == "failed"
