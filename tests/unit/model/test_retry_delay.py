"""Delays of a model call's retries: the provider's, or growing ones; never the same for all calls."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.activities.model.model_retries import retry_delay
from everloop.runtime.outbound.policy import MAX_RETRY_AFTER, retry_after

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CHANCES = st.floats(0, 1)


@given(st.timedeltas(timedelta(), MAX_RETRY_AFTER), st.integers(1, 100), CHANCES)
def test_no_retry_comes_before_the_provider_wants_it(told: timedelta, failures: int, chance: float) -> None:
    """The provider's delay is the minimum."""
    assert told <= retry_delay(told, failures, chance) <= told * 1.11


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:20 GMT"}, 20),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, None),
        ({"retry-after": "Sat, 21 Nov 99999999999999999999 12:00:20 GMT"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": "1e300"}, MAX_RETRY_AFTER.total_seconds()),
        ({"retry-after": "86400"}, MAX_RETRY_AFTER.total_seconds()),
    ],
)
def test_the_provider_says_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    """Milliseconds, seconds or a date; at most 10 minutes; invalid values are ignored."""
    assert retry_after(headers, NOW) == (seconds and timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("told", "failures", "least", "most"),
    [(None, 3, 2, 4), (None, 7, 30, 60), (None, 20, 30, 60), (3, 20, 3, 3.3), (600, 1, 600, 660)],
)
def test_delays_have_bounds(told: float | None, failures: int, least: float, most: float) -> None:
    """The bounds are reached at both ends of the random range."""
    asked = None if told is None else timedelta(seconds=told)
    assert retry_delay(asked, failures, chance=0) == timedelta(seconds=least)
    assert retry_delay(asked, failures, chance=1) == timedelta(seconds=most)
