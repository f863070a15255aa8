"""Tasks that clients can list, by Temporal's visibility."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.converter import decode_typed_search_attributes

from everloop.runtime.temporal.executions import is_open, listed_pages, may_be_equal, quoted
from everloop.workflows.contract.names import AGENT_ID, OWNER, WORKFLOW_TYPE, is_child_task_id

_RPC_TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True)
class Chosen:
    """Selection of tasks by agent and owner ("": all), running or ended since.

    Only workflows on `task_queue` are selected: another Everloop of the namespace shows its own.
    """

    task_queue: str
    agent_id: str
    owner: str
    ended_since: datetime

    @property
    def attributes(self) -> Mapping[SearchAttributeKey[str], str]:
        """Attributes that these tasks have."""
        return {key: value for key, value in ((AGENT_ID, self.agent_id), (OWNER, self.owner)) if value}

    @property
    def query(self) -> str:
        """Visibility query."""
        conditions = [
            f"WorkflowType = '{WORKFLOW_TYPE}'",
            f"TaskQueue = {quoted(self.task_queue)}",
            "ExecutionStatus != 'ContinuedAsNew'",
            f"(CloseTime IS NULL OR CloseTime > '{self.ended_since.isoformat()}')",
        ]
        for attribute, value in self.attributes.items():
            conditions.append(may_be_equal(attribute, value))
        return " AND ".join(conditions)


@dataclass(frozen=True)
class FoundTask:
    """A task, and whether a run of it is open; an older run of it may have ended."""

    task_id: str
    is_running: bool


async def listed_tasks(client: Client, chosen: Chosen) -> AsyncGenerator[list[FoundTask]]:
    """Yield pages of these tasks, each task once. Sub-agents' tasks are left out: clients cannot see them.

    Raises:
        RPCError: Temporal does not answer.
    """
    listed: set[str] = set()
    async for page in listed_pages(client, chosen.query, _RPC_TIMEOUT):
        yield _tasks_of(page, listed, chosen)


def _tasks_of(page: Sequence[WorkflowExecutionInfo], listed: set[str], chosen: Chosen) -> list[FoundTask]:
    tasks: list[FoundTask] = []
    for run in page:
        task_id, attributes = run.execution.workflow_id, decode_typed_search_attributes(run.search_attributes)
        is_chosen = all(attributes.get(key) == value for key, value in chosen.attributes.items())
        if task_id in listed or is_child_task_id(task_id) or not is_chosen:
            continue
        listed.add(task_id)
        tasks.append(FoundTask(task_id, is_open(run)))
    return tasks
