"""The list of schedules on a terminal."""

from collections.abc import Sequence

from deploy.schedule.schedules import ListedSchedule

HEAD = ("ID", "AGENT", "WHEN", "NEXT RUN", "LAST TASK", "PAUSED")
NOTHING = "-"


def table(schedules: Sequence[ListedSchedule]) -> str:
    """Return the schedules, one a line, in columns."""
    rows = [HEAD, *map(_row, schedules)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(map(str.rstrip, lines))


def _row(each: ListedSchedule) -> tuple[str, ...]:
    next_run = str(each.next_run) if each.next_run else NOTHING
    paused = "yes" if each.is_paused else "no"
    return (each.id, each.agent_id, each.when, next_run, each.last_task or NOTHING, paused)
