"""Cleaning up the stores, one limited step a call."""

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
from everloop.runtime.temporal.deletions import Deletions
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.retention.artifacts import ExpiredArtifacts, OrphanedBlobs, PendingBlobs
from everloop.stores.retention.cleaned import Cleaner
from everloop.stores.retention.conversations import ExpiredConversations
from everloop.stores.retention.payloads import UnknownPayloads
from everloop.stores.retention.retentions import Retentions
from everloop.stores.retention.users import BlobsSharedError
from everloop.stores.retention.views import ExpiredViews
from everloop.workflows.contract.housekeeping_payloads import (
    HOUSEKEEPING_REFUSED,
    CleanInput,
    CleanResult,
    HousekeepingPort,
    Kind,
)

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class StoreHousekeeping(HousekeepingPort):
    """Cleans up the stores of an Everloop, which is identified by the queue of its workflows.

    Steps may run concurrently. A step that dies is repeated, and finds less to do. `payload_ttl` counts from
    the last write of a payload.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- what is cleaned up, and how old it is by then
        self,
        redis: Redis,
        blobs: Blobs,
        client: Client,
        task_queue: str,
        retention: RetentionSettings,
        payload_ttl: timedelta,
    ) -> None:
        self._cleaners: dict[Kind, Cleaner] = {
            Kind.VIEWS: ExpiredViews(redis),
            Kind.CONVERSATIONS: ExpiredConversations(redis, ttl=retention.conversation_ttl),
            Kind.ARTIFACTS: ExpiredArtifacts(redis, blobs),
            Kind.PENDING_BLOBS: PendingBlobs(redis, blobs),
            Kind.ARTIFACT_BLOBS: OrphanedBlobs(redis, blobs, client, task_queue, ttl=retention.artifact_ttl),
            Kind.RETENTIONS: Retentions(redis, blobs, Deletions(client, task_queue)),
            Kind.PAYLOADS: UnknownPayloads(blobs, client, task_queue, ttl=payload_ttl),
        }

    @activity.defn
    async def clean(self, call: CleanInput) -> CleanResult:
        async with heartbeating():
            try:
                cleaned = await self._cleaners[call.kind].clean(call.cursor, dry_run=call.dry_run)
            except BlobsSharedError as error:
                _log.warning("housekeeping refused", kind=call.kind, reason=str(error))
                raise ApplicationError(str(error), type=HOUSEKEEPING_REFUSED, non_retryable=True) from None
        if not call.dry_run and cleaned.removed:
            record_removed(call.kind, cleaned.removed)
            _log.info("cleaned up", kind=call.kind, removed=cleaned.removed)
        return CleanResult(removed=cleaned.removed, cursor=cleaned.cursor)
