"""The workflows of tasks in Temporal: listed, ended, and deleted with their histories."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Sequence
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus as RawStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ListWorkflowExecutionsRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError

from everloop.runtime.temporal.describe import find_run, is_not_found
from everloop.workflows.contract import names

TIMEOUT = 10.0
"""Seconds for a cancelled task to end before it is terminated."""

LOOK_EVERY = 0.2

PAGE = 200

_RUNNING = {RawStatus.WORKFLOW_EXECUTION_STATUS_RUNNING, RawStatus.WORKFLOW_EXECUTION_STATUS_PAUSED}

_RPC_TIMEOUT = timedelta(seconds=10)

UNQUOTABLE = frozenset("'\"\\")
"""Characters that our task ids never contain. Ids with them are not queried, because filters treat them
inconsistently."""


async def listed_pages(
    client: Client, query: str, rpc_timeout: timedelta = _RPC_TIMEOUT
) -> AsyncGenerator[Sequence[WorkflowExecutionInfo]]:
    """Yield pages of visibility; the SDK's own list fails on a paused run, whose status it has no name for.

    Raises:
        RPCError: Temporal does not answer.
    """
    token = b""
    while True:
        page = await client.workflow_service.list_workflow_executions(
            ListWorkflowExecutionsRequest(
                namespace=client.namespace, query=query, page_size=PAGE, next_page_token=token
            ),
            retry=True,
            timeout=rpc_timeout,
        )
        yield page.executions
        if not (token := page.next_page_token):
            return


def is_open(run: WorkflowExecutionInfo) -> bool:
    """Return True if a run has not ended; a paused one has not."""
    return run.status in _RUNNING


class TaskExecutions:
    """All workflows of clients' tasks: their own, those of their sub-agents, and of their push deliveries."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tasks_of(
        self, owner: str, context_id: str | None = None
    ) -> AsyncGenerator[tuple[str, str, bool]]:
        """Yield clients' tasks, their contexts, and whether they run; None for all contexts.

        A task may appear several times. Visibility lags.

        Raises:
            RPCError: Temporal does not answer.
        """
        required = {names.OWNER: owner} | ({} if context_id is None else {names.CONTEXT_ID: context_id})
        may_be = " AND ".join(may_be_equal(*each) for each in required.items())
        async for run in _listed(self._client, f"WorkflowType = '{names.WORKFLOW_TYPE}' AND {may_be}"):
            attributes = decode_typed_search_attributes(run.search_attributes)
            if all(attributes.get(key) == value for key, value in required.items()):
                task_id, is_running = names.root_task_id(run.execution.workflow_id), is_open(run)
                yield task_id, attributes.get(names.CONTEXT_ID, ""), is_running

    async def remove(self, task_id: str) -> int:
        """End a running task with everything that works for it, and delete these workflows.

        It is cancelled, and terminated if it does not end soon. Return the number of runs found.
        Temporal deletes them asynchronously.

        Raises:
            RPCError: Temporal does not answer.
        """
        newest, runs = await find_run(self._client, task_id), set[tuple[str, str]]()
        if newest:
            runs.add((task_id, newest.run_id))
            if newest.is_running:
                await self._end(task_id)
        async for workflow_id, run_id, is_running in self._runs(task_id):
            runs.add((workflow_id, run_id))
            if is_running and await self._is_running(workflow_id):
                await self._terminate(workflow_id)
        await asyncio.gather(*(self._delete(*each) for each in runs))
        return len(runs)

    async def _end(self, task_id: str) -> None:
        await self._quietly(self._client.get_workflow_handle(task_id).cancel(rpc_timeout=_RPC_TIMEOUT))
        try:
            async with asyncio.timeout(TIMEOUT):
                while await self._is_running(task_id):  # noqa: ASYNC110 -- it is another process that it ends in
                    await asyncio.sleep(LOOK_EVERY)
        except TimeoutError:
            await self._terminate(task_id)

    async def _runs(self, task_id: str) -> AsyncGenerator[tuple[str, str, bool]]:
        if UNQUOTABLE & set(task_id):
            return
        async for run in _listed(
            self._client, f"WorkflowId = '{task_id}' OR WorkflowId STARTS_WITH '{task_id}/'"
        ):
            yield run.execution.workflow_id, run.execution.run_id, is_open(run)

    async def _is_running(self, workflow_id: str) -> bool:
        run = await find_run(self._client, workflow_id)
        return run is not None and run.is_running

    async def _terminate(self, workflow_id: str) -> None:
        handle = self._client.get_workflow_handle(workflow_id)
        await self._quietly(handle.terminate(reason="it is deleted", rpc_timeout=_RPC_TIMEOUT))

    async def _delete(self, workflow_id: str, run_id: str) -> None:
        request = DeleteWorkflowExecutionRequest(
            namespace=self._client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        )
        await self._quietly(
            self._client.workflow_service.delete_workflow_execution(request, timeout=_RPC_TIMEOUT)
        )

    @staticmethod
    async def _quietly(call: Awaitable[object]) -> None:
        """Call Temporal about a workflow that may be deleted meanwhile."""
        try:
            await call
        except RPCError as error:
            if not is_not_found(error):
                raise


async def _listed(client: Client, query: str) -> AsyncGenerator[WorkflowExecutionInfo]:
    async for page in listed_pages(client, query):
        for run in page:
            yield run


def quoted(value: str) -> str:
    """Quote a value for Temporal's list filters, whose escapes are those of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def may_be_equal(attribute: SearchAttributeKey[str], value: str) -> str:
    """Return a filter for all runs and schedules whose attribute has this value, and few others.

    Servers find no value with a double quote or a backslash, however it is escaped: the filter compares
    the part before it, and the caller compares the rest.
    """
    plain = re.split(r'["\\]', value, maxsplit=1)[0]
    if plain == value:
        return f"{attribute.name} = {quoted(value)}"
    return f"{attribute.name} STARTS_WITH {quoted(plain)}" if plain else f"{attribute.name} IS NOT NULL"
