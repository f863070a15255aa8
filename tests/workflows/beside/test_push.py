"""Sequential delivery of notifications, waiting for news, and the query for a task's view."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from everloop.activities.push.feed import TaskWorkflows
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.stores.push.configs import PushConfig, PushConfigs
from everloop.stores.push.deliveries import PushDeliveries
from everloop.worker import WorkerSettings, running_workers
from everloop.workers.settings import MAX_CONCURRENT_DELIVERIES
from everloop.workflows.contract.calls import TASK_UNREADABLE, DeliverPushResult, PushRef
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.names import PUSH_NEWS, context_key, push_workflow_id
from everloop.workflows.contract.tasks import TaskState
from everloop.workflows.push_delivery import PushDelivery
from tests.stores.examples import status
from tests.support.fakes.ports import FakePorts, ScriptedModel, answer
from tests.support.fakes.push import DELIVERED, DONE, NOTHING, ScriptedPush
from tests.support.rigs.push_rig import push_rig
from tests.support.stores import database, new_artifacts
from tests.workflows.conftest import IMPATIENT_EVENTS, StartTask, start_workflow, unique_queue

pytestmark = pytest.mark.usefixtures("redis")

Handle = WorkflowHandle[PushDelivery, None]
StartDelivery = Callable[[ScriptedPush], AbstractAsyncContextManager[Handle]]

CONFIG = "config"


async def deliveries_of(
    client: Client, queue: str, owners: Mapping[str, str] | None = None
) -> PushDeliveries:
    """Return the input of deliveries: of one task with the id of its queue, or of tasks with these owners."""
    configs = PushConfigs(database())
    for task_id, owner in (owners or {queue: "owner"}).items():
        config = PushConfig(
            id=CONFIG, task_id=task_id, owner=owner, context_id="c", url="https://a", public_url="https://b"
        )
        await configs.put(config)
    return PushDeliveries(client, configs, queue)


def starter(client: Client, *, max_cached_workflows: int) -> StartDelivery:
    @asynccontextmanager
    async def start(push: ScriptedPush) -> AsyncGenerator[Handle]:
        queue = unique_queue()
        ports = FakePorts(ScriptedModel())
        ports.push = push
        settings = WorkerSettings(
            task_queue=queue, max_cached_workflows=max_cached_workflows, shutdown_grace=0
        )
        async with running_workers(client, ports.wired(), settings):
            await (await deliveries_of(client, queue)).notify(queue, [CONFIG])
            yield client.get_workflow_handle_for(PushDelivery.run, push_workflow_id(queue, CONFIG))

    return start


@pytest.fixture
def start_delivery(cached: int, client: Client) -> StartDelivery:
    return starter(client, max_cached_workflows=cached)


@pytest.fixture
def start_long_delivery(cached: int, impatient_client: Client) -> StartDelivery:
    return starter(impatient_client, max_cached_workflows=cached)


async def test_it_delivers_until_the_task_has_ended(start_delivery: StartDelivery) -> None:
    """After a delivery it checks again at once; each time for the same task and config."""
    push = ScriptedPush(DELIVERED, DELIVERED, DONE)
    async with start_delivery(push) as delivery:
        await delivery.result()
    task_id = delivery.id.partition("/")[0]
    expected = PushRef(task_id=task_id, config_id=CONFIG)
    assert push.calls == [expected] * 3


async def test_it_waits_for_news(start_delivery: StartDelivery) -> None:
    """With nothing to deliver it calls no activity until a signal of news."""
    push = ScriptedPush(NOTHING, NOTHING, DELIVERED, DONE)
    async with start_delivery(push) as delivery:
        # The signal that starts it counts as news, too.
        await push.until_asked(1)
        for times in (2, 4):
            await delivery.signal(PUSH_NEWS)
            await push.until_asked(times)
        await delivery.result()


async def test_news_that_come_during_a_delivery_are_looked_at(start_delivery: StartDelivery) -> None:
    """Even if the delivery returns that the task is over: an operator has reset it."""
    looked, told = asyncio.Event(), asyncio.Event()

    async def look() -> DeliverPushResult:
        looked.set()
        await told.wait()
        return DONE

    push = ScriptedPush(look, DELIVERED, DONE)
    async with start_delivery(push) as delivery:
        await looked.wait()
        await delivery.signal(PUSH_NEWS)
        told.set()
        await delivery.result()
    assert len(push.calls) == 3


async def test_a_delivery_that_has_ended_starts_again_with_news(client: Client) -> None:
    """A running one gets the news; callers need not check whether it runs."""
    push, queue = ScriptedPush(DONE, DONE, DONE), unique_queue()
    ports = FakePorts(ScriptedModel())
    ports.push = push
    deliveries = await deliveries_of(client, queue)
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue, shutdown_grace=0)):
        for _ in range(2):
            await deliveries.notify(queue, [CONFIG])
            await client.get_workflow_handle(push_workflow_id(queue, CONFIG)).result()
    assert len(push.calls) >= 2


async def test_webhooks_that_are_slow_keep_no_task_waiting(client: Client) -> None:
    """Deliveries have slots of their own on a worker, beside those of model and tool calls."""
    started, released = asyncio.Event(), asyncio.Event()

    async def post_slowly() -> DeliverPushResult:
        started.set()
        await released.wait()
        return DONE

    queue, ports = unique_queue(), FakePorts(ScriptedModel(answer("meanwhile")))
    ports.push = ScriptedPush(post_slowly)
    settings = WorkerSettings(task_queue=queue, max_concurrent_activities=1, shutdown_grace=0)
    async with running_workers(client, ports.wired(), settings):
        await (await deliveries_of(client, queue)).notify(queue, [CONFIG])
        await started.wait()
        result = await (await start_workflow(client, queue)).result()
        released.set()
    assert result.excerpt == "meanwhile"


async def test_a_long_delivery_goes_on_in_new_runs(start_long_delivery: StartDelivery) -> None:
    """Nothing is lost in between, and no history grows without a limit."""
    push = ScriptedPush(*[DELIVERED] * IMPATIENT_EVENTS, DONE)
    async with start_long_delivery(push) as delivery:
        await delivery.result()
        newest = await delivery.describe()
    assert len(push.calls) == IMPATIENT_EVENTS + 1
    assert newest.history_length < 3 * IMPATIENT_EVENTS


async def test_an_operator_may_cancel_it(start_delivery: StartDelivery) -> None:
    """It ends at once, also in the middle of a delivery, and leaves nothing out."""
    started, never = asyncio.Event(), asyncio.Event()

    async def hang() -> DeliverPushResult:
        started.set()
        await never.wait()
        return DONE

    push = ScriptedPush(hang)
    async with start_delivery(push) as delivery:
        await started.wait()
        await delivery.cancel()
        with pytest.raises(WorkflowFailureError):
            await delivery.result()
        status = (await delivery.describe()).status
        never.set()
    assert status is WorkflowExecutionStatus.CANCELED
    assert len(push.calls) == 1


async def test_slow_webhooks_of_one_owner_do_not_keep_another_owners_one_waiting(client: Client) -> None:
    """Whatever their number, the other owner's is among the next that get a free slot."""
    released, queue = asyncio.Event(), unique_queue()

    async def post_slowly() -> DeliverPushResult:
        await released.wait()
        return DONE

    crowd = 2 * MAX_CONCURRENT_DELIVERIES
    owners = {f"{queue}-{number}": "busy" for number in range(crowd)} | {f"{queue}-last": "other"}
    push = ScriptedPush(*[post_slowly] * len(owners))
    ports = FakePorts(ScriptedModel())
    ports.push = push
    deliveries = await deliveries_of(client, queue, owners)
    for task_id in owners:
        await deliveries.notify(task_id, [CONFIG])
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue, shutdown_grace=0)):
        await push.until_asked(MAX_CONCURRENT_DELIVERIES)
        released.set()
        await push.until_asked(len(owners))

    order = [call.task_id for call in push.calls]
    assert order.index(f"{queue}-last") < 2 * MAX_CONCURRENT_DELIVERIES


async def test_a_failed_attempt_is_one_log_line(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """The webhook's failure is not a defect of ours: the log has no stack trace."""
    async with push_rig(503) as (rig, hook):
        await rig.begin(status(1, TaskState.COMPLETED), position=START)
        queue, ports = unique_queue(), FakePorts(ScriptedModel())
        ports.push = rig.port
        settings = WorkerSettings(task_queue=queue, shutdown_grace=0)
        with caplog.at_level("INFO"), capture_logs() as logged:
            async with running_workers(client, ports.wired(), settings):
                await PushDeliveries(client, rig.configs, queue).notify(rig.task.task_id, [rig.config.id])
                delivery_id = push_workflow_id(rig.task.task_id, rig.config.id)
                await client.get_workflow_handle_for(PushDelivery.run, delivery_id).result()
    assert len(hook.refused) == 1
    told = [each["reason"] for each in logged if each["event"] == "push notification not delivered"]
    assert told == ["the webhook answered 503; expected 2xx"]
    assert not [each for each in caplog.records if each.name == "temporalio.activity"]


@pytest.fixture
def artifacts(redis: Redis) -> Artifacts:
    return new_artifacts(TaskViews(redis))


@pytest.fixture
def workflows(client: Client, artifacts: Artifacts) -> TaskWorkflows:
    return TaskWorkflows(client, artifacts)


async def test_a_task_tells_its_view(
    start_task: StartTask, workflows: TaskWorkflows, artifacts: Artifacts
) -> None:
    """Also after its end; the artifacts come from their store."""
    async with start_task(FakePorts(ScriptedModel(answer("Hi.")))) as task:
        await task.result()
        change = Create(task_id=task.id, parts=(NewPart(kind="text", content=b"stored"),))
        await artifacts.apply(context_key("owner", "context"), "log", change)
        view = await workflows.view(task.id)
    assert view
    assert view.status.state is TaskState.COMPLETED
    assert [each.artifact_id for each in view.artifacts] == ["log", "response"]
    assert view.artifacts[0].parts == (TextPart(text="stored"),)


async def test_an_unknown_task_tells_nothing(workflows: TaskWorkflows) -> None:
    """It is deleted, and so are its data."""
    assert await workflows.view("unknown") is None


async def test_a_task_without_a_worker_is_waited_for(client: Client, workflows: TaskWorkflows) -> None:
    """Its view cannot be read now; a retry helps."""
    task = await start_workflow(client, unique_queue())
    with pytest.raises(ApplicationError) as failed:
        await workflows.view(task.id)
    await task.terminate()
    assert failed.value.type == TASK_UNREADABLE
    assert not failed.value.non_retryable
