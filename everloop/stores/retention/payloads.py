"""Removes large payloads of workflows that Temporal has deleted.

A payload is stored in the folder of its task (`runtime.temporal.payloads.payload_folder`), which names its
users: the task, its sub-agents and its deliveries. As long as Temporal stores one of these, open or closed,
its history may be read, replayed or reset, so the folder stays, however old it is.
"""

import re
from datetime import timedelta
from urllib.parse import unquote

from temporalio.client import Client

from everloop.runtime.blobs import Blobs
from everloop.runtime.concurrency import for_each
from everloop.runtime.temporal.blob_payloads import NO_TASK, PAYLOADS, payload_folder
from everloop.runtime.temporal.describe import find_run
from everloop.runtime.temporal.executions import UNQUOTABLE
from everloop.stores.retention.cleaned import Cleaned
from everloop.stores.retention.users import require_sole_user

_DIGEST = re.compile(r"[0-9a-f]{64}")
"""A digest replaces an id that is too long for a key. Its task cannot be found, so the folder stays."""


class UnknownPayloads:
    """Removes payloads of deleted workflows. Processes may do so concurrently, and each may die at any point.

    `ttl` counts from the last write of a payload. It has no effect if it is shorter than Temporal's
    retention.
    """

    def __init__(self, blobs: Blobs, client: Client, task_queue: str, *, ttl: timedelta) -> None:
        self._blobs = blobs
        self._client = client
        self._task_queue = task_queue
        self._ttl = ttl

    async def clean(self, cursor: str, *, dry_run: bool) -> Cleaned:
        """Check a page of old payloads from a cursor on, and return how many were (or would be) removed.

        In a store whose payloads expire, renew those that are still needed instead.

        Raises:
            BlobsSharedError: Another Everloop uses the store.
            BlobsUnavailableError, RPCError: The store or Temporal does not answer.
        """
        if self._blobs.expires:
            return await self._renew(cursor, dry_run=dry_run)
        await require_sole_user(self._blobs, self._client, self._task_queue)
        page = await self._blobs.list_old(PAYLOADS, self._ttl, cursor)
        removable = await self._removable(page.keys)
        due = [key for key in page.keys if _folder(key) in removable]
        if dry_run:
            return Cleaned(len(due), page.cursor)
        removed = await for_each(due, lambda key: self._blobs.remove(key, self._ttl))
        return Cleaned(sum(removed), page.cursor)

    async def _renew(self, cursor: str, *, dry_run: bool) -> Cleaned:
        page = await self._blobs.list_old(PAYLOADS, self._ttl / 2, cursor)
        removable = await self._removable(page.keys)
        if not dry_run:
            await for_each([key for key in page.keys if _folder(key) not in removable], self._blobs.renew)
        return Cleaned(0, page.cursor)

    async def _removable(self, keys: tuple[str, ...]) -> set[str]:
        """Return the folders of these keys whose tasks Temporal has deleted."""
        folders = sorted({_folder(key) for key in keys})
        removable = await for_each(folders, self._is_removable)
        return {folder for folder, is_removable in zip(folders, removable, strict=True) if is_removable}

    async def _is_removable(self, folder: str) -> bool:
        word = folder.removeprefix(f"{PAYLOADS}/")
        task_id = unquote(word)
        if word == NO_TASK or _DIGEST.fullmatch(word) or payload_folder(task_id) != folder:
            return False
        return await _is_unknown(self._client, task_id)


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


async def _is_unknown(client: Client, workflow_id: str) -> bool:
    """True if Temporal has no workflow of this id, open or closed, nor one whose id continues with a slash.

    The first is asked of the history service, which is always up to date. The others, which tasks start, are
    asked of visibility. Any unclear answer is an error.

    Raises:
        RPCError: Temporal does not answer.
    """
    if UNQUOTABLE & set(workflow_id) or await find_run(client, workflow_id):
        return False
    children = await client.count_workflows(f"WorkflowId STARTS_WITH '{workflow_id}/'")
    return not children.count
