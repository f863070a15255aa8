"""When a client that follows a task has heard enough. Pure."""

from everloop.stores.views.interface import Snapshot, StreamedEvent
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.tasks import TaskState

INTERRUPTED_STATES = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})

Step = Snapshot | StreamedEvent
"""What following a task yields."""


class UntilEnd:
    """Follow a task until it has ended.

    This is SubscribeToTask: A2A 1.0 §3.1.6 ends its stream at a terminal state, so it stays open while the
    task waits for its user.
    """

    def is_over(self, step: Step) -> bool:
        """Whether nothing follows this step. Call it for every step, in order."""
        state = _state_of(step)
        return state is not None and state.is_terminal


class UntilReply(UntilEnd):
    """Follow a task until it has ended, or waits for its user although it has taken `message_id` in.

    This is SendMessage (A2A 1.0 §3.2.2: a blocking call returns at a terminal or interrupted state) and
    SendStreamingMessage (§11.7: the same for its stream): the reply to one message. A task that waited for
    exactly this message, which `is_answer`, still shows the old state for a moment, which is not the reply.
    Another message may find that the task has asked something meanwhile: that is a reply, and the question
    is still open.
    """

    def __init__(self, message_id: str, *, is_answer: bool) -> None:
        self._message_id = message_id
        self._taken_in = not is_answer

    def is_over(self, step: Step) -> bool:
        self._taken_in = self._taken_in or self._message_id in _messages_of(step)
        return super().is_over(step) or (self._taken_in and _state_of(step) in INTERRUPTED_STATES)


class UntilTakenIn(UntilEnd):
    """Follow a task until it has taken `message_id` in, or has ended: the question it asked is answered."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id

    def is_over(self, step: Step) -> bool:
        return super().is_over(step) or self._message_id in _messages_of(step)


def _state_of(step: Step) -> TaskState | None:
    if isinstance(step, Snapshot):
        return step.view.status.state
    return step.event.state if isinstance(step.event, StatusChanged) else None


def _messages_of(step: Step) -> set[str]:
    if isinstance(step, Snapshot):
        return set(step.message_ids)
    if isinstance(step.event, StatusChanged):
        return {message.message_id for message in step.event.received}
    return set()
