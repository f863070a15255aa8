"""Who uses a blob store, written into the store itself: what one user does not know, another may need.

Two Everloops can be given the same directory or bucket by mistake. Then neither may remove what the other
put there, so nothing is removed until an operator has settled it.
"""

from datetime import timedelta
from urllib.parse import quote

import structlog
from structlog.typing import FilteringBoundLogger
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.runtime.blobs import BlobError, BlobListing, Blobs

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


async def namespace_id(client: Client) -> str:
    """Return the id of the namespace: another one of the same name has another id.

    Raises:
        RPCError: Temporal does not answer, or there is no such namespace.
    """
    request = DescribeNamespaceRequest(namespace=client.namespace)
    described = await client.workflow_service.describe_namespace(request, retry=True)
    return described.namespace_info.id


async def register_user(blobs: Blobs, namespace: str, task_queue: str) -> str:
    """Put down that we use this store, and return where.

    Raises:
        BlobsUnavailableError: the store is away.
    """
    # A queue that is too long for a key stands there by its end, which tells more than its beginning.
    ours = f"{FOLDER}/{namespace}/{quote(task_queue, safe='').replace('.', '%2E')[-_LONGEST_QUEUE:]}"
    await blobs.put(ours, b"")
    return ours


async def announce_user(client: Client, blobs: Blobs, task_queue: str) -> None:
    """Put down that we use this store before anything is in it, so that others who clean it up know.

    What fails is a warning: our own housekeeping puts it down as well.
    """
    if (listing := blobs.listing) is None or listing.expires:  # nobody removes anything there
        return
    try:
        await register_user(blobs, await namespace_id(client), task_queue)
    except (BlobError, RPCError) as error:
        _log.warning(
            "use of the blob store not put down", store=blobs.location, error_type=type(error).__name__
        )


async def require_sole_user(blobs: Blobs, listing: BlobListing, namespace: str, task_queue: str) -> None:
    """Put down that we use this store, and make sure that nobody else does.

    Raises:
        BlobsSharedError: somebody else does.
        BlobsUnavailableError: the store does not tell now.
    """
    ours = await register_user(blobs, namespace, task_queue)
    others: list[str] = []
    cursor, is_last = "", False
    while not is_last:
        page = await listing.list_old(FOLDER, _ANY_AGE, cursor)
        others += [key.removeprefix(f"{FOLDER}/") for key in page.keys if key != ours]
        cursor, is_last = page.cursor, not page.cursor
    if others:
        raise BlobsSharedError(blobs.location, others)
