"""Statuses that a call carries: all that are not confirmed as published, once."""

from datetime import UTC, datetime

import pytest

from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import TaskState
from everloop.workflows.scope import Outbox
from everloop.workflows.state import TaskRunState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def state() -> TaskRunState:
    """A task whose first status waits to be published."""
    state = TaskRunState.begin(UserMessage(message_id="m", parts=(TextPart(text="Hello"),)), NOW)
    change(state)
    return state


def change(state: TaskRunState) -> None:
    state.change_status(TaskState.WORKING, NOW)


def carried(outbox: Outbox) -> list[int]:
    """The versions in a call that ends well."""
    with outbox.carried() as statuses:
        return [status.version for status in statuses]


def test_calls_at_the_same_time_carry_a_status_once(state: TaskRunState) -> None:
    """Unless there is a newer one: no view takes it before the older one."""
    outbox = Outbox(state)
    with outbox.carried():
        assert carried(outbox) == []
        change(state)
        assert carried(outbox) == [1, 2]
    assert carried(outbox) == []


def test_a_call_that_ends_late_confirms_only_what_it_carried(state: TaskRunState) -> None:
    """Statuses after its start stay."""
    outbox = Outbox(state)
    with outbox.carried():
        change(state)
    assert carried(outbox) == [2]


def test_the_failure_of_one_call_leaves_what_another_carries(state: TaskRunState) -> None:
    """Only statuses in no other call are carried again."""
    outbox = Outbox(state)
    with outbox.carried():
        change(state)
        with pytest.raises(RuntimeError), outbox.carried():
            raise RuntimeError
        assert carried(outbox) == [1, 2]
