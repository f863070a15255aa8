"""What operators see and do: tasks of all owners, what keeps some from going on, how the system fares.

All of it takes the scope admin, or a server where nobody proves who they are.
"""

from collections.abc import AsyncGenerator
from datetime import datetime
from uuid import uuid4

from pydantic import JsonValue

from everloop.client.events import TaskState
from everloop.client.extension.calls import Answer, ExtensionCalls, read, segment


class Obstacle(Answer):
    """What keeps a task from going on."""

    why: str
    since: datetime | None = None
    actions: list[str] = []
    """What helps: resume, skip, reset, cancel; none where it takes something else, which `why` names."""
    call_id: str | None = None
    """The call that a skip ends."""


class AskedQuestion(Answer):
    """A question that a task waits with."""

    question_id: str
    tool: str = ""
    kind: str = ""
    text: str = ""
    scope: str = ""
    """owner, or the scope of those who may answer."""


class OperatorTask(Answer):
    """A task of some owner, as operators see it."""

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
    """In a word or two."""
    iteration: int | None = None
    """None: its workflow was not asked."""
    questions: list[AskedQuestion] = []
    stuck: Obstacle | None = None
    """None: it goes on, waits for people as it should, or has ended well."""


class OperatorAction(Answer):
    """What an operator did to a task, and how that stands now."""

    done: str
    task: OperatorTask


class TaskQueue(Answer):
    """A queue of work; `kind` own: agents or tools have it for themselves."""

    name: str
    kind: str = ""
    agents: list[str] = []
    workers: int = 0
    backlog: int = 0
    oldest: float | None = None
    """Seconds that the oldest piece of work has waited."""


class WorkerProcess(Answer):
    """A process that takes work from queues."""

    identity: str
    queues: list[str] = []
    last_seen: datetime | None = None
    version: str | None = None
    """Its deployment and build; None: it has none."""


class HealthCheck(Answer):
    """Whether a part of the system answers."""

    name: str
    ok: bool
    detail: str = ""


class OperatorSystem(Answer):
    """How the system fares."""

    versions: dict[str, str | None] = {}
    queues: list[TaskQueue] = []
    workers: list[WorkerProcess] = []
    health: list[HealthCheck] = []
    tasks: dict[str, int] = {}
    """How many there are in each state."""
    temporal_ui: str | None = None
    namespace: str = ""


class OperatorCalls(ExtensionCalls):
    """The part of `Client` that is for operators."""

    def operator_tasks(
        self, *, state: TaskState | str = "", agent: str = "", owner: str = "", stuck: bool = False
    ) -> AsyncGenerator[OperatorTask]:
        """Yield tasks of all owners, those that are open first, newest first.

        Args:
            state: Only those in this state.
            agent: Only those of this agent.
            owner: Only those of this owner.
            stuck: Only those that do not go on by themselves, and those that failed within a day.

        Raises:
            ForbiddenError: the caller has not the scope admin.
        """
        query = {"state": str(state), "agent": agent, "owner": owner, "stuck": "true" if stuck else ""}
        return self._listed("/operator/tasks", "tasks", OperatorTask, query)

    async def operator_task(self, task_id: str) -> OperatorTask:
        """Return one task.

        Raises:
            NotFoundError: there is no such task.
        """
        answer = await self._asked("GET", f"/operator/tasks/{segment(task_id)}")
        return read(OperatorTask, answer.get("task", {}))

    async def operator_resume(self, task_id: str) -> OperatorAction:
        """Let a task go on that is paused, waits for an operator, or for its next attempt.

        Raises:
            NotFoundError: there is no such task.
            InvalidError: nothing holds it up (status 409).
        """
        return await self._act(task_id, "resume", {})

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
        return await self._act(task_id, "skip", {"callId": call_id, "note": note})

    async def operator_reset(self, task_id: str) -> OperatorAction:
        """Let a task that failed go on from before the failure; what tools did is not done again.

        Raises:
            NotFoundError: there is no such task.
            InvalidError: it did not fail, or it would not help (status 409).
        """
        return await self._act(task_id, "reset", {"to": "lastGood"})

    async def operator_cancel(self, task_id: str) -> OperatorAction:
        """Ask a task to stop.

        Raises:
            NotFoundError: there is no such task.
            InvalidError: it has ended (status 409).
        """
        return await self._act(task_id, "cancel", {})

    async def operator_approve(
        self,
        task_id: str,
        question_id: str,
        *,
        approved: bool = True,
        note: str = "",
        value: JsonValue = None,
    ) -> OperatorAction:
        """Answer an open question in the place of whomever it asks.

        Args:
            task_id: The task.
            question_id: As `OperatorTask.questions` has it.
            approved: Whether the call may run.
            note: The model reads that of a no; at most 2,000 characters.
            value: The answer to what is not a yes or no.

        Raises:
            NotFoundError: no such question is open.
            InvalidError: this does not answer it (status 409).
        """
        body: dict[str, JsonValue] = {"questionId": question_id, "approved": approved, "note": note}
        return await self._act(task_id, "approve", body if value is None else {**body, "value": value})

    async def operator_system(self) -> OperatorSystem:
        """Return versions, queues, workers, health, and how many tasks there are."""
        return read(OperatorSystem, await self._asked("GET", "/operator/system"))

    async def _act(self, task_id: str, action: str, body: dict[str, JsonValue]) -> OperatorAction:
        path = f"/operator/tasks/{segment(task_id)}/{action}"
        return read(OperatorAction, await self._asked("POST", path, body, key=str(uuid4())))
