"""What commands print: tables and lists for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]

NOTHING = "-"
"""What stands in a table where there is nothing."""

GAP = 2


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a line for each row, in columns; a block for each where the terminal is too narrow for lines."""
    from rich.measure import Measurement
    from rich.table import Table

    console = _console()
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name in head:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*map(_text, row))
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
    """Print what belongs to one thing, a line for each field that has a value."""
    width = max(map(len, fields)) + GAP
    console = _console()
    for name, value in fields.items():
        if value:
            console.print(_text(f"{name:<{width}}", "bold"), _text(value), sep="", soft_wrap=True)


def print_line(line: str) -> None:
    """Print a line as it is; the terminal breaks it."""
    sys.stdout.write(f"{line}\n")


def print_json(value: object) -> None:
    """Print data for a program."""
    print_line(json.dumps(value, indent=2, ensure_ascii=False))


def write_stderr(line: str) -> None:
    """Write what people are to know beside the output; on a terminal the name before the colon stands out."""
    name, colon, rest = line.partition(": ")
    if not sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for number, part in enumerate(rest.split("\n")):
        console.print(*([] if number else [_text(f"{name}{colon}", "bold red")]), _text(part), sep="")


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _plain(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) + GAP for column in zip(*rows, strict=True)]
    return [
        "".join(f"{_printable(cell):<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _text(value: str, style: str = "") -> "Text":
    """Return a text whose brackets are no markup, and which cannot steer the terminal."""
    from rich.text import Text

    return Text(_printable(value), style)


def _printable(value: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in value)
