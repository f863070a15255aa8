"""How commands fail: one line on stderr and an exit code, never a stack trace.

The line says what was wrong, what was expected, and what to do. Exit codes: 1 what was asked for failed,
2 the command line is wrong, 130 somebody pressed Ctrl-C.
"""

import traceback
from collections.abc import Generator
from contextlib import contextmanager

import typer

from everloop.cli.tables import write_stderr

FAILED = 1
MISUSED = 2
INTERRUPTED = 130

NAME = "everloop"


class CommandError(typer.TyperException):
    """A command cannot do what it was asked for; the message is for who asked."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def misused(message: str) -> CommandError:
    """Return the error of a command line whose options do not go together."""
    return CommandError(message, MISUSED)


@contextmanager
def reported(*kinds: type[Exception], interrupted: str = "interrupted") -> Generator[None]:
    """Turn errors of these kinds, whose messages are for people, into that of a command.

    `interrupted` is what is said after Ctrl-C: what has been done by then.

    Raises:
        CommandError: instead of these kinds, of a wrong setting, and of Ctrl-C.
    """
    from pydantic import ValidationError

    try:
        yield
    except kinds as error:
        raise CommandError(str(error)) from error
    except ValidationError as error:
        from everloop.runtime.settings import explain

        raise CommandError(f"wrong setting: {explain(error)}") from error
    except KeyboardInterrupt as error:
        raise CommandError(interrupted, INTERRUPTED) from error


def report(error: Exception) -> int:
    """Say what is wrong, and return the exit code."""
    if isinstance(error, CommandError):
        tell(error.message)
        return error.exit_code
    if isinstance(error, typer.TyperException):
        if error.format_message():  # without any, the help has been shown in its place
            tell(_misuse(error))
        return error.exit_code
    tell(f"this should not happen: {type(error).__name__} at {_origin(error)}; please report it")
    return FAILED


def tell(line: str) -> None:
    """Write a line for people, so that what other programs read stays clean."""
    write_stderr(f"{NAME}: {line}")


def _misuse(error: typer.TyperException) -> str:
    """Say what is wrong with a command line as we say it, with where to read how it is right."""
    said = _one_line(error.format_message()).removesuffix(".")
    command = getattr(getattr(error, "ctx", None), "command_path", NAME)
    return f"{said[:1].lower()}{said[1:]}; see `{command} --help`"


def _origin(error: Exception) -> str:
    """Return where it was raised. What the message or a variable holds may be a secret."""
    *_, last = traceback.extract_tb(error.__traceback__) or [None]
    return f"{last.filename}:{last.lineno}" if last else "an unknown place"


def _one_line(text: str) -> str:
    return " ".join(text.split())
