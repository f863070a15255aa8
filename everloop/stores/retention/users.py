"""Users of a blob store: nothing is removed from a store that two Everloops use.

Two Everloops may share a directory or bucket by mistake. Then neither may remove the other's blobs. So each
registers in the store itself, and with a second user nothing is removed until an operator has decided.
"""

from collections.abc import AsyncGenerator
from datetime import timedelta
from urllib.parse import quote

import structlog
from structlog.typing import FilteringBoundLogger
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.runtime.blobs import BlobError, Blobs
from everloop.runtime.temporal.describe import namespace_id

FOLDER = "used-by"
"""Folder of the names of users: id of the Temporal namespace, task queue."""

_LONGEST_QUEUE = 60

_ANY_AGE = timedelta(days=-36_500)
"""Includes names that the clock of the store, or of another machine, dates into the future."""

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
    """Register as a user of the store, and return the registration's key.

    Raises:
        BlobsUnavailableError, RPCError: The store, or Temporal, does not answer.
    """
    namespace = await namespace_id(client)
    # A long queue is shortened to its end, which identifies it better than its beginning.
    ours = f"{FOLDER}/{namespace}/{quote(task_queue, safe='').replace('.', '%2E')[-_LONGEST_QUEUE:]}"
    await blobs.put(ours, b"")
    return ours


async def announce_user(client: Client, blobs: Blobs, task_queue: str) -> None:
    """Register as a user before the store has any payloads, so that the cleanup of others finds it.

    A failure is only a warning: our own housekeeping registers as well.
    """
    if blobs.expires:  # blobs expire by themselves
        return
    try:
        await register_user(blobs, client, task_queue)
    except (BlobError, RPCError) as error:
        _log.warning(
            "use of the blob store not registered", store=blobs.location, error_type=type(error).__name__
        )


async def require_sole_user(blobs: Blobs, client: Client, task_queue: str) -> None:
    """Register as a user of the store, and check that it is the only one.

    Raises:
        BlobsSharedError: The store has another user.
        BlobsUnavailableError, RPCError: The store, or Temporal, does not answer.
    """
    ours = await register_user(blobs, client, task_queue)
    pages = _pages(blobs, FOLDER)
    others = [key.removeprefix(f"{FOLDER}/") async for keys in pages for key in keys if key != ours]
    if others:
        raise BlobsSharedError(blobs.location, others)


async def remove_folder(blobs: Blobs, folder: str) -> list[str]:
    """Remove all blobs of a folder, of any age; return their keys.

    Raises:
        BlobsUnavailableError: Some may be left.
    """
    removed = list[str]()
    async for keys in _pages(blobs, folder):
        for key in keys:
            if not await blobs.remove(key, _ANY_AGE):  # Redis removes it when it expires
                await blobs.delete(key)
        removed += keys
    return removed


async def _pages(blobs: Blobs, folder: str) -> AsyncGenerator[tuple[str, ...]]:
    """Yield the keys of all blobs of a folder, of any age, page by page."""
    cursor: str | None = None
    while cursor != "":
        page = await blobs.list_old(folder, _ANY_AGE, cursor or "")
        yield page.keys
        cursor = page.cursor
