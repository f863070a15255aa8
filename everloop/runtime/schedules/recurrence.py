"""Times at which a schedule starts its tasks."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from temporalio.client import ScheduleCalendarSpec, ScheduleIntervalSpec, ScheduleRange, ScheduleSpec

UTC_NAME = "UTC"

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)

SHORTEST = timedelta(minutes=1)
"""The shortest interval that clients may use. Operators may use any."""

_WITH_SECONDS = 7
"""Number of fields of a cron expression that begins with seconds."""

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


@dataclass(frozen=True)
class Recurrence:
    """A cron expression with its time zone, an interval such as `1h30m`, or a single time."""

    cron: str = ""
    every: str = ""
    time_zone: str = UTC_NAME
    at: datetime | None = None

    @property
    def description(self) -> str:
        """The text that lists show."""
        if self.at:
            return f"at {_written(self.at)}"
        return f"every {self.every}" if self.every else f"{self.cron} ({self.time_zone})"

    @property
    def spec(self) -> ScheduleSpec:
        """The spec for Temporal, which validates the cron expression and the time zone.

        Temporal stores calendars instead of the cron expression, and a comment for each: the user's text,
        which `recurrence_of` reads.
        """
        if self.at:
            return ScheduleSpec(calendars=[_calendar(self.at)], time_zone_name=UTC_NAME)
        if self.every:
            interval = ScheduleIntervalSpec(every=read_interval(self.every))
            return ScheduleSpec(intervals=[interval], time_zone_name=self.time_zone)
        cron = self.cron.partition("#")[0].strip()
        return ScheduleSpec(cron_expressions=[f"{cron} #{cron}"], time_zone_name=self.time_zone)


def recurrence_of(spec: ScheduleSpec) -> Recurrence:
    """Return the recurrence that a schedule's spec was made of."""
    zone = spec.time_zone_name or UTC_NAME
    if spec.intervals:
        every, offset = write_interval(spec.intervals[0].every), spec.intervals[0].offset
        if offset:  # only `@every` has an offset
            return Recurrence(cron=f"@every {every}/{write_interval(offset)}", time_zone=zone)
        return Recurrence(every=every, time_zone=zone)
    comment = (spec.calendars[0].comment or "") if spec.calendars else ""
    try:
        return Recurrence(at=datetime.fromisoformat(comment), time_zone=zone)
    except ValueError:  # a cron expression is not a time, though it may contain a year
        return Recurrence(cron=comment, time_zone=zone)


def _calendar(at: datetime) -> ScheduleCalendarSpec:
    at = at.astimezone(UTC)
    return ScheduleCalendarSpec(
        second=[ScheduleRange(at.second)],
        minute=[ScheduleRange(at.minute)],
        hour=[ScheduleRange(at.hour)],
        day_of_month=[ScheduleRange(at.day)],
        month=[ScheduleRange(at.month)],
        year=[ScheduleRange(at.year)],
        comment=_written(at),
    )


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class NextRun:
    """The next start of a schedule, shown in its time zone. `at` is None if there is none."""

    at: datetime | None
    time_zone: str = UTC_NAME

    def __str__(self) -> str:
        if self.at is None:
            return "never"
        try:
            zone = ZoneInfo(self.time_zone or UTC_NAME)
        except (ValueError, OSError, KeyError):  # the time zone is not installed on this machine
            zone = UTC
        return f"{self.at.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def read_interval(text: str) -> timedelta:
    """Parse an interval such as `30m`, `1h30m` or `7d`.

    Raises:
        ValueError: The text is not an interval, is below a second, or exceeds Temporal's range.
    """
    found = _DURATION.fullmatch(text)
    days, hours, minutes, seconds = (int(number or 0) for number in found.groups()) if found else (0, 0, 0, 0)
    try:
        interval = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        interval = timedelta.max
    if not timedelta(seconds=1) <= interval <= timedelta(days=36_500):
        raise ValueError(f"{text!r} is not an interval; write 90s, 30m, 1h30m or 7d")
    return interval


def is_within_a_minute(cron: str) -> bool:
    """True if a cron expression may match several times in a minute. Temporal rejects invalid expressions."""
    words = cron.partition("#")[0].split()
    if words[:1] == ["@every"]:
        try:
            return read_interval(words[1].partition("/")[0]) < SHORTEST
        except (IndexError, ValueError):
            return True  # Temporal accepts more interval formats than `read_interval`
    return len(words) == _WITH_SECONDS and not words[0].isdecimal()


def write_interval(interval: timedelta) -> str:
    """Format an interval as users write it."""
    seconds, words = int(interval.total_seconds()), ""
    for unit, length in _UNITS.items():
        count, seconds = divmod(seconds, length)
        words += f"{count}{unit}" if count else ""
    return words
