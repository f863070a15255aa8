"""Publishes the events of a task: of its activities, its status changes and its end."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.store_retries import suppress_store_errors
from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, BlobsUnavailableError
from everloop.runtime.telemetry.instruments import record_statuses
from everloop.stores.artifacts.artifact_errors import ArtifactClosedError, ArtifactMissingError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Complete, Fail
from everloop.stores.artifacts.publisher import ArtifactPublisher, Reading, is_logged
from everloop.stores.artifacts.rendering import Contents, read_contents
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import Published
from everloop.stores.scripts import Lease, Step
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.calls import PublishInput, SaveContextInput, SaveContextResult
from everloop.workflows.contract.events import FINAL_ATTEMPT, StatusChanged, TaskEvent
from everloop.workflows.contract.failures import FILES_UNAVAILABLE
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.ports import ContextPort, PublishPort
from everloop.workflows.contract.tasks import TaskRef, TaskState

_log = structlog.get_logger()


async def publish_events(
    views: TaskViews, task: TaskRef, events: Sequence[TaskEvent], lease: Lease | None = None
) -> None:
    """Publish events. A status counts in the metrics when it is new: a repeated call counts nothing.

    Without a lease only events that the fold applies once are allowed: statuses, and chunks of artifacts.

    Raises:
        OvertakenError: A later attempt has claimed the call.
    """
    if events:
        await run_steps(views, task, views.publishing(task.task_id, task.run_id, events, lease))


async def run_steps(views: TaskViews, task: TaskRef, *steps: Step[Any]) -> tuple[Any, ...]:
    """Run steps at the keys of a task in one round trip, and count the statuses that they publish.

    Raises:
        OvertakenError: A later attempt has claimed the call of a step.
    """
    replies = await views.run(*steps)
    for reply in replies:
        if isinstance(reply, Published):
            record_statuses(task.agent_id, reply.states)
    return replies


async def try_publish(views: TaskViews, task: TaskRef, events: Sequence[TaskEvent], lease: Lease) -> bool:
    """Publish events; return True if that worked.

    Raises:
        OvertakenError: A later attempt has claimed the call.
    """
    with suppress_store_errors("events not published"):
        await publish_events(views, task, events, lease)
        return True
    return False


# The end of a task for its artifacts: they get no more writes, and subscribers no more events.

_AFTER_ALL_CALLS = FINAL_ATTEMPT
"""Position of these chunks, after every reply and result: transcripts never get so long."""


MAX_OUTAGE = 10.0
"""Total seconds for reading the artifacts of a task that did not complete."""


async def finalize_artifacts(  # noqa: PLR0913, PLR0917 -- the task, its end, and its stores
    artifacts: Artifacts,
    views: TaskViews,
    task: TaskRef,
    state: TaskState,
    written: Sequence[StoredArtifact],
    max_outage: float = MAX_OUTAGE,
) -> None:
    """Close the artifacts of a task, and publish those for which the log is behind the store.

    Artifacts are completed if the task completed, and fail if not. A completing task waits while the blob
    store is unavailable. Any other renders content as a link if it cannot be read in time. Repeating it is
    safe.

    Raises:
        BlobsUnavailableError, RedisError: A store is unavailable; some artifacts may be closed already.
    """
    is_completed = state is TaskState.COMPLETED
    reading = read_contents if is_completed else _reading_for(max_outage)
    published = ArtifactPublisher(artifacts, task, _AFTER_ALL_CALLS, views, reading=reading)
    context = context_key(task.owner, task.context_id)
    for artifact in written:
        if artifact.status is ArtifactStatus.BUILDING:
            await _close(published, artifact, Complete() if is_completed else Fail())
    logged = await views.logged_artifacts(task.task_id)
    stale = [each.artifact_id for each in written if not is_logged(logged.get(each.artifact_id), each)]
    stale += [artifact_id for artifact_id, each in logged.items() if each.state != "complete"]
    for artifact_id in dict.fromkeys(stale):
        await published.reconcile(context, artifact_id, is_over=is_completed)


async def list_written(artifacts: Artifacts, task: TaskRef) -> list[StoredArtifact]:
    """Return the artifacts that a task has written."""
    listed = await artifacts.list_artifacts(context_key(task.owner, task.context_id), task.task_id)
    return [artifact for artifact in listed if not artifact.is_input]


def _reading_for(seconds: float) -> Reading:
    """Return a function that reads contents until so many seconds from now, and treats the rest as lost."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds

    async def read_in_time(
        artifacts: Artifacts, artifact: StoredArtifact, indexes: Iterable[int]
    ) -> Contents:
        return {index: await read_part(artifacts, artifact, index) for index in indexes}

    async def read_part(artifacts: Artifacts, artifact: StoredArtifact, index: int) -> bytes | None:
        if (left := end - clock()) <= 0:
            return None
        # Not asyncio.timeout: in Python 3.11 Redis' client may lose the one cancellation that this sends.
        reading = asyncio.create_task(read_contents(artifacts, artifact, (index,)))
        try:
            await asyncio.wait({reading}, timeout=left)
            return reading.result()[index] if reading.done() else None
        except BlobsUnavailableError:
            return None
        finally:
            reading.cancel()

    return read_in_time


async def _close(published: ArtifactPublisher, artifact: StoredArtifact, change: Complete | Fail) -> None:
    key = artifact.context_id, artifact.artifact_id
    # It may have been closed or deleted since it was listed.
    with suppress(ArtifactClosedError, ArtifactMissingError):
        try:
            await published.apply(*key, change)
        except (BlobMissingError, BlobCorruptError):
            # It can never be completed.
            await published.apply(*key, Fail())


TRIES_TO_REMEMBER = 10
"""After so many attempts, about a minute, a task ends without storing its conversation."""


class ViewPublisher(PublishPort):
    """Writes to the views and streams that gateways read.

    When a task ends, its artifacts are closed first, because subscribers leave after the last status. The
    store then deletes the task's secrets.
    """

    def __init__(self, views: TaskViews, artifacts: Artifacts, context: ContextPort | None = None) -> None:
        self._views = views
        self._context = context
        self._artifacts = artifacts

    @activity.defn
    async def publish(self, call: PublishInput) -> SaveContextResult | None:
        if call.opening:
            await self._views.create(call.opening)
        states = (event.state for event in call.events if isinstance(event, StatusChanged))
        end = next((state for state in states if state.is_terminal), None)
        remembered, written = await asyncio.gather(
            self._remember(call.remember), self._end_written(call.task, end), return_exceptions=True
        )
        if isinstance(written, BaseException):
            raise written
        if isinstance(remembered, BaseException):
            raise remembered
        if end and not written and await self._views.logged_artifacts(call.task.task_id):
            await self._end_artifacts(call.task, end, ())  # the log has some that the store lacks
        await publish_events(self._views, call.task, call.events)
        return remembered

    async def _remember(self, conversation: SaveContextInput | None) -> SaveContextResult | None:
        if not conversation or not self._context:
            return None
        try:
            return await self._context.save_context(conversation)
        except ApplicationError:
            raise
        except Exception as error:
            if activity.info().attempt < TRIES_TO_REMEMBER:
                raise
            _log.warning("conversation not kept", error_type=type(error).__name__)
            return None

    async def _end_written(self, task: TaskRef, end: TaskState | None) -> bool:
        """Close the artifacts of a task that ends; return True if it has written any."""
        if end is None:
            return False
        if written := await list_written(self._artifacts, task):
            await self._end_artifacts(task, end, written)
        return bool(written)

    async def _end_artifacts(self, task: TaskRef, end: TaskState, written: Sequence[StoredArtifact]) -> None:
        try:
            await finalize_artifacts(self._artifacts, self._views, task, end, written)
        except BlobsUnavailableError as error:
            _log.warning("artifacts not closed", error_type=type(error).__name__)
            # The error's own text would write the store's address into the history of the workflow.
            problem = "the artifacts of the task cannot be completed now: their store is away"
            raise ApplicationError(problem, type=FILES_UNAVAILABLE) from None
