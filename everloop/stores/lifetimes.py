"""Times to live and size limits of what Redis keeps."""

from datetime import timedelta

from pydantic import Field

from everloop.runtime.environment import Settings

TASK_TTL = timedelta(days=7)
"""How long what can be rebuilt from Temporal is kept after its last change."""

GRACE = timedelta(days=1)
"""The same of what nobody needs once a task has ended but who comes late: its transcript."""

EVENTS_GRACE = timedelta(hours=1)
"""The same of its events: who lost a connection goes on with them, and gets the whole task later. Where
somebody is to be notified, they stay for `GRACE`."""

CONVERSATION_TTL = TASK_TTL
"""How long a conversation is kept after its last message."""

ARTIFACT_TTL = timedelta(days=30)
"""The same of an artifact, after its last change."""

RECORD_TTL = TASK_TTL
"""The same of the record of a tool call: nobody resets a task of which nothing can be seen any more."""

MAX_TASK_BYTES = 50_000_000
"""Of the view of one task, as it is stored: its messages, and what it shows of its artifacts."""

MAX_TTL_DAYS = 36_500
SMALLEST_TASK_BYTES = 1_000_000


class RetentionSettings(Settings):
    """Times to live, and the size of a task. Nothing of an open task expires."""

    task_ttl_days: int = Field(default=TASK_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that the view of a task is kept after its end, and that a message which comes again finds it. The
    same for all processes."""
    conversation_ttl_days: int = Field(default=CONVERSATION_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that a conversation is kept after its last message."""
    transcript_ttl_days: int = Field(default=GRACE.days, ge=1, le=MAX_TTL_DAYS)
    """Days that the cached transcript of a task, and what its calls came to, is kept after its end. A lost
    transcript is filled again from history."""
    max_task_bytes: int = Field(default=MAX_TASK_BYTES, ge=SMALLEST_TASK_BYTES)
    """How large a task may get as Redis keeps it: its messages, and what it shows of its artifacts. The same
    for all processes. See docs/protocol/a2a.md#large-tasks."""
    tool_record_ttl_days: int = Field(default=RECORD_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that Everloop knows that a tool was called, from the end of the task. A call without its record
    runs again if its task is reset, so set at least the retention of the namespace. Workers warn of less."""
    artifact_ttl_days: int = Field(default=ARTIFACT_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that an artifact is kept after its last change."""

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

    @property
    def artifact_ttl(self) -> timedelta:
        return timedelta(days=self.artifact_ttl_days)

    def risk_of_resets(self, kept: timedelta) -> str:
        """Return what is wrong where Temporal can reset tasks for longer than records are kept, or ""."""
        if kept <= self.tool_record_ttl:
            return ""
        days = -(-kept // timedelta(days=1))
        return (
            f"Temporal can reset a task for {days} days after its end, and calls are known for "
            f"{self.tool_record_ttl_days}: a later reset runs its tools again. "
            f"Set EVERLOOP_TOOL_RECORD_TTL_DAYS to {days}"
        )


DEFAULT_RETENTION = RetentionSettings.model_construct()
"""What holds where nobody says otherwise; the environment is not read for it."""
