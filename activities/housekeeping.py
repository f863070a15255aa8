"""Cleaning up the stores, one limited step a call."""

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from everloop.activities.heartbeat import heartbeating
from everloop.activities.telemetry import record_removed
from everloop.runtime.blobs import Blobs
from everloop.stores.artifacts.cleanup import AbandonedBlobs, ArtifactHousekeeping
from everloop.stores.blobs.cleanup import BlobsSharedError, PayloadCleanup
from everloop.stores.cleaned import Cleaned
from everloop.stores.conversations import ConversationCleanup
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
class Cleaners:
    """Who removes what."""

    views: ViewCleanup
    conversations: ConversationCleanup
    artifacts: ArtifactHousekeeping
    artifact_blobs: AbandonedBlobs
    payloads: PayloadCleanup


@dataclass(frozen=True)
class Lifetimes:
    """How long things are kept after their last change, and payloads after they were last put."""

    conversations: timedelta
    artifacts: timedelta
    payloads: timedelta


class StoreHousekeeping(HousekeepingPort):
    """Any number of steps may run at once. One that dies is taken again: it finds less to do."""

    def __init__(self, cleaners: Cleaners) -> None:
        self._cleaners = cleaners

    @activity.defn
    async def clean_views(self, call: CleanInput) -> CleanResult:
        return await _step(Kind.VIEWS, call, self._cleaners.views.clean(call.cursor, dry_run=call.dry_run))

    @activity.defn
    async def clean_conversations(self, call: CleanInput) -> CleanResult:
        work = self._cleaners.conversations.clean(dry_run=call.dry_run)
        return await _step(Kind.CONVERSATIONS, call, work)

    @activity.defn
    async def clean_artifacts(self, call: CleanInput) -> CleanResult:
        work = self._cleaners.artifacts.clean_artifacts(call.cursor, dry_run=call.dry_run)
        return await _step(Kind.ARTIFACTS, call, work)

    @activity.defn
    async def clean_pending_blobs(self, call: CleanInput) -> CleanResult:
        work = self._cleaners.artifacts.clean_pending(dry_run=call.dry_run)
        return await _step(Kind.PENDING_BLOBS, call, work)

    @activity.defn
    async def clean_artifact_blobs(self, call: CleanInput) -> CleanResult:
        work = self._cleaners.artifact_blobs.clean(call.cursor, dry_run=call.dry_run)
        return await _step(Kind.ARTIFACT_BLOBS, call, work)

    @activity.defn
    async def clean_payloads(self, call: CleanInput) -> CleanResult:
        work = self._cleaners.payloads.clean(call.cursor, dry_run=call.dry_run)
        return await _step(Kind.PAYLOADS, call, work)


def make_housekeeping(
    redis: Redis, blobs: Blobs, client: Client, task_queue: str, lifetimes: Lifetimes
) -> HousekeepingPort:
    """Return what cleans up the stores of the Everloop whose workflows wait on this queue."""
    return StoreHousekeeping(
        Cleaners(
            ViewCleanup(redis),
            ConversationCleanup(redis, ttl=lifetimes.conversations),
            ArtifactHousekeeping(redis, blobs),
            AbandonedBlobs(redis, blobs, client, task_queue, ttl=lifetimes.artifacts),
            PayloadCleanup(blobs, client, task_queue, ttl=lifetimes.payloads),
        )
    )


async def _step(kind: Kind, call: CleanInput, work: Awaitable[Cleaned]) -> CleanResult:
    """Do a step, and count what it has removed.

    Raises:
        ApplicationError: nobody knows what is still needed.
    """
    async with heartbeating():
        try:
            cleaned = await work
        except BlobsSharedError as error:
            _log.warning("housekeeping refused", kind=kind, reason=str(error))
            raise ApplicationError(str(error), type=HOUSEKEEPING_REFUSED, non_retryable=True) from None
    if not call.dry_run and cleaned.removed:
        record_removed(kind, cleaned.removed)
        _log.info("cleaned up", kind=kind, removed=cleaned.removed)
    return CleanResult(removed=cleaned.removed, cursor=cleaned.cursor)
