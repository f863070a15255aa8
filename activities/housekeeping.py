"""Cleaning up the stores, one limited step a call."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from everloop.activities.lease import heartbeating
from everloop.activities.telemetry import record_removed
from everloop.runtime.blobs import Blobs
from everloop.stores.artifacts.cleanup import ArtifactHousekeeping, OrphanedBlobs
from everloop.stores.blobs.cleanup import BlobsSharedError, PayloadCleanup
from everloop.stores.conversations.cleanup import ConversationCleanup
from everloop.stores.retention import Cleaned
from everloop.stores.views.cleanup import ViewCleanup
from everloop.workflows.contract.housekeeping import (
    HOUSEKEEPING_REFUSED,
    CleanInput,
    CleanResult,
    HousekeepingPort,
    Kind,
)

_log: FilteringBoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Lifetimes:
    """How long things are kept after their last change, and payloads after they were last put."""

    conversations: timedelta
    artifacts: timedelta
    payloads: timedelta


class StoreHousekeeping(HousekeepingPort):
    """Cleans up the stores of the Everloop whose workflows wait on a queue.

    Any number of steps may run at once. One that dies is taken again: it finds less to do.
    """

    def __init__(
        self, redis: Redis, blobs: Blobs, client: Client, task_queue: str, lifetimes: Lifetimes
    ) -> None:
        views, artifacts = ViewCleanup(redis), ArtifactHousekeeping(redis, blobs)
        conversations = ConversationCleanup(redis, ttl=lifetimes.conversations)
        orphaned = OrphanedBlobs(redis, blobs, client, task_queue, ttl=lifetimes.artifacts)
        payloads = PayloadCleanup(blobs, client, task_queue, ttl=lifetimes.payloads)
        self._cleaners: dict[Kind, Callable[[CleanInput], Awaitable[Cleaned]]] = {
            Kind.VIEWS: lambda call: views.clean(call.cursor, dry_run=call.dry_run),
            Kind.CONVERSATIONS: lambda call: conversations.clean(dry_run=call.dry_run),
            Kind.ARTIFACTS: lambda call: artifacts.clean_artifacts(call.cursor, dry_run=call.dry_run),
            Kind.PENDING_BLOBS: lambda call: artifacts.clean_pending(dry_run=call.dry_run),
            Kind.ARTIFACT_BLOBS: lambda call: orphaned.clean(call.cursor, dry_run=call.dry_run),
            Kind.PAYLOADS: lambda call: payloads.clean(call.cursor, dry_run=call.dry_run),
        }

    @activity.defn
    async def clean(self, call: CleanInput) -> CleanResult:
        async with heartbeating():
            try:
                cleaned = await self._cleaners[call.kind](call)
            except BlobsSharedError as error:
                _log.warning("housekeeping refused", kind=call.kind, reason=str(error))
                raise ApplicationError(str(error), type=HOUSEKEEPING_REFUSED, non_retryable=True) from None
        if not call.dry_run and cleaned.removed:
            record_removed(call.kind, cleaned.removed)
            _log.info("cleaned up", kind=call.kind, removed=cleaned.removed)
        return CleanResult(removed=cleaned.removed, cursor=cleaned.cursor)
