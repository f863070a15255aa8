"""Where the commands of operators find the tasks of an Everloop."""

from pydantic import Field

from everloop.runtime.settings import Settings
from everloop.workflows.contract.names import DEFAULT_TASK_QUEUE


class QueueSettings(Settings):
    """Where scheduled tasks wait: EVERLOOP_TASK_QUEUE and EVERLOOP_SPLIT_QUEUES, as gateways have them."""

    task_queue: str = Field(default=DEFAULT_TASK_QUEUE, min_length=1)
    split_queues: bool = False
