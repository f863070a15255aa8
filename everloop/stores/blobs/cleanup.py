"""Removes the large payloads of workflows that Temporal no longer knows.

A payload lies in the folder of its task (`runtime.temporal.payloads.payload_folder`), so it says who may need
it: the task, its sub-agents and its deliveries. As long as Temporal knows one of these, open or closed, its
history may be read, replayed or reset, and all of the folder stays, however old it is.

Two Everloops can be given the same directory or bucket by mistake. Then neither may remove what the other put
there. So whoever uses a store writes that into the store itself, and where there is another user nothing is
removed until an operator has decided.
"""

import re
from collections.abc import AsyncGenerator
from datetime import timedelta
from urllib.parse import quote, unquote

import structlog
from structlog.typing import FilteringBoundLogger
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.runtime.at_once import for_each
from everloop.runtime.blobs import BlobError, Blobs
from everloop.runtime.temporal.describe import find_run, namespace_id
from everloop.runtime.temporal.executions import UNQUOTABLE
from everloop.runtime.temporal.payloads import NO_TASK, PAYLOADS, payload_folder
from everloop.stores.retention import Cleaned

# Who uses a blob store.

FOLDER = "used-by"
"""Folder of the names of users: id of the Temporal namespace, task queue."""

_LONGEST_QUEUE = 60

_ANY_AGE = timedelta(days=-36_500)
"""Also a name that the clock of the store, or of another machine, puts into our future."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class BlobsSharedError(Exception):
    """Another Everloop uses this blob store as well, or has used it."""

    def __init__(self, location: str, others: list[str]) -> None:
        super().__init__(
            f"nothing is removed from {location}: it is also used by another Temporal namespace or task "
            f"queue ({', '.join(others)}). Give each Everloop a store of its own; if the other one is gone "
            f"for good, delete its name from the folder {FOLDER} of the store"
        )


async def register_user(blobs: Blobs, client: Client, task_queue: str) -> str:
    """Put down that we use this store, and return where.

    Raises:
        BlobsUnavailableError, RPCError: the store, or Temporal, is away.
    """
    namespace = await namespace_id(client)
    # A queue that is too long for a key stands there by its end, which tells more than its beginning.
    ours = f"{FOLDER}/{namespace}/{quote(task_queue, safe='').replace('.', '%2E')[-_LONGEST_QUEUE:]}"
    await blobs.put(ours, b"")
    return ours


async def announce_user(client: Client, blobs: Blobs, task_queue: str) -> None:
    """Put down that we use this store before anything is in it, so that others who clean it up know.

    What fails is a warning: our own housekeeping puts it down as well.
    """
    if blobs.expires:  # nobody removes anything there
        return
    try:
        await register_user(blobs, client, task_queue)
    except (BlobError, RPCError) as error:
        _log.warning(
            "use of the blob store not put down", store=blobs.location, error_type=type(error).__name__
        )


async def require_sole_user(blobs: Blobs, client: Client, task_queue: str) -> None:
    """Put down that we use this store, and make sure that nobody else does.

    Raises:
        BlobsSharedError: somebody else does.
        BlobsUnavailableError, RPCError: the store, or Temporal, cannot answer now.
    """
    ours = await register_user(blobs, client, task_queue)
    pages = _pages(blobs, FOLDER)
    others = [key.removeprefix(f"{FOLDER}/") async for keys in pages for key in keys if key != ours]
    if others:
        raise BlobsSharedError(blobs.location, others)


async def remove_folder(blobs: Blobs, folder: str) -> list[str]:
    """Remove all blobs of a folder, however new; return which there were.

    Raises:
        BlobsUnavailableError: some may be left.
    """
    removed = list[str]()
    async for keys in _pages(blobs, folder):
        for key in keys:
            if not await blobs.remove(key, _ANY_AGE):  # one that expires is left to Redis
                await blobs.delete(key)
        removed += keys
    return removed


async def _pages(blobs: Blobs, folder: str) -> AsyncGenerator[tuple[str, ...]]:
    """Yield the keys of all blobs of a folder, however new, page by page."""
    cursor: str | None = None
    while cursor != "":
        page = await blobs.list_old(folder, _ANY_AGE, cursor or "")
        yield page.keys
        cursor = page.cursor


# Which payloads may be removed.

_DIGEST = re.compile(r"[0-9a-f]{64}")
"""Stands for an id that is too long for a word of a key. Whose it is cannot be known, so it stays."""


class PayloadCleanup:
    """Any number of processes may clean them up at once, and each may die at any point.

    `ttl` counts from when a payload was last put; shorter than Temporal's retention, it changes nothing.
    """

    def __init__(self, blobs: Blobs, client: Client, task_queue: str, *, ttl: timedelta) -> None:
        self._blobs = blobs
        self._client = client
        self._task_queue = task_queue
        self._ttl = ttl

    async def clean(self, cursor: str, *, dry_run: bool) -> Cleaned:
        """Look at a page of old payloads from a cursor on, and return how many were (or would be) removed.

        In a store that removes them by itself, renew those that are still needed instead.

        Raises:
            BlobsSharedError: another Everloop uses the store.
            BlobsUnavailableError, RPCError: the store or Temporal cannot answer now.
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
        """Return those of the folders of these keys whose tasks Temporal no longer knows."""
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
    """Whether Temporal has no workflow of this id, open or closed, nor one whose id goes on with a slash.

    The first is asked of the history service, which knows every workflow at once; of the others, which tasks
    start, visibility is asked. Whatever is not a clear answer is an error.

    Raises:
        RPCError: Temporal does not answer.
    """
    if UNQUOTABLE & set(workflow_id) or await find_run(client, workflow_id):
        return False
    children = await client.count_workflows(f"WorkflowId STARTS_WITH '{workflow_id}/'")
    return not children.count
