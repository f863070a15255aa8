"""Cleanup of one kind of data after the other; a schedule starts it every few minutes."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.workflow import ActivityConfig

from everloop.workflows.contract.housekeeping_payloads import (
    HOUSEKEEPING_WORKFLOW_TYPE,
    CleanInput,
    CleanResult,
    HousekeepingInput,
    HousekeepingPort,
    HousekeepingResult,
    Kind,
    KindResult,
)

ROUNDS = 20
"""Maximum steps of one kind in a run; the next run continues there."""

DRY_ROUNDS = 500
"""The same for a run that only counts: no other run continues it."""

SEARCH_PAUSE = timedelta(hours=1)
"""Pause between two searches through all stored data."""


SEARCHES = frozenset({Kind.VIEWS, Kind.ARTIFACT_BLOBS, Kind.PAYLOADS})
"""Kinds that need a search through all data, because there is no index of expired ones."""


@workflow.defn(name=HOUSEKEEPING_WORKFLOW_TYPE)
class Housekeeping:
    """Takes a limited number of steps for each kind. A failed kind does not stop the others.

    The schedule passes each run the result of the one before, so that searches continue where they
    ended, and restart only after a pause. A run that a person starts searches everything from the
    beginning.
    """

    @workflow.run
    async def run(self, request: HousekeepingInput) -> HousekeepingResult:
        before = _last_result()
        kinds: dict[Kind, KindResult] = {}
        for kind in Kind:
            previous = before.kinds.get(kind, KindResult())
            kinds[kind] = await self._clean(kind, request, previous)
        return HousekeepingResult(dry_run=request.dry_run, kinds=kinds)

    async def _clean(self, kind: Kind, request: HousekeepingInput, previous: KindResult) -> KindResult:
        if kind in SEARCHES and not previous.cursor and _is_recent(previous):
            return previous.model_copy(update={"removed": 0})
        removed, cursor = 0, previous.cursor
        for _ in range(DRY_ROUNDS if request.dry_run else ROUNDS):
            call = CleanInput(kind=kind, dry_run=request.dry_run, cursor=cursor)
            try:
                cleaned = await _execute(call)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                # The next run starts from the beginning: the cursor may be the cause.
                return KindResult(removed=removed, failure=str(error.cause or error))
            removed, cursor = removed + cleaned.removed, cleaned.cursor
            if not cursor:
                return KindResult(removed=removed, finished_at=workflow.now())
        return KindResult(removed=removed, cursor=cursor, finished_at=previous.finished_at)


async def _execute(call: CleanInput) -> CleanResult:
    summary = f"count {call.kind}" if call.dry_run else f"clean up {call.kind}"
    return await workflow.execute_activity_method(HousekeepingPort.clean, call, **_options(summary))


def _options(summary: str) -> ActivityConfig:
    """Return the options of a step. A store that is unavailable for longer is left to the next run."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(minutes=5),
        schedule_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_attempts=3),
        summary=summary,
    )


def _last_result() -> HousekeepingResult:
    return workflow.get_last_completion_result(HousekeepingResult) or HousekeepingResult()


def _is_recent(result: KindResult) -> bool:
    return result.finished_at is not None and workflow.now() - result.finished_at < SEARCH_PAUSE
