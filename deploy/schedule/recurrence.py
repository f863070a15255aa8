"""When a schedule starts its tasks."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from temporalio.client import ScheduleIntervalSpec, ScheduleSpec

UTC_NAME = "UTC"

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


@dataclass(frozen=True)
class Recurrence:
    """A cron expression, read in a time zone, or an interval as people write it (`1h30m`): one of the two."""

    cron: str = ""
    every: str = ""
    time_zone: str = UTC_NAME

    @property
    def description(self) -> str:
        """What the list shows."""
        return f"every {self.every}" if self.every else f"{self.cron} ({self.time_zone})"

    @property
    def spec(self) -> ScheduleSpec:
        """The spec for Temporal, which checks the cron expression and the time zone."""
        if self.every:
            interval = ScheduleIntervalSpec(every=read_interval(self.every))
            return ScheduleSpec(intervals=[interval], time_zone_name=self.time_zone)
        return ScheduleSpec(cron_expressions=[self.cron], time_zone_name=self.time_zone)


@dataclass(frozen=True)
class NextRun:
    """When a schedule starts its next task, as it is said in its time zone; `at` None: never."""

    at: datetime | None
    time_zone: str = UTC_NAME

    def __str__(self) -> str:
        if self.at is None:
            return "never"
        try:
            zone = ZoneInfo(self.time_zone or UTC_NAME)
        except (ValueError, OSError, KeyError):  # this machine does not know the zone
            zone = UTC
        return f"{self.at.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def read_interval(text: str) -> timedelta:
    """Return the time that a text such as `30m`, `1h30m` or `7d` means.

    Raises:
        ValueError: it is none, or less than a second, or longer than Temporal counts.
    """
    found = _DURATION.fullmatch(text)
    days, hours, minutes, seconds = (int(number or 0) for number in found.groups()) if found else (0, 0, 0, 0)
    try:
        interval = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        interval = timedelta.max
    if not timedelta(seconds=1) <= interval <= timedelta(days=36_500):
        raise ValueError(f"{text!r} is no interval; write 90s, 30m, 1h30m or 7d")
    return interval
