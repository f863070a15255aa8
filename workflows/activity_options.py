"""How long each kind of side effect may take, and how it is retried."""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""How long a dead worker goes unnoticed while it holds an activity."""

_UNTIL_IT_WORKS = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(seconds=60)
)
"""No last attempt: lost workers and an unreachable Redis are waited out. An activity that knows better ends
itself with a failure that is not retryable."""

_TOOL_MARGIN = timedelta(seconds=30)
"""The tool activity ends a tool that takes too long by itself; this is what it needs besides."""


def model_call(summary: str) -> ActivityConfig:
    """Return the options of a model call, with its line in the Temporal UI."""
    return _heartbeating(timedelta(minutes=30), summary)


def tool_call(timeout: float, summary: str) -> ActivityConfig:
    """Return the options for a tool whose own timeout is given in seconds."""
    return _heartbeating(timedelta(seconds=timeout) + _TOOL_MARGIN, summary)


def store_transcript(summary: str) -> ActivityConfig:
    """Return the options of one chunk of a transcript that is sent again."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(seconds=30), retry_policy=_UNTIL_IT_WORKS, summary=summary
    )


def _heartbeating(start_to_close: timedelta, summary: str) -> ActivityConfig:
    """A long call: a lost worker is noticed, and a cancelled one has ended before the task goes on."""
    return ActivityConfig(
        start_to_close_timeout=start_to_close,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_UNTIL_IT_WORKS,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )


PUBLISH = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        backoff_coefficient=2,
        maximum_interval=timedelta(seconds=10),
    ),
    summary="last status",
)
"""The end of a task: it waits for Redis as long as it takes."""
