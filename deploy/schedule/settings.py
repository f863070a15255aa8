"""Where the commands of operators find the tasks of an Everloop."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from everloop.workflows.contract.names import DEFAULT_TASK_QUEUE


class QueueSettings(BaseSettings):
    """Where scheduled tasks wait: EVERLOOP_TASK_QUEUE and EVERLOOP_SPLIT_QUEUES, as gateways have them."""

    model_config = SettingsConfigDict(
        env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    task_queue: str = Field(default=DEFAULT_TASK_QUEUE, min_length=1)
    split_queues: bool = False
