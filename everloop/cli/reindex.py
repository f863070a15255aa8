"""`everloop reindex`: rebuild what Redis shows of tasks from Temporal."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from everloop.cli.errors import FAILED, CommandError, reported, tell
from everloop.cli.servers import use_local_stack
from everloop.cli.tables import AsJson, print_json, print_line

if TYPE_CHECKING:
    from everloop.deploy.reindex.progress import Progress

AT_ONCE = 10
MOST_AT_ONCE = 1000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel="Operate",
        epilog="Servers are found as workers and gateways find them (TEMPORAL_ADDRESS, EVERLOOP_REDIS_URL, "
        "EVERLOOP_BLOBS and what belongs to it). What comes back, and what does not: docs/housekeeping.md.",
    )(reindex)


def reindex(
    agent: Annotated[
        str, typer.Option(metavar="ID", help="Only tasks of this agent.", show_default=False)
    ] = "",
    owner: Annotated[
        str, typer.Option(metavar="NAME", help="Only tasks of this owner.", show_default=False)
    ] = "",
    at_once: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_AT_ONCE,
            metavar="N",
            help="How many tasks are asked at once; each costs a worker a replay.",
        ),
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
        tell(f"task {task_id} not restored: {reason}")
    if as_json:
        print_json(progress.result)
    else:
        print_line(progress.summary)
    raise typer.Exit(FAILED if progress.failed else 0)


def _rebuilt(agent: str, owner: str, at_once: int) -> "Progress":
    import uvloop
    from redis.exceptions import RedisError
    from temporalio.service import RPCError

    from everloop.deploy.reindex.progress import Progress
    from everloop.deploy.reindex.rebuild import rebuild
    from everloop.runtime.blobs import BlobsUnfitError
    from everloop.runtime.encryption.cipher import EncryptionError
    from everloop.runtime.redis import RedisUnfitError
    from everloop.runtime.temporal.connection import TemporalUnreachableError

    use_local_stack()
    progress = Progress(sys.stderr)
    kinds = (BlobsUnfitError, EncryptionError, RedisUnfitError, TemporalUnreachableError)
    try:
        with reported(*kinds, interrupted="interrupted; what is done stays done: run it again for the rest"):
            uvloop.run(rebuild(agent, owner, at_once, progress))
    except RPCError as error:
        said = f"({error.status.name}: {error.message})"
        raise CommandError(f"Temporal does not list tasks {said}; run it again") from error
    except (RedisError, OSError) as error:
        raise CommandError(f"Redis does not answer: {error}; run it again") from error
    return progress
