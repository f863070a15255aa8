"""How long what is in Redis is kept, how much of a task, and what a step of the housekeeping has removed."""

from datetime import timedelta
from typing import NamedTuple

from pydantic import Field

from everloop.runtime.settings import Settings

TASK_TTL = timedelta(days=7)
"""How long what can be rebuilt from Temporal is kept after its last change."""

GRACE = timedelta(days=1)
"""The same of what nobody needs once a task has ended but who comes late: its events, and its transcript."""

CONVERSATION_TTL = timedelta(days=30)
"""How long a conversation is kept after its last message."""

RECORD_TTL = timedelta(days=30)
"""The same of the record of a tool call: longer than anybody resets a task that old."""

MAX_TASK_BYTES = 50_000_000
"""Of the view of one task, as it is stored: its messages, and what it shows of its artifacts."""

MAX_TTL_DAYS = 36_500
SMALLEST_TASK_BYTES = 1_000_000


class RetentionSettings(Settings):
    """Times to live, and the size of a task. Both of a task are the same for all workers and gateways.

    Nothing of an open task expires; these begin when it has ended. EVERLOOP_TASK_TTL_DAYS: how long the view
    of a task, and its place in lists, is kept, default 7; its events go after a day.
    EVERLOOP_TRANSCRIPT_TTL_DAYS: how long its cached transcript is kept, default 1, and what its calls came
    to; a lost transcript is filled again from history. EVERLOOP_TOOL_RECORD_TTL_DAYS: how long is known that
    a tool was called, default 30: a call without its record runs again, so it is longer than anybody waits
    before a task is reset.

    EVERLOOP_CONVERSATION_TTL_DAYS: how long a conversation is kept after its last message, default 30. All at
    least 1, at most 36,500.

    EVERLOOP_MAX_TASK_BYTES: how large a task may get as it is stored, with its messages and what it shows of
    its artifacts, default 50,000,000, at least 1,000,000. An empty variable counts as not set.
    """

    task_ttl_days: int = Field(default=TASK_TTL.days, ge=1, le=MAX_TTL_DAYS)
    conversation_ttl_days: int = Field(default=CONVERSATION_TTL.days, ge=1, le=MAX_TTL_DAYS)
    transcript_ttl_days: int = Field(default=GRACE.days, ge=1, le=MAX_TTL_DAYS)
    max_task_bytes: int = Field(default=MAX_TASK_BYTES, ge=SMALLEST_TASK_BYTES)
    tool_record_ttl_days: int = Field(default=RECORD_TTL.days, ge=1, le=MAX_TTL_DAYS)

    @property
    def task_ttl(self) -> timedelta:
        return timedelta(days=self.task_ttl_days)

    @property
    def conversation_ttl(self) -> timedelta:
        return timedelta(days=self.conversation_ttl_days)

    @property
    def transcript_ttl(self) -> timedelta:
        return timedelta(days=self.transcript_ttl_days)

    @property
    def tool_record_ttl(self) -> timedelta:
        return timedelta(days=self.tool_record_ttl_days)


# What cleaning up has done.


class Cleaned(NamedTuple):
    """How much was removed, and where the next step goes on; an empty cursor: nothing is left to look at."""

    removed: int
    cursor: str = ""
