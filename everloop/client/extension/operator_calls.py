"""Views and actions of operators: tasks of all owners, reasons for stuck ones, the state of the system.

They require the scope admin, or a server without authentication.
"""

from collections.abc import AsyncGenerator
from datetime import datetime
from uuid import uuid4

from pydantic import JsonValue

from everloop.client.extension.extension_calls import ExtensionCalls, ExtensionResponse, read
from everloop.client.task_events import TaskState
from everloop.workflows.contract.http_extension import Address


class Obstacle(ExtensionResponse):
    """The reason for which a task is stuck."""

    why: str
    since: datetime | None = None
    actions: list[str] = []
    """Remedies: resume, skip, reset, cancel; empty if it needs another one, which `why` names."""
    call_id: str | None = None
    """The call that a skip ends."""


class AskedQuestion(ExtensionResponse):
    """An open question of a task."""

    question_id: str
    tool: str = ""
    kind: str = ""
    text: str = ""
    scope: str = ""
    """owner, or the scope of the approvers."""


class OperatorTask(ExtensionResponse):
    """A task of any owner, for operators."""

    id: str
    owner: str = ""
    agent: str = ""
    context_id: str = ""
    state: TaskState = TaskState.UNSPECIFIED
    title: str = ""
    """The beginning of its first message."""
    started_at: datetime | None = None
    updated_at: datetime | None = None
    waits_for: str | None = None
    """A short phrase."""
    iteration: int | None = None
    """None: its workflow was not queried."""
    questions: list[AskedQuestion] = []
    stuck: Obstacle | None = None
    """None: it runs, waits for people as it should, or has ended well."""


class OperatorAction(ExtensionResponse):
    """An operator's action on a task, and its state after it."""

    done: str
    task: OperatorTask


class TaskQueue(ExtensionResponse):
    """A queue of work; `kind` own: agents or tools have named it."""

    name: str
    kind: str = ""
    agents: list[str] = []
    workers: int = 0
    backlog: int = 0
    oldest: float | None = None
    """Seconds that the oldest piece of work has waited."""


class WorkerProcess(ExtensionResponse):
    """A process that takes work from queues."""

    identity: str
    queues: list[str] = []
    last_seen: datetime | None = None
    version: str | None = None
    """Its deployment and build; None without one."""


class HealthCheck(ExtensionResponse):
    """Whether a part of the system responds."""

    name: str
    ok: bool
    detail: str = ""


class OperatorSystem(ExtensionResponse):
    """State of the system."""

    versions: dict[str, str | None] = {}
    queues: list[TaskQueue] = []
    workers: list[WorkerProcess] = []
    health: list[HealthCheck] = []
    tasks: dict[str, int] = {}
    """Number of tasks in each state."""
    temporal_ui: str | None = None
    namespace: str = ""


class OperatorCalls(ExtensionCalls):
    """The part of `Client` for operators."""

    def operator_tasks(
        self, *, state: TaskState | str = "", agent: str = "", owner: str = "", stuck: bool = False
    ) -> AsyncGenerator[OperatorTask]:
        """Yield tasks of all owners, open ones first, newest first.

        Args:
            state: Only those in this state.
            agent: Only those of this agent.
            owner: Only those of this owner.
            stuck: Only those that are stuck, and those that failed within a day.

        Raises:
            ForbiddenError: the caller lacks the scope admin.
        """
        query = {"state": str(state), "agent": agent, "owner": owner, "stuck": "true" if stuck else ""}
        return self._listed(Address.LIST_OPERATOR_TASKS, name="tasks", kind=OperatorTask, query=query)

    async def operator_task(self, task_id: str) -> OperatorTask:
        """Return one task.

        Raises:
            NotFoundError: there is no such task.
        """
        answer = await self._request(Address.SHOW_OPERATOR_TASK, task_id)
        return read(OperatorTask, answer.get("task", {}))

    async def operator_resume(self, task_id: str) -> OperatorAction:
        """Resume a task that is paused, waits for an operator, or for its next attempt.

        Raises:
            NotFoundError: there is no such task.
            InvalidError: it is not held up (status 409).
        """
        return await self._act(Address.RESUME_TASK, task_id, {})

    async def operator_skip(self, task_id: str, call_id: str = "", *, note: str = "") -> OperatorAction:
        """End a pending call of a task, which goes on without its result.

        Args:
            task_id: The task.
            call_id: Which call; empty: the only one.
            note: The model reads it; at most 2,000 characters.

        Raises:
            NotFoundError: there is no such task.
            InvalidError: no such call is pending (status 409).
        """
        return await self._act(Address.SKIP_CALL, task_id, {"callId": call_id, "note": note})

    async def operator_reset(self, task_id: str) -> OperatorAction:
        """Continue a failed task from before the failure. No tool call is repeated.

        Raises:
            NotFoundError: there is no such task.
            InvalidError: it did not fail, or would fail again (status 409).
        """
        return await self._act(Address.RESET_TASK, task_id, {"to": "lastGood"})

    async def operator_cancel(self, task_id: str) -> OperatorAction:
        """Request the cancellation of a task.

        Raises:
            NotFoundError: there is no such task.
            InvalidError: it has ended (status 409).
        """
        return await self._act(Address.CANCEL_TASK, task_id, {})

    async def operator_approve(
        self,
        task_id: str,
        question_id: str,
        *,
        approved: bool = True,
        note: str = "",
        value: JsonValue = None,
    ) -> OperatorAction:
        """Answer an open question in place of its addressee.

        Args:
            task_id: The task.
            question_id: As in `OperatorTask.questions`.
            approved: Whether the call may run.
            note: The model reads that of a rejection; at most 2,000 characters.
            value: The answer to a question other than an approval.

        Raises:
            NotFoundError: no such question is open.
            InvalidError: the value does not answer it (status 409).
        """
        body: dict[str, JsonValue] = {"questionId": question_id, "approved": approved, "note": note}
        return await self._act(
            Address.APPROVE_CALL, task_id, body if value is None else {**body, "value": value}
        )

    async def operator_system(self) -> OperatorSystem:
        """Return versions, queues, workers, health, and the number of tasks."""
        return read(OperatorSystem, await self._request(Address.SHOW_SYSTEM))

    async def _act(self, address: Address, task_id: str, body: dict[str, JsonValue]) -> OperatorAction:
        return read(OperatorAction, await self._request(address, task_id, body=body, key=str(uuid4())))
