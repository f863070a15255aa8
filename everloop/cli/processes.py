"""`everloop worker`, `gateway` and `temporal`: the processes of a deployment, and Temporal's command."""

import os
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from everloop.cli.output import misused, option
from everloop.cli.servers import temporal_binary, use_local_stack

MOST_PROCESSES = 256
QUEUES = (
    "What to take on: workflows, model, narrator, tools, push (default: all of these), or the `task_queue` "
    "of agents or tools."
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (worker, gateway):
        app.command(rich_help_panel="Run")(command)
    app.command(cls=_PassedOn, rich_help_panel="Operate", options_metavar="…")(temporal)


def worker(
    queues: Annotated[str, option("NAME[,NAME…]", QUEUES)] = "",
    processes: Annotated[
        int, option("N", "How many processes; one a core is best.", most=MOST_PROCESSES)
    ] = 1,
) -> None:
    """Work on tasks until SIGTERM or Ctrl-C.

    All of what they need is taken on, or a part of it.
    """
    from everloop.worker import work
    from everloop.workers.settings import WorkerArguments, read_queues
    from everloop.workflows.contract.names import WORKER_QUEUES

    try:
        wanted = read_queues(queues) if queues else WORKER_QUEUES
    except ValueError as error:
        raise misused(f"--queues: {error}") from None
    raise typer.Exit(work(WorkerArguments(wanted, processes)))


def gateway() -> None:
    """Serve A2A clients until SIGTERM or Ctrl-C."""
    from everloop.gateway.__main__ import main

    raise typer.Exit(main())


class _PassedOn(TyperCommand):
    """Leaves all its arguments, --help among them, to another program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 -- typer hides its type
        ctx.args = list(args)
        return []


def temporal(context: typer.Context) -> None:
    """Run Temporal's own command, on these servers.

    Address and namespace are those of the environment (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE), or else of the
    stack that `everloop up` runs in this directory; options that are given win.
    """
    binary = temporal_binary()
    use_local_stack()
    # In the place of this process, so that signals and the exit code are its own.
    os.execv(binary, ["temporal", *context.args])  # noqa: S606 -- no shell is wanted
