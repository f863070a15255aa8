"""Each step of a workflow is replayed from history; the loop, long tasks and people also run cached."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError

from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.contract.questions import Question, named_question
from everloop.workflows.contract.tasks import AgentSpec, TaskInput, TaskResult
from tests.support.fakes.ports import TASK_WORK, FakePorts
from tests.support.servers.processes import running_temporal

Handle = WorkflowHandle[AgentTask, TaskResult]
IMPATIENT_EVENTS = 40

Changes = Mapping[str, object]
"""Fields of a `TaskInput` that a test overrides."""

NO_CHANGES: Changes = {}

StartTask = Callable[..., AbstractAsyncContextManager[Handle]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address, data_converter=WIRE_DATA_CONVERTER)


async def current_details(handle: Handle) -> str:
    """The details of a task in the Temporal UI."""
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return metadata.current_details


def user(text: str) -> UserMessage:
    """A message of the client with an id of its own."""
    return UserMessage(message_id=str(uuid4()), parts=(TextPart(text=text),))


async def say(handle: Handle, message: UserMessage) -> None:
    """Send a message as a gateway does: with the question that it answers, from the task's view."""
    status = (await handle.query(AgentTask.view)).status
    asked = status.questions[0].id if status.questions and status.state.is_interrupted else ""
    said = message.model_copy(update={"answers": message.answers or named_question(message) or asked})
    await handle.execute_update(AgentTask.add_message, said, id=said.message_id)


async def asked_of_client(ports: FakePorts, handle: Handle) -> tuple[Question, ...]:
    """Wait until the task of the client asks, and return the question."""
    await ports.publish.until(
        lambda: any(
            status.state.is_interrupted for task, status in ports.publish.by_task if task == handle.id
        )
    )
    return (await handle.query(AgentTask.view)).status.questions


def unique_queue() -> str:
    """A unique name of a task queue, and of the task on it."""
    return f"test-{uuid4()}"


async def start_workflow(
    client: Client,
    queue: str,
    agent: AgentSpec | None = None,
    *,
    task_id: str = "",
    changes: Changes = NO_CHANGES,
) -> Handle:
    """Start a task, as the gateway does; by default its id is the name of its queue."""
    task = TaskInput(
        context_id="context",
        owner="owner",
        agent=agent or AgentSpec(id="agent"),
        message=user("Hello"),
        created_at=datetime.now(UTC),
    ).model_copy(update=changes)
    return await client.start_workflow(
        names.WORKFLOW_TYPE, task, id=task_id or queue, task_queue=queue, result_type=TaskResult
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def impatient_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    """A client of a server that suggests to continue as new after a few events."""
    settings = [
        f"limit.historyCount.suggestContinueAsNew={IMPATIENT_EVENTS}",
        'history.workflowIdReuseMinimalInterval="1ms"',  # otherwise each new run would wait for a second
    ]
    async with running_temporal(tmp_path_factory.mktemp("impatient"), settings) as (_, address):
        yield await Client.connect(address, data_converter=WIRE_DATA_CONVERTER)


@pytest.fixture
def cached() -> int:
    """The number of workflows that a worker caches: 0, so that each step is replayed.

    Some modules try both.
    """
    return 0


@pytest.fixture(params=[1000, 0], ids=["cached", "always_replayed"])
def cached_or_replayed(request: pytest.FixtureRequest) -> int:
    """The value of `cached` in modules that try both."""
    return int(request.param)


@pytest.fixture
def start_task(cached: int, client: Client) -> StartTask:
    """Start a task on a worker of its own, with the fakes of the test behind its ports."""
    return starter(client, max_cached_workflows=cached)


@pytest.fixture
def start_long_task(cached: int, impatient_client: Client) -> StartTask:
    """The same with histories that count as long after `IMPATIENT_EVENTS` events."""
    return starter(impatient_client, max_cached_workflows=cached)


async def run(starting: AbstractAsyncContextManager[Handle]) -> TaskResult:
    """Start a task, and wait for its result."""
    async with starting as handle:
        return await handle.result()


async def refusal_of(update: Awaitable[object]) -> ApplicationError:
    """Wait until a task has refused an update; return the reason."""
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await update
    assert isinstance(refused.value.cause, ApplicationError)
    return refused.value.cause


async def until_canceled(handle: Handle) -> None:
    """Wait until a task has ended because it was cancelled."""
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, CancelledError)


async def failure_of(handle: Handle) -> ApplicationError:
    """Wait until a task has failed; return the reason."""
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause


def starter(client: Client, *, max_cached_workflows: int) -> StartTask:
    """Return a function that starts a task on a worker of its own."""

    @asynccontextmanager
    async def start(
        ports: FakePorts, agent: AgentSpec | None = None, changes: Changes = NO_CHANGES
    ) -> AsyncGenerator[Handle]:
        queue = unique_queue()
        settings = WorkerSettings(
            task_queue=queue, max_cached_workflows=max_cached_workflows, shutdown_grace=0
        )
        queues = (*TASK_WORK, names.NARRATOR_QUEUE) if ports.narrator else TASK_WORK
        async with running_workers(client, ports.wired(), settings, queues):
            yield await start_workflow(client, queue, agent, changes=changes)

    return start
