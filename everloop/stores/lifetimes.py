"""Times to live and size limits of the data in Redis."""

from datetime import timedelta

from pydantic import Field

from everloop.runtime.environment import Settings

TASK_TTL = timedelta(days=7)
"""Time to live, after the last change, of data that can be rebuilt from Temporal."""

GRACE = timedelta(days=1)
"""Time to live of data that only late readers need after the end of a task, such as its transcript."""

EVENTS_GRACE = timedelta(hours=1)
"""Time to live of its events, with which subscribers continue after a lost connection. Later they get the
complete task. The events of a task with push configs live for `GRACE`."""

CONVERSATION_TTL = TASK_TTL
"""Time to live of a conversation after its last message."""

ARTIFACT_TTL = timedelta(days=30)
"""Time to live of an artifact after its last change."""

RECORD_TTL = TASK_TTL
"""Time to live of the record of a tool call: as long as its task can be viewed, and so be reset."""

MAX_TASK_BYTES = 50_000_000
"""Maximum stored size of the view of a task, with its messages and the rendered content of its artifacts."""

MAX_TTL_DAYS = 36_500
SMALLEST_TASK_BYTES = 1_000_000


class RetentionSettings(Settings):
    """Times to live, and the size of a task. Data of open tasks does not expire."""

    task_ttl_days: int = Field(default=TASK_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that the view of a task is stored after its end. Until then, a repeated message finds the task.
    The same for all processes."""
    conversation_ttl_days: int = Field(default=CONVERSATION_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that a conversation is stored after its last message."""
    transcript_ttl_days: int = Field(default=GRACE.days, ge=1, le=MAX_TTL_DAYS)
    """Days that the cached transcript of a task, and the outcomes of its calls, are stored after its end. A
    lost transcript is filled again from history."""
    max_task_bytes: int = Field(default=MAX_TASK_BYTES, ge=SMALLEST_TASK_BYTES)
    """Maximum size of a task in Redis, in bytes: its messages, and the rendered content of its artifacts. The
    same for all processes. See docs/protocol/a2a.md#large-tasks."""
    tool_record_ttl_days: int = Field(default=RECORD_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that the record of a tool call is stored after the end of the task. A call without its record runs
    again if its task is reset, so set at least the retention of the namespace. Workers warn of less."""
    artifact_ttl_days: int = Field(default=ARTIFACT_TTL.days, ge=1, le=MAX_TTL_DAYS)
    """Days that an artifact is stored after its last change."""

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
        """Return a warning if Temporal can reset tasks for longer than records are stored, otherwise ""."""
        if kept <= self.tool_record_ttl:
            return ""
        days = -(-kept // timedelta(days=1))
        return (
            f"Temporal can reset a task for {days} days after its end, and calls are known for "
            f"{self.tool_record_ttl_days}: a later reset runs its tools again. "
            f"Set EVERLOOP_TOOL_RECORD_TTL_DAYS to {days}"
        )


DEFAULT_RETENTION = RetentionSettings.model_construct()
"""The default settings, made without reading the environment."""
