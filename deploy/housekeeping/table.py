"""What the housekeeping did, on a terminal."""

from collections.abc import Sequence

from deploy.housekeeping.runs import PastRun, ScheduleStatus
from workflows.contract.housekeeping import HousekeepingResult, Kind, KindResult

NAMES = {
    Kind.VIEWS: "expired views",
    Kind.CONVERSATIONS: "conversations",
    Kind.ARTIFACTS: "artifacts",
    Kind.PENDING_BLOBS: "blobs of changes that were never made",
    Kind.ARTIFACT_BLOBS: "blobs that no artifact names",
    Kind.PAYLOADS: "payloads of workflows that are gone",
}


def table(result: HousekeepingResult) -> str:
    """Return what a run did, a kind a line."""
    head = ("KIND", "WOULD BE REMOVED" if result.dry_run else "REMOVED", "")
    return _columns([head, *(_row(kind, done) for kind, done in result.kinds.items())])


def failures(result: HousekeepingResult) -> list[str]:
    """Return, for each kind that could not be cleaned up, why."""
    return [f"{NAMES[kind]}: {done.failure}" for kind, done in result.kinds.items() if done.failure]


def status_lines(status: ScheduleStatus) -> str:
    """Return how the schedule stands, and its last runs."""
    paused = f"yes ({status.note})" if status.note else "yes"
    head = [
        f"schedule  {status.schedule_id}",
        f"paused    {paused if status.is_paused else 'no'}",
        f"next run  {f'{status.next_run:%Y-%m-%d %H:%M:%S %Z}' if status.next_run else '-'}",
    ]
    if not status.last_runs:
        return "\n".join([*head, "it has not run yet"])
    runs = [("LAST RUNS", "STATUS", "REMOVED", "FAILED"), *map(_run_row, status.last_runs)]
    return "\n".join([*head, _columns(runs)])


def _row(kind: Kind, done: KindResult) -> tuple[str, str, str]:
    remark = "failed" if done.failure else "more is left" if done.cursor else ""
    return NAMES[kind], str(done.removed), remark


def _run_row(run: PastRun) -> tuple[str, str, str, str]:
    started = f"{run.started:%Y-%m-%d %H:%M:%S %Z}"
    if run.result is None:
        return started, run.status, "-", "-"
    removed = sum(done.removed for done in run.result.kinds.values())
    failed = ", ".join(kind for kind, done in run.result.kinds.items() if done.failure)
    return started, run.status, str(removed), failed or "-"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(map(str.rstrip, lines))
