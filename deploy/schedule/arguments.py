"""The command line of `python -m deploy.schedule`."""

import argparse
import re

from a2a.utils.errors import InvalidParamsError

from deploy.schedule.definition import MAX_TEXT_BYTES, OVERLAPS
from deploy.schedule.recurrence import UTC_NAME, read_interval
from gateway.callers import ANONYMOUS
from gateway.owner_names import flaw_of_owner
from gateway.requests import check_id

MAX_ID_LENGTH = 64
"""Of the id of a schedule: the ids of its tasks are longer by the agent and their time."""

EXAMPLES = """\
examples:
  python -m deploy.schedule add --agent reporter --text "Write the daily report." \\
      --cron "0 9 * * 1-5" --time-zone Europe/Berlin
  python -m deploy.schedule add --agent watcher --text "Look for news." --every 30m --id news
  python -m deploy.schedule list

Agents are those of EVERLOOP_AGENTS; Temporal is found as workers and gateways find it (TEMPORAL_ADDRESS),
and EVERLOOP_TASK_QUEUE has to be theirs. What a schedule does is told in docs/schedules.md."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.schedule",
        description="Let agents start tasks by themselves: at times of the calendar, or again and again.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _describe_add(commands.add_parser("add", help="make a schedule", formatter_class=_Wide))
    commands.add_parser("list", help="show all schedules")
    for command, told in (
        ("pause", "let a schedule start nothing until it is resumed"),
        ("resume", "let it start tasks again"),
        ("trigger", "start a task of it now"),
        ("remove", "remove it; tasks that it has started go on"),
    ):
        named = commands.add_parser(command, help=told, description=f"{told[0].upper()}{told[1:]}.")
        named.add_argument("id", type=_utf8, metavar="ID", help="what `list` calls it")
    return parser


class _Wide(argparse.HelpFormatter):
    """Leaves room for the names of options."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def _describe_add(add: argparse.ArgumentParser) -> None:
    add.description = "Send a message to an agent again and again; each time it becomes a new task."
    add.add_argument(
        "--agent", required=True, type=_utf8, metavar="ID", help="who gets it: an agent of EVERLOOP_AGENTS"
    )
    add.add_argument("--text", required=True, type=_text, help="the message")
    when = add.add_mutually_exclusive_group(required=True)
    when.add_argument(
        "--cron", type=_cron, help="minute, hour, day of the month, month, day of the week: '0 9 * * 1-5'"
    )
    when.add_argument("--every", type=_interval, help="an interval: 90s, 30m, 1h30m, 7d")
    add.add_argument(
        "--time-zone",
        default=UTC_NAME,
        type=_utf8,
        metavar="ZONE",
        help="where --cron is read (default %(default)s)",
    )
    add.add_argument(
        "--overlap",
        choices=tuple(OVERLAPS),
        default="skip",
        metavar="POLICY",
        help="what becomes of a task that is due while the one before still runs: skip it (the default), "
        "start one (buffer-one) or all (buffer-all) of those that came due afterwards, stop the other one "
        "(cancel-other, terminate-other), or let both run (allow-all)",
    )
    add.add_argument(
        "--owner", default=ANONYMOUS, type=_owner, help="whose tasks these are (default %(default)s)"
    )
    add.add_argument(
        "--context",
        type=_context,
        metavar="ID",
        help="the conversation that all its tasks belong to (default: one for each task)",
    )
    add.add_argument(
        "--id",
        type=_schedule_id,
        help="what to call it (default: agent and a digest, so that adding it again is noticed)",
    )
    add.add_argument("--note", default="", type=_utf8, help="a remark for people; the Temporal UI shows it")


def _utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(
            "it is not in UTF-8; see the character set of your terminal"
        ) from None
    return text


def _text(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("the message is empty")
    size = len(_utf8(text).encode())
    if size > MAX_TEXT_BYTES:
        raise argparse.ArgumentTypeError(f"the message has {size} bytes; give at most {MAX_TEXT_BYTES}")
    return text


def _cron(expression: str) -> str:
    if not expression.strip():
        raise argparse.ArgumentTypeError("the expression is empty; write '0 9 * * 1-5', for example")
    return _utf8(expression)


def _interval(text: str) -> str:
    try:
        read_interval(_utf8(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _owner(name: str) -> str:
    if name != ANONYMOUS and (flaw := flaw_of_owner(_utf8(name))):
        raise argparse.ArgumentTypeError(f"nobody can be called {name!r}: {flaw}")
    return name


def _context(context_id: str) -> str:
    try:
        return check_id(_utf8(context_id), "the id of the context")
    except InvalidParamsError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def _schedule_id(word: str) -> str:
    if len(word) > MAX_ID_LENGTH or not _ID.fullmatch(_utf8(word)):
        raise argparse.ArgumentTypeError(
            f"expected at most {MAX_ID_LENGTH} letters, digits, '.', '-' and '_', the first a letter or digit"
        )
    return word
