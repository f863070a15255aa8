"""The end of a client's stream."""

from datetime import UTC, datetime

import pytest

from everloop.gateway.tasks.streams import StreamItem, UntilEnd, UntilReply
from everloop.stores.log.log_types import START, Snapshot, StreamedEvent
from everloop.workflows.contract.events import StatusChanged, Thought
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import a_view

NOW = datetime.now(UTC)


def heard(message_id: str) -> tuple[UserMessage, ...]:
    return (UserMessage(message_id=message_id, parts=(TextPart(text="hi"),)),) if message_id else ()


def shown(state: str, message_id: str = "") -> Snapshot:
    """A snapshot in a state, with a message in its history."""
    view = a_view(state=TaskState(state), history=heard(message_id))
    return Snapshot(view, START)


def event(state: str, message_id: str = "") -> StreamedEvent:
    """A status with the id of the message that was taken in."""
    status = StatusChanged(version=1, state=TaskState(state), at=NOW, received=heard(message_id))
    return StreamedEvent("task", START, status)


THOUGHT = StreamedEvent("task", START, Thought(iteration=1, text="…"))


@pytest.mark.parametrize(
    ("steps", "end", "reply"),
    [
        ([shown("completed")], True, True),
        ([shown("working"), THOUGHT], False, False),
        ([shown("submitted", "m"), event("working"), event("input-required")], False, True),
        ([shown("input-required", "m")], False, True),
        ([shown("input-required", "other")], False, False),
        ([shown("input-required"), event("working", "m")], False, False),
        ([shown("input-required"), event("working", "m"), event("auth-required")], False, True),
        ([shown("input-required"), event("working", "other"), event("input-required")], False, False),
        ([shown("input-required"), event("canceled")], True, True),
        ([shown("input-required"), event("input-required", "m")], False, True),
        ([shown("working"), event("rejected")], True, True),
    ],
)
def test_following_ends_where_it_should(steps: list[StreamItem], *, end: bool, reply: bool) -> None:
    """A subscription lasts to the end of the task; a reply ends when the task waits for the next message."""
    until_end, until_reply = UntilEnd(), UntilReply("m", is_answer=True)
    assert [until_end.is_over(step) for step in steps][-1] == end
    assert [until_reply.is_over(step) for step in steps][-1] == reply


def test_a_question_that_came_up_meanwhile_is_a_reply() -> None:
    """The message answered no question, so the open question is not one that the client has answered."""
    until_reply = UntilReply("m", is_answer=False)
    assert not until_reply.is_over(shown("working"))
    assert until_reply.is_over(event("input-required"))
