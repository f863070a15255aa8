"""The compared sides: the floor, the usual loop, and Everloop, each with a worker process of its own."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import uuid4

import orjson
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle

from bench.agent import agent
from bench.orders import RESULT_BYTES, Order, iterations_order
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import TaskInput, TaskView
from tests.support.servers.processes import ServerProcess

OWNERS = 100
"""Number of owners of tasks that do not pass a gateway."""

Run = WorkflowHandle[Any, Any]


@dataclass(frozen=True)
class Parked:
    """A task that waits for its user, and its order; for Everloop also the open question."""

    run: Run
    order: Order
    question: str = ""


class Side(ABC):
    """An implementation that runs tasks."""

    model_activity: str
    """The activity with which an iteration begins."""

    def __init__(
        self, temporal: Client, task_queue: str, add_worker: Callable[[], Awaitable[ServerProcess]]
    ) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._add_worker = add_worker
        self.worker: ServerProcess

    async def start_worker(self) -> None:
        """Start the worker, and wait until it is ready."""
        self.worker = await self._add_worker()

    async def restart_worker(self) -> None:
        """Replace the worker by one without cached tasks."""
        await asyncio.to_thread(self.worker.stop)
        await self.start_worker()

    async def run(self, iterations: int, *, size: int = RESULT_BYTES, tool: str = "produce") -> Run:
        """Run a task to its end."""
        run = await self.start({**iterations_order(iterations, size), "tool": tool}, turns=1)
        await run.result()
        return run

    async def park(self, iterations: int) -> Parked:
        """Run a task until it waits for its user."""
        order = iterations_order(iterations)
        run = await self.start(order, turns=2)
        while not await _waits(run):  # noqa: ASYNC110 -- a fact of the server, no event
            await asyncio.sleep(0.05)
        return Parked(run, order, await self._question(run))

    @abstractmethod
    async def answer(self, parked: Parked) -> None:
        """Answer the task, and wait for its end."""

    @abstractmethod
    async def start(self, order: Order, turns: int) -> Run:
        """Start a task of `turns` messages; return when Temporal has accepted it."""

    async def _question(self, run: Run) -> str:
        return ""


class Peer(Side):
    """A bare workflow."""

    def __init__(
        self,
        temporal: Client,
        workflow: str,
        model_activity: str,
        add: Callable[[str], Awaitable[ServerProcess]],
    ) -> None:
        queue = f"{workflow}-{uuid4()}"
        super().__init__(temporal, queue, lambda: add(queue))
        self._workflow = workflow
        self.model_activity = model_activity

    async def answer(self, parked: Parked) -> None:
        await parked.run.signal("say", parked.order)
        await parked.run.result()

    async def start(self, order: Order, turns: int) -> Run:
        return await self._temporal.start_workflow(
            self._workflow, args=[order, turns], id=f"peer-{uuid4()}", task_queue=self._task_queue
        )


class Everloop(Side):
    """A task, without a gateway."""

    model_activity = "call_model"
    _numbers = count()

    async def answer(self, parked: Parked) -> None:
        await parked.run.execute_update(AgentTask.add_message, _message("red", answers=parked.question))
        await parked.run.result()

    async def start(self, order: Order, turns: int) -> Run:
        task_id = str(uuid4())
        task = TaskInput(
            context_id=names.derive_context_id(task_id),  # as for a client that names none
            owner=f"bench-{next(self._numbers) % OWNERS}",
            agent=agent.spec,
            message=_message(orjson.dumps({**order, "asks": turns > 1}).decode()),
            created_at=datetime.now(UTC),
        )
        return await self._temporal.start_workflow(
            names.WORKFLOW_TYPE, task, id=task_id, task_queue=self._task_queue
        )

    async def _question(self, run: Run) -> str:
        view: TaskView = await run.query(AgentTask.view)
        return view.status.questions[0].id


def _message(text: str, answers: str = "") -> UserMessage:
    return UserMessage(message_id=str(uuid4()), parts=(TextPart(text=text),), answers=answers)


async def _waits(run: Run) -> bool:
    """Return whether a task has no pending work."""
    described = await run.describe()
    assert described.status == WorkflowExecutionStatus.RUNNING, f"{run.id} ended before it was answered"
    raw = described.raw_description
    return not raw.pending_activities and not raw.HasField("pending_workflow_task")
