"""Live log of a worker in readable form: tool calls and errors."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from everloop.cli.output import cut
from everloop.runtime.printable import printable

if TYPE_CHECKING:
    from rich.text import Text

PAUSE = 0.1
MOST = 300
"""Characters of the arguments and of the result of a tool."""

Record = Mapping[str, Any]
"""A line of the log."""

_STANDARD_FIELDS = frozenset(
    {"event", "level", "logger", "timestamp", "owner_hash", "context_id", "stack", "trace_id"}
)
_IN_OTHER_LINES = frozenset(
    {"tool failed", "Completing activity as failed", "another version of the agent continues"}
)


async def new_records(log: Path) -> AsyncGenerator[Record]:
    """Yield each new line of Everloop in a log, for ever."""
    position, rest = _size(log), b""
    while True:
        size = _size(log)
        if size < position:  # the log was replaced
            position, rest = 0, b""
        if size > position:
            with log.open("rb") as file:
                file.seek(position)
                read = file.read()
            position += len(read)
            *lines, rest = (rest + read).split(b"\n")
            for record in filter(None, map(_record, lines)):
                yield record
        await asyncio.sleep(PAUSE)


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def rendered(record: Record) -> "Text | None":
    """Return a readable line of the log; None for lines that are not shown."""
    match record.get("event"):
        case "tool called":
            called = f"{record.get('tool')}({_arguments(str(record.get('arguments', '')))})"
            return _line("  → ", "cyan", called, f"   {record.get('agent')}")
        case "tool ended":
            if record.get("raised_at"):
                return None  # its traceback was shown
            failed = record.get("outcome") == "error"
            came = f"{record.get('tool')}: {_short(str(record.get('result', '')))}"
            return _line("  ✗ " if failed else "  ← ", "red" if failed else "green", came)
        case "tool traceback":
            words = _last_line(record.get("exception")) or "it failed"
            failed = f"{record.get('tool')}: {_short(words)}"
            return _line("  ✗ ", "red", failed, f"   {record.get('raised_at') or ''}")
        case _:
            return _warning(record)


def _warning(record: Record) -> "Text | None":
    if record.get("level") not in {"warning", "error", "critical"} or record["event"] in _IN_OTHER_LINES:
        return None
    told = {**record, "exception": _last_line(record.get("exception"))}
    fields = [f"{name}={value}" for name, value in told.items() if name not in _STANDARD_FIELDS and value]
    return _line("  ! ", "yellow", str(record["event"]), f"   {_short(' '.join(fields))}" if fields else "")


def _line(mark: str, style: str, text: str, aside: str = "") -> "Text":
    from rich.text import Text

    return Text.assemble((mark, style), printable(text), (printable(aside), "dim"))


def _arguments(text: str) -> str:
    try:
        given = cast("dict[str, Any]", json.loads(text or "{}"))
        named = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items()]
    except (ValueError, AttributeError):  # the model wrote something else
        return _short(text)
    return _short(", ".join(named))


def _last_line(traceback: object) -> str:
    """Return the error; the rest of a traceback is in the log."""
    return str(traceback or "").strip().rpartition("\n")[2]


def _short(text: str) -> str:
    return cut(" ".join(text.split()), MOST)


def _record(line: bytes) -> Record | None:
    try:
        record: object = json.loads(line)
    except ValueError:
        return None
    return cast("Record", record) if isinstance(record, dict) and "event" in record else None
