"""The command `everloop`, put together.

`--help` and tab completion are to answer at once. That is why no module of `everloop.cli` imports what its
commands need (Temporal's client alone takes half a second) before one of them runs.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from everloop import __version__
from everloop.cli import housekeeping, keys, processes, reindex, schedules, stack, temporal
from everloop.cli.errors import FAILED, INTERRUPTED, NAME, report, tell
from everloop.cli.tables import print_line

OWN_REPORTS = frozenset({"worker", "gateway", "temporal"})
"""Commands that say themselves which variables of the environment are no settings, or read others."""

app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog="Settings are variables of the environment: docs/settings.md lists them.",
)
stack.register(app)
processes.register(app)
temporal.register(app)
app.add_typer(keys.app, name="keys", rich_help_panel="Operate")
app.add_typer(schedules.app, name="schedules", rich_help_panel="Operate")
app.add_typer(housekeeping.app, name="housekeeping", rich_help_panel="Operate")
reindex.register(app)


def _tell_version(asked: bool) -> None:  # noqa: FBT001 -- typer's
    if asked:
        print_line(f"{NAME} {__version__}")
        raise typer.Exit


@app.callback()
def everloop(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", help="Show the version and exit.", is_eager=True, callback=_tell_version
        ),
    ] = False,
) -> None:
    """AI agents that survive anything: A2A tasks as durable Temporal workflows."""
    if context.invoked_subcommand not in OWN_REPORTS:
        from everloop.runtime.settings import report_unknown

        report_unknown(NAME)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; whatever is wrong is one line."""
    try:
        code = app(arguments, prog_name=NAME, standalone_mode=False)
    except SystemExit as ended:  # tab completion, and a reader of our output that went away
        code = ended.code
    except Exception as error:  # noqa: BLE001 -- a stack trace helps no user, and may show secrets
        return report(error)
    if code == INTERRUPTED:  # before a command could say what has been done by then
        tell("interrupted")
    return code if isinstance(code, int) else 0


def main() -> None:
    """Run the command of this process's arguments, and end the process."""
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # whoever read it went away
            code = code or FAILED
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(code)
