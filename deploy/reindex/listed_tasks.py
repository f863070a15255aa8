"""Which tasks clients can list, by Temporal's visibility."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from everloop.runtime.temporal.executions import quoted
from everloop.workflows.contract.names import AGENT_ID, OWNER, WORKFLOW_TYPE, is_child_task_id

PAGE_SIZE = 200

_RPC_TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True)
class Chosen:
    """Tasks of an agent and an owner ("": of all) that have not ended, or have ended since.

    Only those whose workflows wait on `task_queue`: another Everloop of the namespace shows its own.
    """

    task_queue: str
    agent_id: str
    owner: str
    ended_since: datetime

    @property
    def query(self) -> str:
        """What is asked of visibility."""
        conditions = [
            f"WorkflowType = '{WORKFLOW_TYPE}'",
            f"TaskQueue = {quoted(self.task_queue)}",
            "ExecutionStatus != 'ContinuedAsNew'",
            f"(ExecutionStatus = 'Running' OR CloseTime > '{self.ended_since.isoformat()}')",
        ]
        for attribute, value in ((AGENT_ID, self.agent_id), (OWNER, self.owner)):
            if value:
                conditions.append(f"{attribute.name} = {quoted(value)}")
        return " AND ".join(conditions)


@dataclass(frozen=True)
class FoundTask:
    """A task, and whether a run of it goes on; an older run of it may have ended."""

    task_id: str
    is_running: bool


async def listed_tasks(client: Client, chosen: Chosen) -> AsyncGenerator[list[FoundTask]]:
    """Yield pages of these tasks, each task once. Those of sub-agents are left out: no client sees them.

    Raises:
        RPCError: Temporal does not answer.
    """
    found = client.list_workflows(chosen.query, page_size=PAGE_SIZE, rpc_timeout=_RPC_TIMEOUT)
    seen: set[str] = set()
    while True:
        await found.fetch_next_page()
        yield _tasks_of(found.current_page or (), seen)
        if not found.next_page_token:
            return


def _tasks_of(page: Sequence[WorkflowExecution], seen: set[str]) -> list[FoundTask]:
    tasks: list[FoundTask] = []
    for run in page:
        if run.id in seen or is_child_task_id(run.id):
            continue
        seen.add(run.id)
        tasks.append(FoundTask(run.id, run.status in {WorkflowExecutionStatus.RUNNING, None}))
    return tasks
