"""Temporal payloads too large for history: stored as blobs, with a reference in history."""

import asyncio
import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import quote

import structlog
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    SerializationContext,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, Blobs, in_hashing_thread, sha256
from everloop.runtime.encryption.cipher import NO_CIPHER, Cipher
from everloop.runtime.temporal.describe import describe, is_not_found
from everloop.runtime.temporal.encryption_codec import EncryptionCodec
from everloop.runtime.temporal.failure_converters import EncryptedFailureConverter, PayloadFailureConverter
from everloop.workflows.contract.failures import BLOB_MISSING
from everloop.workflows.contract.payloads import WirePayloadConverter

# The end of workflows that cannot go on because a payload in their history is lost.

CALL_TIMEOUT = timedelta(seconds=3)
"""Timeout per call; the first ones must fit into a workflow task (10 s)."""

_READ_IN_A_REPLAY = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
        EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_MARKER_RECORDED,
    }
)
"""Events whose payloads a workflow reads; a replay makes the payloads it sent itself again."""

_log = structlog.get_logger()


class MissingPayloads:
    """Handling of payloads that are lost for good. Set `client` once it is connected.

    The SDK fails a workflow that reads the payload for the first time. In a replay Temporal refuses
    that end, because history continues differently, and retries the workflow task for ever. So a
    workflow whose workflow task has failed before, and which reads this payload in each replay, is
    terminated.
    """

    def __init__(self) -> None:
        self.client: Client | None = None

    async def report(self, workflow_id: str, key: str, reason: str) -> None:
        """Terminate the workflow that needs the blob `key`: this one, or its parent.

        The SDK does not say which run reads. It may be an older one, for a query, or the parent, for
        the result of a child. A failure is logged only: the next workflow task gets here again.
        """
        if not self.client:
            return
        for stuck_id in {workflow_id, workflow_id.rpartition("/")[0] or workflow_id}:
            try:
                await _end_if_stuck(self.client, stuck_id, key, reason)
            except RPCError as error:
                if not is_not_found(error):  # or else it has ended meanwhile
                    _log.warning(
                        "a task without its payload was not ended", task_id=stuck_id, error=str(error)
                    )


async def _end_if_stuck(client: Client, workflow_id: str, key: str, reason: str) -> None:
    newest = await describe(client, workflow_id, rpc_timeout=CALL_TIMEOUT)
    if newest.attempt <= 1:
        return
    # Of this run only: one that begins meanwhile is another matter.
    run = client.get_workflow_handle(workflow_id, run_id=newest.run_id)
    if await _reads(run, key.encode()):
        await run.terminate(reason=reason, rpc_timeout=CALL_TIMEOUT)
        _log.error("task terminated: its payload is lost", task_id=workflow_id, reason=reason)


async def _reads(run: WorkflowHandle[object, object], key: bytes) -> bool:
    """Return True if a replay of this run reads the blob."""
    async for event in run.fetch_history_events(rpc_timeout=CALL_TIMEOUT):
        if event.event_type in _READ_IN_A_REPLAY and key in event.SerializeToString():
            return True
    return False


THRESHOLD = 256 * 1024
"""Minimum size in bytes of payloads that become blobs."""

DRIVER = "everloop-blobs"
"""Part of every reference in histories: never rename it."""

PAYLOADS = "payloads"
"""Parent folder of the tasks' folders."""

NO_TASK = "none"
"""Folder of payloads without a workflow, such as those of a standalone activity."""

_KEY = "key"
_LONGEST_WORD = 200
_ADVICE = (
    "restore the blob, or give all workers and gateways the EVERLOOP_BLOBS settings it was stored with; "
    "then reset the task"
)


def payload_folder(workflow_id: str) -> str:
    """Return the folder of the payloads of a task and its child tasks, whose ids begin with its own and /.

    They share a folder, because the history of each names payloads of the others.
    """
    task = quote(workflow_id.partition("/")[0], safe="").replace(".", "%2E")
    if len(task) > _LONGEST_WORD:
        task = hashlib.sha256(task.encode()).hexdigest()
    return f"{PAYLOADS}/{task}"


class BlobPayloads(StorageDriver):
    """Stores each encoded payload under a key of task and content hash: equal ones are one blob.

    A lost payload is a non-retryable failure of type BLOB_MISSING: retries would never end. Temporal
    retries all other failures of the store. `workflow_id`: the workflow that it serves.
    """

    def __init__(self, blobs: Blobs, lost: MissingPayloads | None = None, workflow_id: str = "") -> None:
        self._blobs = blobs
        self._lost = lost
        self._workflow_id = workflow_id
        """The workflow that reads; results of activities and children count as its own."""

    def bound_to(self, workflow_id: str) -> "BlobPayloads":
        """Return the same driver for one workflow and its activities."""
        return BlobPayloads(self._blobs, self._lost, workflow_id)

    def name(self) -> str:
        return DRIVER

    def type(self) -> str:
        return DRIVER

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        folder = payload_folder(self._task_of(context))
        return list(await asyncio.gather(*(self._store(folder, payload) for payload in payloads)))

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return list(await asyncio.gather(*(self._retrieve(claim) for claim in claims)))

    def _task_of(self, context: StorageDriverStoreContext) -> str:
        if isinstance(context.target, StorageDriverWorkflowInfo) and context.target.id:
            return context.target.id
        return self._workflow_id or NO_TASK  # the target of heartbeats names the activity alone

    async def _store(self, folder: str, payload: Payload) -> StorageDriverClaim:
        serialized = payload.SerializeToString(deterministic=True)
        key = f"{folder}/{await in_hashing_thread(lambda: sha256(serialized))}"
        await self._blobs.put(key, serialized)
        return StorageDriverClaim({_KEY: key})

    async def _retrieve(self, claim: StorageDriverClaim) -> Payload:
        key = claim.claim_data[_KEY]
        try:
            return Payload.FromString(await self._blobs.get(key))
        except (BlobMissingError, BlobCorruptError) as error:
            _log.error("a payload is lost", reason=str(error), store=self._blobs.location, advice=_ADVICE)
            if self._lost and self._workflow_id:
                await self._lost.report(self._workflow_id, key, str(error))
            raise ApplicationError(str(error), type=BLOB_MISSING, non_retryable=True) from None


MOST_BOUND = 100
"""Number of workflows with a cached converter."""


@dataclass(frozen=True)
class BlobDataConverter(DataConverter):
    """Binds drivers to their workflow.

    The SDK requests a converter with a context several times per payload; each workflow has one.
    """

    bound: dict[str, DataConverter] = field(
        default_factory=dict[str, DataConverter], repr=False, compare=False
    )

    def with_context(self, context: SerializationContext) -> DataConverter:
        return self._bound_to(_workflow_of(context))

    def _with_store_context(self, store_ctx: StorageDriverStoreContext) -> DataConverter:
        """Ignore the SDK's second notification of the workflow, which would cost one more copy."""
        target = store_ctx.target
        if isinstance(target, StorageDriverWorkflowInfo) and target.id:
            return self._bound_to(target.id)
        return self

    def _bound_to(self, workflow_id: str) -> DataConverter:
        if workflow_id not in self.bound:
            if len(self.bound) >= MOST_BOUND:
                self.bound.clear()
            self.bound[workflow_id] = dataclasses.replace(
                self, external_storage=self._storage_for(workflow_id)
            )
        return self.bound[workflow_id]

    def _storage_for(self, workflow_id: str) -> ExternalStorage | None:
        if not (storage := self.external_storage):
            return None
        drivers = [d.bound_to(workflow_id) if isinstance(d, BlobPayloads) else d for d in storage.drivers]
        return dataclasses.replace(storage, drivers=drivers)


def _workflow_of(context: SerializationContext) -> str:
    return getattr(context, "workflow_id", None) or ""  # Nexus has none


def data_converter(
    blobs: Blobs | None, lost: MissingPayloads | None = None, cipher: Cipher = NO_CIPHER
) -> DataConverter:
    """Return the converter of all payloads; without `blobs` large ones stay in history.

    A reader of histories, a Replayer too, needs the same blob store and encryption keys. A worker
    passes `lost`, which ends workflows that cannot continue. Payloads are encrypted before they become
    blobs, references are not.
    """
    storage = (
        ExternalStorage([BlobPayloads(blobs, lost)], payload_size_threshold=THRESHOLD) if blobs else None
    )
    return BlobDataConverter(
        payload_converter_class=WirePayloadConverter,
        external_storage=storage,
        payload_codec=EncryptionCodec(cipher, repeatable_from=THRESHOLD),
        failure_converter_class=EncryptedFailureConverter if cipher.is_on else PayloadFailureConverter,
    )
