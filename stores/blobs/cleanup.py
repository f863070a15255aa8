"""Removes the large payloads of workflows that Temporal no longer knows.

A payload lies in the folder of its task (`payload_storage.payload_folder`), so it says who may need it: the
task, its sub-agents and its deliveries. As long as Temporal knows one of these, open or closed, its history
may be read, replayed or reset, and all of the folder stays, however old it is.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar
from urllib.parse import unquote

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure, NotFoundFailure
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everloop.runtime.blobs import BlobListing, Blobs
from everloop.runtime.temporal.payloads import NO_TASK, PAYLOADS, payload_folder
from everloop.stores.blobs.users import namespace_id, require_sole_user
from everloop.stores.cleaned import Cleaned

# Which workflows Temporal no longer knows.

_UNQUOTABLE = frozenset("'\"\\")
"""Ids with these are not asked for: what a query makes of them is nobody's promise."""


async def is_gone(client: Client, workflow_id: str) -> bool:
    """Whether Temporal has no workflow of this id, open or closed, nor one whose id goes on with a slash.

    The first is asked of the history service, which knows every workflow at once; of the others, which tasks
    start, visibility tells. Whatever is not a clear answer is an error.

    Raises:
        RPCError: Temporal does not tell.
    """
    if _UNQUOTABLE & set(workflow_id):
        return False
    # The SDK's own `describe` fails for a workflow that an operator has paused.
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    try:
        await client.workflow_service.describe_workflow_execution(request, retry=True)
    except RPCError as error:
        if not _says_not_found(error):
            raise
    else:
        return False
    children = await client.count_workflows(f"WorkflowId STARTS_WITH '{workflow_id}/'")
    return not children.count


def _says_not_found(error: RPCError) -> bool:
    """Whether the server says that there is no such workflow; proxies answer NOT_FOUND for other reasons."""
    if error.status is not RPCStatusCode.NOT_FOUND:
        return False
    details = [each.type_url.rpartition("/")[2] for each in error.grpc_status.details]
    has_no_namespace = NamespaceNotFoundFailure.DESCRIPTOR.full_name in details
    return NotFoundFailure.DESCRIPTOR.full_name in details and not has_no_namespace


_AT_ONCE = 10
"""Questions to Temporal, and removals, at once."""

T = TypeVar("T")

_DIGEST = re.compile(r"[0-9a-f]{64}")
"""Stands for an id that is too long for a word of a key. Whose it is cannot be told, so it stays."""


class PayloadCleanup:
    """Any number of processes may clean them up at once, and each may die at any point.

    `ttl` counts from when a payload was last put; shorter than Temporal's retention, it changes nothing.
    """

    def __init__(self, blobs: Blobs, client: Client, task_queue: str, *, ttl: timedelta) -> None:
        self._blobs = blobs
        self._client = client
        self._task_queue = task_queue
        self._ttl = ttl
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def clean(self, cursor: str, *, dry_run: bool) -> Cleaned:
        """Look at a page of old payloads from a cursor on, and return how many were (or would be) removed.

        In a store that removes them by itself, renew those that are still needed instead.

        Raises:
            BlobsSharedError: another Everloop uses the store.
            BlobsUnavailableError, RPCError: the store or Temporal does not tell now.
        """
        if (listing := self._blobs.listing) is None:
            return Cleaned(0)
        namespace = await namespace_id(self._client)
        if listing.expires:
            return await self._renew(listing, cursor, dry_run=dry_run)
        await require_sole_user(self._blobs, listing, namespace, self._task_queue)
        page = await listing.list_old(PAYLOADS, self._ttl, cursor)
        gone = await self._gone(page.keys)
        due = [key for key in page.keys if _folder(key) in gone]
        if dry_run:
            return Cleaned(len(due), page.cursor)
        return Cleaned(sum(await self._each(due, lambda key: listing.remove(key, self._ttl))), page.cursor)

    async def _renew(self, listing: BlobListing, cursor: str, *, dry_run: bool) -> Cleaned:
        page = await listing.list_old(PAYLOADS, self._ttl / 2, cursor)
        gone = await self._gone(page.keys)
        if not dry_run:
            await self._each([key for key in page.keys if _folder(key) not in gone], listing.renew)
        return Cleaned(0, page.cursor)

    async def _each(self, keys: Sequence[str], work: Callable[[str], Awaitable[T]]) -> list[T]:
        async def work_on(key: str) -> T:
            async with self._slots:
                return await work(key)

        return await asyncio.gather(*map(work_on, keys))

    async def _gone(self, keys: tuple[str, ...]) -> set[str]:
        """Return those of the folders of these keys whose tasks Temporal no longer knows."""
        folders = sorted({_folder(key) for key in keys})
        are_gone = await self._each(folders, self._is_gone)
        return {folder for folder, gone in zip(folders, are_gone, strict=True) if gone}

    async def _is_gone(self, folder: str) -> bool:
        word = folder.removeprefix(f"{PAYLOADS}/")
        task_id = unquote(word)
        if word == NO_TASK or _DIGEST.fullmatch(word) or payload_folder(task_id) != folder:
            return False
        return await is_gone(self._client, task_id)


def _folder(key: str) -> str:
    return key.rpartition("/")[0]
