"""Tasks of all owners, for operators: a page of Temporal's list, and an inspection of each task."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from a2a.utils.errors import InvalidParamsError
from pydantic import JsonValue
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
from temporalio.client import Client

from everloop.agents.errors import UnknownAgentError
from everloop.agents.registry import AgentRegistry
from everloop.gateway.errors import (
    RPC_TIMEOUT,
    TaskUnknownError,
    UnavailableError,
    translate_blob_errors,
    translate_not_found,
    translate_temporal_errors,
)
from everloop.gateway.extension.operator.diagnosis import (
    Facts,
    QueueKey,
    StuckReason,
    diagnose,
    diagnose_end,
    is_broken,
    is_idle,
    queues_of,
    waits_for,
)
from everloop.gateway.http.http_calls import Page
from everloop.gateway.requests.fields import marked, page_token, unmarked
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.gateway.tasks.workflow_runs import RunEnd, Runs, StuckRun
from everloop.runtime.protocol.a2a_tasks import timestamp
from everloop.runtime.temporal.inspection import REPORTED_PROBLEMS, Inspection, inspect
from everloop.runtime.temporal.queues import WORKFLOW, QueueState, queue_state
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract import names
from everloop.workflows.contract.events import REASON
from everloop.workflows.contract.messages import text_of
from everloop.workflows.contract.questions import Question
from everloop.workflows.contract.tasks import TERMINAL_STATES, TaskProgress, TaskState, TaskStatus

AT_ONCE = 10
"""Tasks that a process inspects at a time, for all requests together."""

MOST_LOOKED_AT = 500
"""Maximum tasks that are inspected for one page of stuck tasks. The next page continues after them."""

RECENT = timedelta(days=1)
"""Time for which a failed task is listed among the stuck ones."""


_FAILED = "ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut')"
_ENDS = {TaskState.FAILED: _FAILED, TaskState.CANCELED: "ExecutionStatus = 'Canceled'"}
"""Queries for ended tasks. They do not depend on the last published status."""


@dataclass(frozen=True)
class OverviewFilter:
    """Filter of tasks; an empty field matches all. `agents`: those that the caller is bound to."""

    state: TaskState | None = None
    agent: str = ""
    owner: str = ""
    only_stuck: bool = False
    agents: tuple[str, ...] = ()

    def query(self, now: datetime) -> str:
        """Return the filter as a query of Temporal's list."""
        conditions = [f"WorkflowType = '{names.WORKFLOW_TYPE}'", "ExecutionStatus != 'ContinuedAsNew'"]
        conditions += [f"{names.AGENT_ID.name} = {quoted(self.agent)}"] if self.agent else []
        conditions += [f"{names.OWNER.name} = {quoted(self.owner)}"] if self.owner else []
        if self.agents:
            conditions.append(f"{names.AGENT_ID.name} IN ({', '.join(map(quoted, self.agents))})")
        if self.state:
            conditions.append(state_query(self.state))
        if self.only_stuck:
            since = (now - RECENT).isoformat()
            conditions.append(
                f"((CloseTime IS NULL AND ({names.TASK_STATE.name} IN ('submitted', 'working')"
                f" OR ExecutionStatus = 'Paused' OR {REPORTED_PROBLEMS.name} IS NOT NULL))"
                f" OR ({_FAILED} AND CloseTime > '{since}'))"
            )
        return " AND ".join(conditions)


def state_query(state: TaskState) -> str:
    """Return the query for tasks in a state. A terminated run keeps its last state."""
    if found := _ENDS.get(state):
        return found
    closed = "ExecutionStatus = 'Completed'" if state.is_terminal else "CloseTime IS NULL"
    return f"({names.TASK_STATE.name} = '{state.value}' AND {closed})"


def quoted(text: str) -> str:
    """Return a text as a literal of a Temporal query.

    Raises:
        InvalidParamsError: it has characters that a query may read as syntax.
    """
    if {"'", '"', "\\"} & set(text):
        raise InvalidParamsError("owner and agent cannot be searched for with quotes or a backslash in them")
    return f"'{text}'"


@dataclass(frozen=True)
class OverviewTask:
    """Task for operators. `end`: its end, if it has ended."""

    run: Inspection
    title: str
    status: TaskStatus | None
    progress: TaskProgress | None = None
    end: RunEnd | None = None
    stuck: StuckReason | None = None

    @property
    def task_id(self) -> str:
        return self.run.run.workflow_id

    @property
    def owner(self) -> str:
        return self.run.run.search_attributes.get(names.OWNER, "")

    @property
    def agent_id(self) -> str:
        return self.run.run.search_attributes.get(names.AGENT_ID, "")

    @property
    def state(self) -> TaskState:
        if self.end and self.end.state is not TaskState.COMPLETED:
            return self.end.state
        return self.run.run.state or TaskState.SUBMITTED

    @property
    def is_open(self) -> bool:
        return self.run.run.is_running

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions, from the workflow, or else from the last status."""
        if self.progress:
            return self.progress.questions
        return self.status.questions if self.status else ()

    @property
    def changed_at(self) -> datetime:
        """Time of the task's end, else of its last status, else of its beginning."""
        return self.run.run.close_time or (self.status.at if self.status else self.run.began_at)

    def to_json(self) -> dict[str, JsonValue]:
        awaited = waits_for(self.run, self.state, self.progress) if self.is_open else None
        return {
            "id": self.task_id,
            "owner": self.owner,
            "agent": self.agent_id,
            "contextId": self.run.run.search_attributes.get(names.CONTEXT_ID, ""),
            "state": self.state.value,
            "title": self.title,
            "startedAt": timestamp(self.run.began_at),
            "updatedAt": timestamp(self.changed_at),
            "waitsFor": awaited,
            "iteration": self.progress.iteration if self.progress else None,
            "questions": [_question(each) for each in self.questions] if self.is_open else [],
            "stuck": self.stuck.to_json() if self.stuck else None,
        }


@dataclass
class _Queues:
    """Queues of one response, each of which is described once."""

    client: Client
    states: dict[QueueKey, "asyncio.Task[QueueState]"] = field(
        default_factory=dict[QueueKey, "asyncio.Task[QueueState]"]
    )

    async def state(self, key: QueueKey) -> QueueState:
        if key not in self.states:
            self.states[key] = asyncio.create_task(look_at_queue(self.client, *key))
        return await asyncio.shield(self.states[key])


async def look_at_queue(client: Client, name: str, kind: "TaskQueueType.ValueType") -> QueueState:
    """Return the state of a task queue.

    Raises:
        TemporalUnavailableError: Temporal does not respond.
    """
    async with translate_temporal_errors():
        return await queue_state(client, name, kind, rpc_timeout=RPC_TIMEOUT)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Finds and inspects tasks; changes nothing."""

    client: Client
    agents: AgentRegistry
    views: TaskViews
    tasks: Tasks
    runs: Runs
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def page(self, task_filter: OverviewFilter, page: Page) -> tuple[list[OverviewTask], str]:
        """Return the tasks on a page, newest first, open ones before ended ones.

        A page of stuck tasks may be short or empty although more follow.

        Raises:
            InvalidParamsError: the token is malformed.
            TemporalUnavailableError: the list is unavailable.
        """
        query, queues = task_filter.query(self.clock()), _Queues(self.client)
        token = page.read_token(lambda text: unmarked(text, task_filter), b"")
        found, looked_at = list[OverviewTask](), 0
        while True:
            rows, token = await self._rows(query, page.size - len(found), token)
            looked_at += len(rows)
            tasks = await asyncio.gather(*(self._row(row, queues) for row in rows))
            found += [each for each in tasks if each and (each.stuck or not task_filter.only_stuck)]
            if (
                not token
                or len(found) >= page.size
                or not task_filter.only_stuck
                or looked_at >= MOST_LOOKED_AT
            ):
                return found, page_token(marked(token, task_filter)) if token else ""

    async def find(self, task_id: str) -> OverviewTask:
        """Return one task, with the progress that its workflow reports.

        Raises:
            TaskUnknownError: it does not exist.
            TemporalUnavailableError, PayloadLostError, PayloadsUnavailableError: it cannot be inspected.
        """
        return await self._look(task_id, _Queues(self.client), asks=True)

    async def _rows(
        self, query: str, size: int, token: bytes
    ) -> tuple[Sequence[WorkflowExecutionInfo], bytes]:
        request = ListWorkflowExecutionsRequest(
            namespace=self.client.namespace, page_size=size, next_page_token=token, query=query
        )
        async with translate_temporal_errors():
            listed = await self.client.workflow_service.list_workflow_executions(
                request, retry=True, timeout=RPC_TIMEOUT
            )
        return listed.executions, listed.next_page_token

    async def _row(self, row: WorkflowExecutionInfo, queues: _Queues) -> OverviewTask | None:
        """Inspect a task of the list; None for a run that a reset has replaced."""
        try:
            task = await self._look(row.execution.workflow_id, queues)
        except TaskUnknownError:  # its retention has ended since
            return None
        return task if task.run.run.run_id == row.execution.run_id else None

    async def _look(self, task_id: str, queues: _Queues, *, asks: bool = False) -> OverviewTask:
        async with self.slots:
            async with translate_temporal_errors(), translate_not_found(task_id), translate_blob_errors():
                run = await inspect(self.client, task_id, rpc_timeout=RPC_TIMEOUT)
            if run.run.workflow_type != names.WORKFLOW_TYPE:
                raise TaskUnknownError(task_id)
            stored = await self.views.load(task_id, most=0)
            task = OverviewTask(run, self._title(run), stored.view.status if stored else None)
            return await (self._open(task, queues, asks=asks) if task.is_open else self._ended(task))

    async def _open(self, task: OverviewTask, queues: _Queues, *, asks: bool) -> OverviewTask:
        run, now = task.run, self.clock()
        keys = queues_of(run, now)
        facts = Facts(
            run,
            {key: await queues.state(key) for key in keys},
            now,
            task.changed_at,
            cause=await self._cause(run),
        )
        stuck = diagnose(facts)
        waits = is_idle(run) and task.state is TaskState.WORKING
        if not is_broken(run) and (asks or waits or (stuck and "skip" in stuck.actions)):
            facts = replace(facts, progress=await self._progress(run, queues))
        return replace(task, progress=facts.progress, stuck=diagnose(facts))

    async def _progress(self, run: Inspection, queues: _Queues) -> TaskProgress | None:
        """Query the workflow, if there is a worker to answer."""
        if run.pause or not (await queues.state((run.queue, WORKFLOW))).serving(self.clock(), run.build):
            return None
        try:
            return await self.tasks.progress(run.run.workflow_id)
        except (UnavailableError, TaskUnknownError):
            return None

    async def _cause(self, run: Inspection) -> str:
        if not is_broken(run):
            return ""
        return await self.runs.cause(StuckRun(run.run.workflow_id, run.run.run_id, run.problems))

    async def _ended(self, task: OverviewTask) -> OverviewTask:
        end = await self.runs.state(task.task_id)
        if not isinstance(end, RunEnd):  # an operator has just reset it
            return task
        task = replace(task, end=end)
        if end.state is not TaskState.FAILED:
            return task
        status = task.status if task.status and task.status.state is TaskState.FAILED else None
        told = status.message if status else None
        reason = str((told and told.metadata.get(REASON)) or end.failure)
        why = (told and text_of(told.parts)) or end.reason
        return replace(task, stuck=diagnose_end(task.task_id, why, reason, end.at))

    def _title(self, run: Inspection) -> str:
        """Return the beginning of the task's first message, without the name of the agent before it."""
        agent_id = run.run.search_attributes.get(names.AGENT_ID, "")
        try:
            return run.summary.removeprefix(f"{self.agents.find(agent_id).name}: ")
        except UnknownAgentError:
            return run.summary

    async def counts(self, owner: str, agents: Iterable[str]) -> dict[str, JsonValue]:
        """Return the number of tasks in each state, from Temporal's list.

        Raises:
            TemporalUnavailableError: they cannot be counted.
        """
        now, agents = self.clock(), tuple(agents)
        states = [*(state for state in TaskState if state not in TERMINAL_STATES), *sorted(TERMINAL_STATES)]

        async def count(state: TaskState) -> int:
            query = OverviewFilter(state, owner=owner, agents=agents).query(now)
            async with translate_temporal_errors():
                return (await self.client.count_workflows(query, rpc_timeout=RPC_TIMEOUT)).count

        counted = await asyncio.gather(*map(count, states))
        return {state.value: number for state, number in zip(states, counted, strict=True)}


def _question(question: Question) -> JsonValue:
    return {
        "questionId": question.id,
        "tool": question.call.name,
        "kind": question.kind.value,
        "text": question.text,
        "scope": question.approvers,
    }
