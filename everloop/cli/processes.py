"""`everloop worker` and `everloop gateway`: the processes that a deployment runs."""

from typing import Annotated

import typer

from everloop.cli.errors import misused

MOST_PROCESSES = 256


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (worker, gateway):
        app.command(rich_help_panel="Run")(command)


def worker(
    queues: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME…]",
            help="What to take on: workflows, model, narrator, tools, push (default: all of these), or the "
            "`task_queue` of agents or tools.",
            show_default=False,
        ),
    ] = "",
    processes: Annotated[
        int,
        typer.Option(min=1, max=MOST_PROCESSES, metavar="N", help="How many processes; one a core is best."),
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
