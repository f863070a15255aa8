"""Messages to a task while its workflow continues as new."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from a2a.client import Client as A2AClient
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import SendMessageRequest, Task
from a2a.utils.errors import UnsupportedOperationError
from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.messages import UserMessage, content_digest
from everloop.workflows.contract.tasks import TaskInput, TaskState, TaskView
from tests.gateway.harness import running_gateway, told_view, unique
from tests.support.a2a_client import connected, request, send

MESSAGES = 60
SENDERS = 8


class CarriedMessages(TaskInput):
    """A task, and the messages that earlier runs took in."""

    taken: tuple[UserMessage, ...] = ()
    runs: int = 1


@workflow.defn(name=names.WORKFLOW_TYPE, sandboxed=False)
class ContinuingTask:
    """A task that only takes messages in, and continues as new at a signal."""

    @workflow.init
    def __init__(self, task: CarriedMessages) -> None:
        self._task = task
        self._taken = [*(task.taken or (task.message,))]
        self._ended = False
        self._is_due = False

    @workflow.run
    async def run(self, task: CarriedMessages) -> None:
        await workflow.wait_condition(lambda: self._ended or self._is_due)
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not self._ended:
            workflow.continue_as_new(
                task.model_copy(update={"taken": tuple(self._taken), "runs": task.runs + 1})
            )

    @workflow.update
    def add_message(self, message: UserMessage) -> str:
        """Take a message in, unless an earlier run has."""
        if message.message_id not in {known.message_id for known in self._taken}:
            self._taken.append(message)
        return content_digest(message)

    @add_message.validator
    def validate_add_message(self, message: UserMessage) -> None:
        if self._ended and message not in self._taken:
            raise ApplicationError("ended", type=failures.TASK_TERMINAL, non_retryable=True)

    @workflow.signal
    def end(self) -> None:
        """Close the workflow."""
        self._ended = True

    @workflow.signal
    def go_on(self) -> None:
        """Continue as a new run."""
        self._is_due = True

    @workflow.query
    def runs(self) -> int:
        """How many runs there were."""
        return self._task.runs

    @workflow.query
    def view(self) -> TaskView:
        """The task with all messages as its history."""
        state = TaskState.COMPLETED if self._ended else TaskState.WORKING
        return told_view(self._task, state, self._taken)


@pytest.mark.parametrize("ends_at", [MESSAGES, MESSAGES // 2], ids=["goes on", "ends halfway"])
async def test_a_message_is_taken_in_once_or_refused(client: Client, views: TaskViews, ends_at: int) -> None:
    """If the send succeeds, the message is in the task once; only a task that has ended refuses messages."""
    queue = unique("continuing")
    async with (
        Worker(client, task_queue=queue, build_id="test", workflows=[ContinuingTask]),
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(unique("begin"), return_immediately=True))
        handle = client.get_workflow_handle_for(ContinuingTask.run, task.id)
        accepted: list[str] = []

        async def end_in_time() -> None:
            if len(accepted) == ends_at:
                await handle.signal(ContinuingTask.end)

        async def go_on() -> None:
            with suppress(RPCError):  # the task has ended
                while True:
                    await handle.signal(ContinuingTask.go_on)

        going_on = asyncio.create_task(go_on())
        await send_all(a2a, task, accepted, end_in_time)
        await going_on
        taken = [message.message_id for message in (await handle.query(ContinuingTask.view)).history[1:]]
        runs = await handle.query(ContinuingTask.runs)
    assert sorted(taken) == sorted(accepted)
    assert (len(accepted) == MESSAGES) == (ends_at == MESSAGES)
    assert runs > 1


async def send_all(
    a2a: A2AClient, task: Task, accepted: list[str], on_accepted: Callable[[], Awaitable[None]]
) -> None:
    """Send all messages, some of them at once, and return those that the task accepted."""
    slots = asyncio.Semaphore(SENDERS)

    async def send_one(message_id: str) -> None:
        message = request("more", message_id=message_id, task_id=task.id, return_immediately=True)
        async with slots:
            if not await is_accepted(a2a, message):
                return
            accepted.append(message_id)
            await on_accepted()

    await asyncio.gather(*(send_one(f"m{number}") for number in range(MESSAGES)))


async def is_accepted(a2a: A2AClient, message: SendMessageRequest) -> bool:
    """Send a message, repeat it if the gateway says so, and return True if the task took it in."""
    while True:
        try:
            await send(a2a, message)
        except UnsupportedOperationError:
            return False
        except A2AClientError as error:
            if "503" not in str(error):
                raise
        else:
            return True
