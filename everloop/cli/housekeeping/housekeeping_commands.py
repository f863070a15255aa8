"""`everloop housekeeping` and `everloop reindex`: remove expired data, restore views that Redis lost."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from everloop.cli.output import (
    FAILED,
    NOTHING,
    AsJson,
    CommandError,
    option,
    print_fields,
    print_json,
    print_line,
    print_notice,
    print_table,
)
from everloop.cli.server_commands import run_on_servers, use_local_stack

if TYPE_CHECKING:
    from everloop.cli.housekeeping.housekeeping_runs import HousekeepingRun, HousekeepingRuns, ScheduleStatus
    from everloop.cli.reindex.progress import ReindexProgress
    from everloop.workflows.contract.housekeeping_payloads import HousekeepingResult, KindResult

T = TypeVar("T")

TIME = "%Y-%m-%d %H:%M:%S %Z"

NOTICE = 5.0
"""Seconds after which a run reports the reason of its wait."""

NAMES = {
    "views": "expired views",
    "conversations": "conversations",
    "artifacts": "artifacts",
    "pending-blobs": "blobs of changes that were never made",
    "artifact-blobs": "blobs that no artifact names",
    "payloads": "payloads of workflows that are gone",
    "retentions": "deletions of what was kept for a time",
}
"""Names of the kinds of housekeeping in tables."""

commands = typer.Typer()
app = typer.Typer(
    no_args_is_help=True,
    help="Remove data that is no longer needed.",
    epilog="A schedule of Temporal does it every five minutes: docs/operation/housekeeping.md.",
)


@app.command()
def run(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; show what would be removed now.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Clean up now, and show what was removed. A worker has to run."""
    result = _run_with_schedule(lambda runs: _run(runs, dry_run=dry_run))
    failures = {NAMES[kind]: done.failure for kind, done in result.kinds.items() if done.failure}
    if as_json:
        print_json(_run_data(result))
    else:
        head = ("KIND", "WOULD BE REMOVED" if dry_run else "REMOVED", "")
        print_table(head, [_run_row(NAMES[kind], done) for kind, done in result.kinds.items()])
    for name, failure in failures.items():
        print_notice(f"{name}: {failure}")
    raise typer.Exit(FAILED if failures else 0)


@app.command()
def status(*, as_json: AsJson = False) -> None:
    """Show when the schedule runs next, and how its last runs went."""
    schedule = _run_with_schedule(lambda runs: runs.status())
    if as_json:
        print_json(_status_data(schedule))
        return
    paused = f"yes ({schedule.note})" if schedule.note else "yes"
    fields = {
        "schedule": schedule.schedule_id,
        "paused": paused if schedule.is_paused else "no",
        "next run": f"{schedule.next_run:{TIME}}" if schedule.next_run else NOTHING,
    }
    print_fields(fields)
    print_line("")
    if schedule.last_runs:
        print_table(("LAST RUNS", "STATUS", "REMOVED", "FAILED"), list(map(_past_row, schedule.last_runs)))
    else:
        print_line("It has not run yet.")


def _run_with_schedule(ask: "Callable[[HousekeepingRuns], Awaitable[T]]") -> T:
    """Connect to Temporal, and return its answer.

    Raises:
        CommandError: Temporal does not answer, or not in time.
    """
    from everloop.cli.housekeeping.housekeeping_runs import HousekeepingError, connected_runs

    use_local_stack()

    async def answer() -> T:
        return await ask(await connected_runs())

    return run_on_servers(
        answer(), HousekeepingError, interrupted="interrupted; a run that has begun goes on"
    )


async def _run(runs: "HousekeepingRuns", *, dry_run: bool) -> "HousekeepingResult":
    notice = f"a worker of the queue {runs.task_queue} (EVERLOOP_TASK_QUEUE) has to do it; waiting"
    timer = asyncio.get_running_loop().call_later(NOTICE, print_notice, notice)
    try:
        return await runs.run(dry_run=dry_run)
    finally:
        timer.cancel()


def _run_row(name: str, done: "KindResult") -> tuple[str, str, str]:
    return name, str(done.removed), "failed" if done.failure else "more is left" if done.cursor else ""


def _run_data(result: "HousekeepingResult") -> dict[str, object]:
    return {
        "dry_run": result.dry_run,
        "kinds": {
            str(kind): {"removed": done.removed, "is_done": not done.cursor, "failure": done.failure or None}
            for kind, done in result.kinds.items()
        },
    }


def _past_row(run: "HousekeepingRun") -> tuple[str, str, str, str]:
    started = f"{run.started:{TIME}}"
    if run.result is None:
        return started, run.status, NOTHING, NOTHING
    failed = ", ".join(kind for kind, done in run.result.kinds.items() if done.failure)
    return started, run.status, str(_removed(run.result)), failed or NOTHING


def _status_data(schedule: "ScheduleStatus") -> dict[str, object]:
    return {
        "schedule": schedule.schedule_id,
        "is_paused": schedule.is_paused,
        "note": schedule.note or None,
        "next_run": schedule.next_run.isoformat() if schedule.next_run else None,
        "last_runs": [
            {
                "started": run.started.isoformat(),
                "workflow_id": run.workflow_id,
                "status": run.status,
                "result": _run_data(run.result) if run.result else None,
            }
            for run in schedule.last_runs
        ],
    }


def _removed(result: "HousekeepingResult") -> int:
    return sum(done.removed for done in result.kinds.values())


AT_ONCE = 10
MOST_AT_ONCE = 1000


@commands.command(
    rich_help_panel="Operate",
    epilog="Servers are found as workers and gateways find them (TEMPORAL_ADDRESS, EVERLOOP_REDIS_URL, "
    "EVERLOOP_BLOBS and what belongs to it). What comes back, and what does not: "
    "docs/operation/housekeeping.md.",
)
def reindex(
    agent: Annotated[str, option("ID", "Only tasks of this agent.")] = "",
    owner: Annotated[str, option("NAME", "Only tasks of this owner.")] = "",
    at_once: Annotated[
        int,
        option("N", "How many tasks are asked at once; each costs a worker a replay.", most=MOST_AT_ONCE),
    ] = AT_ONCE,
    *,
    as_json: AsJson = False,
) -> None:
    """Rebuild what Redis shows of tasks from Temporal.

    Run it when Redis was lost, while workers and gateways run: workers answer for their tasks. Run it again,
    from the beginning, as often as you like: nothing that is newer is overwritten.
    """
    progress = _rebuilt(agent, owner, at_once)
    for task_id, reason in sorted(progress.failed.items()):
        print_notice(f"task {task_id} not restored: {reason}")
    if as_json:
        print_json(progress.result)
    else:
        print_line(progress.summary)
    raise typer.Exit(FAILED if progress.failed else 0)


def _rebuilt(agent: str, owner: str, at_once: int) -> "ReindexProgress":
    from redis.exceptions import RedisError
    from temporalio.service import RPCError

    from everloop.cli.reindex.progress import ReindexProgress
    from everloop.cli.reindex.rebuild import rebuild

    use_local_stack()
    progress = ReindexProgress(sys.stderr)
    work = rebuild(agent, owner, at_once, progress)
    interrupted = "interrupted; what is done stays done: run it again for the rest"
    try:
        run_on_servers(work, interrupted=interrupted)
    except RPCError as error:
        problem = f"({error.status.name}: {error.message})"
        raise CommandError(f"Temporal does not list tasks {problem}; run it again") from error
    except (RedisError, OSError) as error:
        raise CommandError(f"Redis does not answer: {error}; run it again") from error
    return progress
