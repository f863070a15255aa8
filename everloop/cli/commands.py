"""The command `everloop`, assembled from its subcommands.

`--help` and tab completion must be fast. So no module of `everloop.cli` imports the dependencies of its
commands (Temporal's client alone takes half a second) before one of them runs.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from everloop.cli import key_commands, schedule_commands, server_commands, stack_commands
from everloop.cli.author import add, dev, new
from everloop.cli.client import artifact_commands, chat_commands, context_commands, gateways, task_commands
from everloop.cli.doctor import doctor_command as doctor
from everloop.cli.housekeeping import housekeeping_commands as housekeeping
from everloop.cli.output import (
    INTERRUPTED,
    NAME,
    CommandError,
    check_arguments,
    print_line,
    print_notice,
    report,
)
from everloop.version import __version__

OWN_REPORTS = frozenset({"worker", "gateway", "temporal"})
"""Commands that report unknown variables of the environment themselves, or read other variables."""

_display_type = TyperOption.display_type_rich


def _type_of_value(self: TyperOption, ctx: Any) -> str | None:  # noqa: ANN401 -- typer hides its type
    """Return the type of options with a value only: typer writes `<bool>` behind each flag."""
    return None if self.is_flag else _display_type(self, ctx)


TyperOption.display_type_rich = _type_of_value

app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog="Settings are variables of the environment: docs/settings.md lists them.",
)
for module in (new, dev, chat_commands, gateways, stack_commands, server_commands, housekeeping, doctor):
    app.add_typer(module.commands)
app.add_typer(add.app, name="add", rich_help_panel="Write")
app.add_typer(task_commands.app, name="tasks", rich_help_panel="Talk to agents")
app.add_typer(context_commands.app, name="contexts", rich_help_panel="Talk to agents")
app.add_typer(artifact_commands.app, name="artifacts", rich_help_panel="Talk to agents")
app.add_typer(gateways.app, name="profiles", rich_help_panel="Talk to agents")
app.add_typer(key_commands.app, name="keys", rich_help_panel="Operate")
app.add_typer(schedule_commands.app, name="schedules", rich_help_panel="Operate")
app.add_typer(housekeeping.app, name="housekeeping", rich_help_panel="Operate")


def _print_version(requested: bool) -> None:  # noqa: FBT001 -- typer's
    if requested:
        print_line(f"{NAME} {__version__}")
        raise typer.Exit


@app.callback()
def everloop(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """AI agents that survive crashes: A2A tasks as durable Temporal workflows."""
    if context.invoked_subcommand not in OWN_REPORTS:
        from everloop.runtime.environment import report_unknown

        report_unknown(NAME)


def run(arguments: Sequence[str], was_interrupted: Callable[[], bool] = lambda: False) -> int:
    """Run a command and return its exit code; errors are reported in one line.

    Raises:
        KeyboardInterrupt: Ctrl-C, before the command began, or converted to another error by a library.
    """
    try:
        check_arguments(arguments)
        code = app(arguments, prog_name=NAME, standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as ended:  # tab completion, a closed pipe behind our output, Python with -OO
        if isinstance(ended.code, str):
            return report(CommandError(ended.code.removeprefix(f"{NAME}: ")))
        code = ended.code
    except Exception as error:
        if was_interrupted() and not isinstance(error, typer.TyperException):
            raise KeyboardInterrupt from error
        return report(error)
    if code == INTERRUPTED:  # before a command could report its partial work
        print_notice("interrupted")
    return code if isinstance(code, int) else 0
