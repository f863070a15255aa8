"""The next attempt of a tool that failed."""

import random
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.heartbeat import Heartbeat
from everloop.activities.tool_result import excerpt
from everloop.agents.limits import Retries
from everloop.workflows.contract import failures
from everloop.workflows.contract.events import RetryScheduled

_JITTER = 0.2
"""Calls that failed together do not come back together."""


def next_delay(retries: Retries | None, heartbeat: Heartbeat) -> timedelta | None:
    """Count a failure; return how long to wait for the next attempt, None if there is none."""
    if retries is None or (failed := heartbeat.count_failure()) >= retries.attempts:
        return None
    spread = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 -- it spreads load, it guards nothing
    return retries.delay_after(failed) * spread


def retry_failure(problem: str, delay: timedelta) -> ApplicationError:
    """Return the failure that brings the next attempt; raise it `from None`."""
    return ApplicationError(excerpt(problem), type=failures.TOOL_FAILED, next_retry_delay=delay)


def retry_event(problem: str, delay: timedelta) -> RetryScheduled:
    """Return what subscribers hear of a failed attempt."""
    attempt = activity.info().attempt
    return RetryScheduled(attempt=attempt, reason=excerpt(problem), delay=delay.total_seconds())
