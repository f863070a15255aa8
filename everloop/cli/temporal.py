"""`everloop temporal …`: Temporal's own command, for the servers of this Everloop."""

import os
from typing import Any

import typer
from typer.core import TyperCommand

from everloop.cli.servers import temporal_binary, use_local_stack


class _PassedOn(TyperCommand):
    """Leaves all its arguments, --help among them, to another program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 -- typer hides its type
        ctx.args = list(args)
        return []


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=_PassedOn, rich_help_panel="Operate", options_metavar="…")(temporal)


def temporal(context: typer.Context) -> None:
    """Run Temporal's own command, on these servers.

    Address and namespace are those of the environment (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE), or else of the
    stack that `everloop up` runs in this directory; options that are given win.
    """
    binary = temporal_binary()
    use_local_stack()
    # In the place of this process, so that signals and the exit code are its own.
    os.execv(binary, ["temporal", *context.args])  # noqa: S606 -- no shell is wanted
