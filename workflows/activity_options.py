"""How long each kind of side effect may take, and how it is retried.

`queue` None is the one on which the workflow itself waits.
"""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from everloop.workflows.contract.tasks import ToolSpec

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""How long a dead worker goes unnoticed while it holds an activity."""

GIVE_UP = HEARTBEAT_TIMEOUT + timedelta(seconds=2)
"""How long a cancelled tool is waited for: until Temporal would know that its worker is dead.

After a Pause or Reset of the activity nothing tells the attempt of a cancellation: it would take all of the
tool's time."""

_UNTIL_IT_WORKS = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(seconds=60)
)
"""No last attempt: lost workers and an unreachable Redis are waited out. An activity that knows better ends
itself with a failure that is not retryable."""

_A_FEW_TIMES = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=2,
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=5,
)

_TOOL_MARGIN = timedelta(minutes=3)
"""The tool activity ends a tool that takes too long by itself; this is what it and hooks need besides."""


def model_call(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of a model call, with its line in the Temporal UI."""
    return _heartbeating(timedelta(minutes=30), summary, queue)


def tool_call(queue: str | None, tool: ToolSpec, summary: str) -> ActivityConfig:
    """Return the options for a tool: its own time, and its own task queue if it has one."""
    return _heartbeating(timedelta(seconds=tool.timeout) + _TOOL_MARGIN, summary, tool.task_queue or queue)


def plugin_call(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of a call that asks plugins, which may ask servers; it is given up after a while."""
    options = _heartbeating(timedelta(minutes=2), summary, queue)
    options["retry_policy"] = _A_FEW_TIMES
    return options


def afterthought(queue: str | None, summary: str) -> ActivityConfig:
    """Return the options of what follows the end of a task: it is dropped if it does not work."""
    options = _heartbeating(timedelta(minutes=10), summary, queue)
    options["retry_policy"] = _A_FEW_TIMES
    options["schedule_to_close_timeout"] = timedelta(hours=1)
    return options


def narration(queue: str) -> ActivityConfig:
    """Return the options of the narrator, which ends by itself, with its task."""
    options = _heartbeating(timedelta(hours=24), "narrator", queue)
    options["cancellation_type"] = ActivityCancellationType.ABANDON
    return options


def short_call(summary: str) -> ActivityConfig:
    """Return the options of a call that moves something small: a chunk of a transcript, a result."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(seconds=30), retry_policy=_UNTIL_IT_WORKS, summary=summary
    )


def hooked_call(summary: str) -> ActivityConfig:
    """Return the options of a short call about which plugins are asked first."""
    return _heartbeating(_TOOL_MARGIN, summary, None)


def _heartbeating(start_to_close: timedelta, summary: str, queue: str | None) -> ActivityConfig:
    """A long call: a lost worker is noticed, and a cancelled one has ended before the task goes on."""
    return ActivityConfig(
        task_queue=queue,
        start_to_close_timeout=start_to_close,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_UNTIL_IT_WORKS,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )


def publish(summary: str) -> ActivityConfig:
    """Return the options of a status that no other call carries: it waits for Redis as long as it takes."""
    return ActivityConfig(
        start_to_close_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200),
            backoff_coefficient=2,
            maximum_interval=timedelta(seconds=10),
        ),
        summary=summary,
    )
