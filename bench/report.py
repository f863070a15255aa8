"""Results: a table for people, and a JSON file for machines."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.rows import AIMS, Row

RESULTS = Path("bench-results.json")
WIDTH = 130
DECIMALS = {"": 0, "ms": 2, "s": 2, "/s": 1, "B": 0, "KB": 0, "x": 2, "MiB": 0, "MiB/s": 0}


def console(width: int) -> Console:
    """Return the console of the figures; `width` applies if it is not a terminal."""
    made = Console()
    if not made.is_terminal:
        made.width = width
    return made


def leave(exit_code: int) -> NoReturn:
    """End the process: Temporal's native threads may abort an interpreter that tears itself down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def print_table(console: Console, rows: Sequence[Row]) -> None:
    """Print a line for each row; with an aim, our value is green if it is met, else red."""
    table = Table("measure")
    for heading in ("floor", "usual loop", "Everloop", "ratio", "aim"):
        table.add_column(heading, justify="right")
    for row in rows:
        ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
        table.add_row(
            row.measure, _number(row, row.floor), _number(row, row.naive), _ours(row), ratio, _aim(row)
        )
    console.print(table)


def write_results(rows: Sequence[Row], machine: Machine, versions: Mapping[str, str], seconds: float) -> None:
    """Write everything, raw samples included, to `RESULTS` in the working directory."""
    results = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "machine": asdict(machine),
        "versions": versions,
        "rows": [_fields(row) for row in rows],
    }
    RESULTS.write_text(json.dumps(results) + "\n", encoding="utf-8")


def _fields(row: Row) -> dict[str, object]:
    samples = {name: [round(sample, 3) for sample in values] for name, values in row.samples.items()}
    aim = AIMS.get(row.measure)
    aimed = {"aim": aim.limit(row), "is_met": aim.is_met(row)} if aim else {}
    return {**asdict(row), "ratio": row.ratio, **aimed, "samples": samples}


def _ours(row: Row) -> str:
    number, aim = _number(row, row.everloop), AIMS.get(row.measure)
    if not aim:
        return number
    return f"[green]{number}[/]" if aim.is_met(row) else f"[red]{number}[/]"


def _aim(row: Row) -> str:
    if not (aim := AIMS.get(row.measure)):
        return ""
    met = "met" if aim.is_met(row) else "missed"
    return f"{'≥' if aim.is_least else '≤'} {_number(row, aim.limit(row))}, {met}"


def _number(row: Row, value: float | None) -> str:
    return "" if value is None else f"{value:,.{DECIMALS[row.unit]}f} {row.unit}".rstrip()
