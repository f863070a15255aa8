"""Who uses a blob store: nothing is removed from one that two Everloops use.

Two Everloops can be given the same directory or bucket by mistake. Then neither may remove what the other put
there. So each writes its name into the store itself, and where there is another name nothing is removed until
an operator has decided.
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
            "use of the blob store not registered", store=blobs.location, error_type=type(error).__name__
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
