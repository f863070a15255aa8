"""What the options of `everloop schedules` may be: each function returns what it is given, or refuses it."""

import re

import typer

MAX_ID_LENGTH = 64
"""Of the id of a schedule: the ids of its tasks are longer by the agent and their time."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def utf8(value: str) -> str:
    """Temporal takes nothing else; what a shell passes on may be anything."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("it is not in UTF-8; see the character set of your terminal") from None
    return value


def text(value: str) -> str:
    """A message, which Temporal keeps with the schedule."""
    from everloop.deploy.schedule.definition import MAX_TEXT_BYTES

    if not value.strip():
        raise typer.BadParameter("the message is empty; write what the agent is to do")
    size = len(utf8(value).encode())
    if size > MAX_TEXT_BYTES:
        raise typer.BadParameter(f"the message has {size} bytes; give at most {MAX_TEXT_BYTES}")
    return value


def cron(value: str) -> str:
    """A cron expression; Temporal checks the rest of it."""
    if value and not value.strip():
        raise typer.BadParameter("the expression is empty; write '0 9 * * 1-5', for example")
    return utf8(value)


def every(value: str) -> str:
    """An interval."""
    from everloop.deploy.schedule.recurrence import read_interval

    if value:
        try:
            read_interval(utf8(value))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return value


def owner(value: str) -> str:
    """Who can be an owner, or anonymous."""
    from everloop.gateway.context import ANONYMOUS, flaw_of_owner

    if value != ANONYMOUS and (flaw := flaw_of_owner(utf8(value))):
        raise typer.BadParameter(f"nobody can be called {value!r}: {flaw}")
    return value


def context(value: str) -> str:
    """The id of a context."""
    from a2a.utils.errors import InvalidParamsError

    from everloop.gateway.requests.messages import check_id

    try:
        return check_id(utf8(value), "the id of the context") if value else value
    except InvalidParamsError as error:
        raise typer.BadParameter(error.message) from None


def schedule_id(value: str) -> str:
    """What a schedule can be called."""
    if value and (len(value) > MAX_ID_LENGTH or not _ID.fullmatch(utf8(value))):
        raise typer.BadParameter(
            f"expected at most {MAX_ID_LENGTH} letters, digits, '.', '-' and '_', the first a letter or digit"
        )
    return value
