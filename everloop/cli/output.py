"""Output of commands, and their failures.

Tables and lists are for people, JSON is for programs. A failure is one line on stderr without a
traceback: the problem, the expected state, and the fix. Exit codes: 1 the operation failed, 2 the
command line is invalid, 130 Ctrl-C.
"""

import base64
import errno
import io
import json
import shlex
import sys
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everloop.runtime.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NAME = "everloop"

FAILED = 1
MISUSED = 2
INTERRUPTED = 130

_UNWRITTEN = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of writing output."""

NOTHING = "-"
"""Placeholder of an empty cell."""

GAP = 2

TIME = "%Y-%m-%d %H:%M:%S"

STEP = 1000
UNITS = ["bytes", "KB", "MB", "GB"]


def option(
    metavar: str,
    purpose: str,
    check: Callable[[str], str] | None = None,
    *,
    name: str | None = None,
    most: int | None = None,
) -> object:
    """Return an option: the name of its value, its help, and its validator.

    `name` is the name of the option, if it is not the parameter's; `most` is for numbers, which start
    at 1.
    """
    names, least = (name,) if name else (), None if most is None else 1
    return typer.Option(*names, metavar=metavar, help=purpose, callback=check, min=least, max=most)


def option_of(profile: str) -> str:
    """Return the option by which a proposed command finds the same gateway."""
    return f" --profile {shlex.quote(profile)}" if profile else ""


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one line per row, in columns; on a narrow terminal one block per row."""
    from rich.measure import Measurement
    from rich.table import Table

    console = _console()
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name in head:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*map(styled, row))
    if not console.is_terminal:
        for line in _plain([head, *rows]):
            print_line(line)
    elif Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width:
        console.print(table)
    else:
        for number, row in enumerate(rows):
            if number:
                print_line("")
            print_fields(dict(zip(head, row, strict=True)))


def print_fields(fields: Mapping[str, str]) -> None:
    """Print the fields of an item, one line for each field that has a value."""
    width = max(map(len, fields)) + GAP
    console = _console()
    for name, value in fields.items():
        if value:
            console.print(styled(f"{name:<{width}}", "bold"), styled(value), sep="", soft_wrap=True)


def print_line(line: str) -> None:
    """Print a line unchanged; the terminal wraps it."""
    sys.stdout.write(f"{line}\n")


def print_json(value: object) -> None:
    """Print data for a program; results of clients have the names of docs/client.md."""
    is_utf8 = (sys.stdout.encoding or "").lower() in {"utf-8", "utf8"}
    print_line(json.dumps(value, indent=2, ensure_ascii=not is_utf8, default=fields_of))


def fields_of(value: Any) -> object:  # noqa: ANN401 -- values that json does not support
    """Return the fields of a client's result. Bytes are base64, times ISO 8601."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value):
        # Observations of a call are not part of the task.
        return {each.name: getattr(value, each.name) for each in fields(value) if each.name != "events"}
    return value.model_dump(mode="json")  # of pydantic


def print_notice(line: str) -> None:
    """Write a line for people on stderr, so that stdout stays readable by programs.

    On a terminal the name of the command is highlighted.
    """
    if not sys.stderr.isatty():
        sys.stderr.write(f"{NAME}: {line}\n")
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for number, part in enumerate(line.split("\n")):
        console.print(
            *([] if number else [styled(f"{NAME}:", "bold red"), styled(" ")]), styled(part), sep=""
        )


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _plain(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) + GAP for column in zip(*rows, strict=True)]
    return [
        "".join(f"{printable(cell):<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def styled(value: str, style: str = "") -> "Text":
    """Return a text without markup and without terminal control characters."""
    from rich.text import Text

    return Text(printable(value), style)


def cut(value: str, most: int) -> str:
    """Return a text truncated to `most` letters."""
    return value if len(value) <= most else f"{value[: max(most - 1, 0)]}…"


def local_time(moment: datetime | None) -> str:
    """Return a local time for people; empty if there is none."""
    return f"{moment.astimezone():{TIME}}" if moment else ""


def amount(count: int) -> str:
    """Return a readable number of bytes."""
    from rich.filesize import pick_unit_and_suffix

    unit, name = pick_unit_and_suffix(count, UNITS, STEP)
    return f"{count / unit:.{0 if unit == 1 else 1}f} {name}"


class CommandError(typer.TyperException):
    """Failure of a command; the message is for the user."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def check_arguments(arguments: Sequence[str]) -> None:
    """Check that all arguments are texts.

    Raises:
        CommandError: one has surrogates, by which Python replaces bytes that are not UTF-8.
    """
    for number, each in enumerate(arguments, 1):
        if any("\ud800" <= letter <= "\udfff" for letter in each):
            raise misused(
                f"argument {number} is not in UTF-8; set the terminal to UTF-8, or give the text by a file"
            )


def misused(message: str) -> CommandError:
    """Return the error of a command line whose options do not go together."""
    return CommandError(message, MISUSED)


@contextmanager
def reported(*kinds: type[Exception], interrupted: str = "interrupted") -> Generator[None]:
    """Convert errors of these kinds, whose messages are for people, into a CommandError.

    `interrupted` is printed after Ctrl-C: the work that was done by then.

    Raises:
        CommandError: in place of these kinds, of a StartError, of an invalid setting, and of Ctrl-C.
    """
    from pydantic import ValidationError

    from everloop.runtime.environment import StartError, explain

    try:
        yield
    except (StartError, *kinds) as error:
        raise CommandError(str(error)) from error
    except ValidationError as error:
        raise CommandError(f"wrong setting: {explain(error)}") from error
    except KeyboardInterrupt as error:
        raise CommandError(interrupted, INTERRUPTED) from error


def report(error: Exception) -> int:
    """Print an error, and return the exit code."""
    if isinstance(error, CommandError):
        print_notice(error.message)
        return error.exit_code
    if isinstance(error, typer.TyperException):
        if error.format_message():  # empty if the help was shown instead
            print_notice(_misuse(error))
        return error.exit_code
    if isinstance(error, OSError) and error.errno in _UNWRITTEN:
        sys.stdout = io.StringIO()  # the rest of the buffer cannot be written, either
        if error.errno != errno.EPIPE:  # the reader closed the pipe
            print_notice(f"the output cannot be written: {error.strerror}; free some, or write it elsewhere")
        return FAILED
    if isinstance(error, ModuleNotFoundError):
        print_notice(f"the module {error.name!r} is missing: install Everloop again in this environment")
        return FAILED
    from everloop.runtime.user_code import inner_errors

    first, *_ = inner_errors(error)
    print_notice(f"this should not happen: {type(first).__name__} at {_origin(first)}; please report it")
    return FAILED


def _misuse(error: typer.TyperException) -> str:
    """Return our text of an invalid command line, with a pointer to its help."""
    problem = " ".join(error.format_message().split()).removesuffix(".").replace(": Value error, ", ": ")
    command = getattr(getattr(error, "ctx", None), "command_path", NAME)
    see = " See" if problem.endswith("?") else "; see"
    return f"{problem[:1].lower()}{problem[1:]}{see} `{command} --help`"


def _origin(error: BaseException) -> str:
    """Return the place that raised an error. Its message or a variable may hold a secret."""
    *_, last = traceback.extract_tb(error.__traceback__) or [None]
    return f"{last.filename}:{last.lineno}" if last else "an unknown place"
