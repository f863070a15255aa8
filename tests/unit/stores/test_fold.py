"""The fold of a task's events, by itself."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from everloop.workflows.contract.events import TaskEvent
from tests.stores.examples import status, submitted
from tests.stores.views.histories import EVENTS, PASSING, PUBLISHES, RUNS, Publish
from tests.support.memory.fold import FoldedTask

VIEW = submitted()


def created() -> FoldedTask:
    task = FoldedTask()
    task.create(VIEW)
    return task


@given(st.lists(PUBLISHES, max_size=8))
def test_a_batch_is_no_more_than_its_events(batches: Sequence[Publish]) -> None:
    """Publishing events together or one by one lets the same through and ends in the same view."""
    together, apart = created(), created()

    for batch in batches:
        accepted = together.publish(batch.run_id, batch.events)
        assert accepted == [e for event in batch.events for e in apart.publish(batch.run_id, [event])]

    assert together.view == apart.view


@given(st.lists(PUBLISHES, max_size=8), RUNS, st.lists(EVENTS, max_size=8))
def test_a_run_that_was_overtaken_never_publishes_again(
    before: Sequence[Publish], overtaken: str, late: Sequence[TaskEvent]
) -> None:
    """Whatever a run did before a newer one took over, nothing of it passes afterwards."""
    task = created()
    for batch in [*before, Publish(overtaken, [status(1)])]:
        task.publish(batch.run_id, batch.events)
    task.publish("newest", [status(1)])

    view = task.view

    assert task.publish(overtaken, late) == []
    assert task.view == view


@given(st.lists(PUBLISHES, max_size=8), PUBLISHES)
def test_an_event_that_was_let_through_passes_only_once(before: Sequence[Publish], batch: Publish) -> None:
    """Folding accepted statuses and chunks in again changes no view; only passing events pass again."""
    task = created()
    for each in before:
        task.publish(each.run_id, each.events)
    accepted = task.publish(batch.run_id, batch.events)
    view = task.view

    repeated = task.publish(batch.run_id, accepted)

    assert task.view == view
    assert all(isinstance(event, PASSING) for event in repeated)
