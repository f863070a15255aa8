"""How long what is in Redis is kept."""

from datetime import timedelta

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from stores.conversations import CONVERSATION_TTL
from stores.view_parts import TASK_TTL

MAX_TTL_DAYS = 36_500


class RetentionSettings(BaseSettings):
    """Times to live: the same for all workers and gateways.

    EVERLOOP_TASK_TTL_DAYS: how long the view of a task, and its place in lists, is kept after its last event,
    default 7. EVERLOOP_CONVERSATION_TTL_DAYS: how long a conversation is kept after its last message, default
    30. Both at least 1, at most 36,500. An empty variable counts as not set.
    """

    model_config = SettingsConfigDict(
        env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    task_ttl_days: int = Field(default=TASK_TTL.days, ge=1, le=MAX_TTL_DAYS)
    conversation_ttl_days: int = Field(default=CONVERSATION_TTL.days, ge=1, le=MAX_TTL_DAYS)

    @property
    def task_ttl(self) -> timedelta:
        return timedelta(days=self.task_ttl_days)

    @property
    def conversation_ttl(self) -> timedelta:
        return timedelta(days=self.conversation_ttl_days)
