"""How long a model call waits until it is tried again."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST_TOLD = timedelta(minutes=10)
"""A provider that asks for more is asked again after this."""

LONGEST_BACKOFF = timedelta(seconds=60)

_FIRST_BACKOFF = timedelta(seconds=1)
_DOUBLINGS = 6
_TOLD_JITTER = 0.1


def retry_delay(told: timedelta | None, failures: int, chance: float) -> timedelta:
    """Return the delay after that many failures in a row.

    `told` is what the provider asks for: never less, and up to 10% more. Otherwise the delay doubles from 1 s
    to 60 s, of which between half and the whole is waited. `chance`, from 0 to 1, parts the calls that
    failed together.
    """
    if told is not None:
        return told * (1 + _TOLD_JITTER * chance)
    doublings = min(failures - 1, _DOUBLINGS)
    longest = min(_FIRST_BACKOFF * 2**doublings, LONGEST_BACKOFF)
    return longest * (0.5 + 0.5 * chance)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return how long the provider asks to wait, at most 10 minutes; None if it does not say.

    `retry-after-ms` is OpenAI's own; `Retry-After` is seconds or a date (RFC 9110 §10.2.3).
    """
    seconds = _number(headers.get("retry-after-ms"), 0.001) or _number(headers.get("retry-after"), 1)
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"), now)
    if seconds is None or seconds <= 0:
        return None
    return timedelta(seconds=min(seconds, LONGEST_TOLD.total_seconds()))


def _number(text: str | None, unit: float) -> float | None:
    try:
        seconds = float(text or "") * unit
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _seconds_until(date: str | None, now: datetime) -> float | None:
    try:
        at = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()
