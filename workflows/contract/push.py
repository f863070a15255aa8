"""Push notifications: what the workflow that delivers them and its activity tell each other."""

from everloop.workflows.contract.payloads import Wire

PUSH_FAILED = "PushFailed"
"""A webhook did not take a notification. Retryable."""

TASK_UNREADABLE = "TaskUnreadable"
"""The view of a task is lost, and its workflow does not tell it now. Retryable."""


class PushRef(Wire):
    """The notifications of one task for one config; nothing of either stands in a history."""

    task_id: str
    config_id: str


class DeliverPushInput(Wire):
    """Notify a client of the next thing that it has not heard.

    `skips`: it was tried for long enough; leave it out.
    """

    push: PushRef
    skips: bool = False


class DeliverPushResult(Wire):
    """What became of it.

    `delivered`: there may be more, look again at once. `done`: the client has heard the end of the task, or
    wants to hear nothing.
    """

    delivered: bool = False
    done: bool = False
