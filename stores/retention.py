"""How long what is in Redis is kept."""

from datetime import timedelta

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from stores.conversations import CONVERSATION_TTL
from stores.redis_tool_records import RECORD_TTL
from stores.view_parts import TASK_TTL

MAX_TTL_DAYS = 36_500


class RetentionSettings(BaseSettings):
    """Times to live; EVERLOOP_TASK_TTL_DAYS is the same for all workers and gateways.

    EVERLOOP_TASK_TTL_DAYS: how long the view of a task, and its place in lists, is kept after its last
    event, default 7. EVERLOOP_CONVERSATION_TTL_DAYS: how long a conversation is kept after its last message,
    default 30. EVERLOOP_TRANSCRIPT_TTL_DAYS: how long the cached transcript of a task is kept after the last
    call that read it, default 7; a lost one is filled again from history. EVERLOOP_TOOL_RECORD_TTL_DAYS: how
    long is known that a tool was called and what came of it, default 30: a call without its record runs
    again, so it is longer than any call lasts, with the time that people take to answer it and that no
    worker is there, and than anybody waits before a task is reset. All at least 1, at most 36,500. An empty
    variable counts as not set.
    """

    model_config = SettingsConfigDict(
        env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    task_ttl_days: int = Field(default=TASK_TTL.days, ge=1, le=MAX_TTL_DAYS)
    conversation_ttl_days: int = Field(default=CONVERSATION_TTL.days, ge=1, le=MAX_TTL_DAYS)
    transcript_ttl_days: int = Field(default=TASK_TTL.days, ge=1, le=MAX_TTL_DAYS)
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
