"""Random histories of a task: Redis refuses the same as the fences, and the view is the fold of the log."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from everloop.stores.keys import log_key
from everloop.stores.log import log_store
from everloop.stores.log.forwarding import forwarded
from everloop.stores.log.log_codec import LogCodec
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import TaskPage, TaskQuery
from everloop.stores.quotas import Quotas
from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.fold import FoldedView, fold, microseconds, task_view
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import at, open_entries, stream_of, submitted
from tests.stores.log.histories import (
    CHANGES,
    CHILD_PUBLISHES,
    CREATES,
    PASSING,
    PUBLISHES,
    Change,
    ChildPublish,
    Create,
    End,
    Publish,
    Restore,
)
from tests.support.fences import FencedTask


async def apply(views: TaskViews, view: TaskView, change: Change) -> None:
    match change:
        case Create():
            await views.create(view)
        case Publish():
            await views.publish(view.task_id, change.run_id, change.events)
        case ChildPublish():
            child_id = child_task_id(view.task_id, change.path)
            await views.publish(child_id, change.run_id, change.events)
        case Restore():
            await views.restore(change.view_of(view))
        case End():
            await views.end(view.task_id, change.run_id, change.status)


def queries_of(view: TaskView) -> list[TaskQuery]:
    """Return all combinations of filters, each of which matches some histories."""
    return [
        TaskQuery(
            view.owner, view.agent_id, context, state, since, with_history=history, with_artifacts=not history
        )
        for context, state, since, history in product(
            (None, view.context_id), (None, *TaskState), (None, microseconds(at(3))), (None, 0, 1)
        )
    ]


class Model:
    """The expected task, its sub-agents, and their streams, by the fold."""

    def __init__(self) -> None:
        self.tasks: defaultdict[str, FencedTask] = defaultdict(FencedTask)
        self.streams: defaultdict[str, list[TaskEvent]] = defaultdict(list)

    def apply(self, view: TaskView, change: Change) -> None:
        path = change.path if isinstance(change, ChildPublish) else ""
        task_id = child_task_id(view.task_id, path) if path else view.task_id
        told = self._fold(self.tasks[task_id], view, change)
        self.streams[task_id] += told
        state = self.tasks[view.task_id].state
        if state and not state.is_terminal:
            self.streams[view.task_id] += [copy for event in told if (copy := forwarded(task_id, event))]

    @staticmethod
    def _fold(task: FencedTask, view: TaskView, change: Change) -> Sequence[TaskEvent]:
        match change:
            case Create():
                return task.create(view)
            case Publish() | ChildPublish():
                return task.publish(change.run_id, change.events)
            case Restore():
                return task.restore(change.view_of(view))
            case End():
                return task.end(change.run_id, change.status)


def page_of(view: TaskView | None, query: TaskQuery) -> TaskPage:
    """Return the page of an owner who has this one task."""
    if (
        view is None
        or query.context_id not in {None, view.context_id}
        or query.state not in {None, view.status.state}
        or (query.updated_since is not None and microseconds(view.status.at) < query.updated_since)
    ):
        return TaskPage((), 0, "")
    history = {None: view.history, 0: (), 1: view.history[-1:]}[query.with_history]
    artifacts = view.artifacts if query.with_artifacts else ()
    return TaskPage((view.model_copy(update={"history": history, "artifacts": artifacts}),), 1, "")


async def loaded(views: TaskViews, task_id: str) -> TaskView | None:
    snapshot = await views.load(task_id)
    return snapshot.view if snapshot else None


async def folded_from_log(redis: Redis, view: TaskView) -> TaskView | None:
    """Fold the log in Redis from its start."""
    codec, folded = LogCodec(view.task_id, NO_CIPHER), FoldedView()
    entries = cast("list[tuple[str, dict[str, str]]]", await redis.xrange(log_key(view.task_id)))
    for _, fields in entries:
        folded = fold(folded, codec.entry(fields))
    return task_view(folded)


@pytest.fixture(params=["large", "small"], autouse=True)
def tails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the frequency of snapshots: rarely, or after nearly each event."""
    if request.param == "small":
        monkeypatch.setattr(log_store, "SMALL_TAIL", 0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGES | CHILD_PUBLISHES, min_size=1, max_size=10))
async def test_redis_and_the_fences_agree_on_every_history(redis_url: str, changes: Sequence[Change]) -> None:
    """After any order of creations, publishes and restores, Redis and the fences have the same result."""
    view, now, model = submitted(), None, Model()
    async with connect_redis(redis_url) as redis:
        stored = TaskViews(redis)
        for change in changes:
            model.apply(view, change)
            await apply(stored, view, change)
            now = model.tasks[view.task_id].view
            assert await loaded(stored, view.task_id) == now
            assert await stored.state(view.task_id) == (now.status.state if now else None)

        assert await stream_of(stored, view.task_id) == model.streams[view.task_id]
        for query in queries_of(view):
            assert await stored.list_tasks(query) == page_of(now, query)
        is_open = await open_entries(redis, view.task_id) != []
        assert is_open == bool(now and not now.status.state.is_terminal)
        assert await Quotas(redis).reserve_task(view.owner, "other", 1) is not is_open


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CREATES | PUBLISHES | CHILD_PUBLISHES, min_size=1, max_size=10))
async def test_the_view_is_the_fold_of_the_log(redis_url: str, changes: Sequence[Change]) -> None:
    """The fold of the complete log is the view, with snapshots or without."""
    view = submitted()
    async with connect_redis(redis_url) as redis:
        stored = TaskViews(redis)
        for change in changes:
            await apply(stored, view, change)

        assert await folded_from_log(redis, view) == await loaded(stored, view.task_id)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGES, min_size=1, max_size=6))
async def test_repeating_the_last_change_changes_no_view(redis_url: str, changes: Sequence[Change]) -> None:
    """A repeated last change, as after a lost answer, leaves the view, statuses and chunks unchanged."""
    view = submitted()
    last = changes[-1]
    async with connect_redis(redis_url) as redis:
        stored = TaskViews(redis)
        for change in changes[:-1]:
            await apply(stored, view, change)
        heard_before = await stream_of(stored, view.task_id)
        await apply(stored, view, last)
        once, heard_once = await loaded(stored, view.task_id), await stream_of(stored, view.task_id)

        if isinstance(last, Publish):
            # An event that was dropped because it came too early may pass the second time.
            last = Publish(last.run_id, heard_once[len(heard_before) :])
        await apply(stored, view, last)

        assert await loaded(stored, view.task_id) == once
        heard_again = (await stream_of(stored, view.task_id))[len(heard_once) :]
        assert not [event for event in heard_again if not isinstance(event, PASSING)]
