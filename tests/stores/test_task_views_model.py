"""Random histories of a task: Redis and memory agree, and the view is the fold of the stream."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from stores.fold import FoldedTask
from stores.memory_task_views import MemoryTaskViews
from stores.redis_connection import connect_redis
from stores.redis_task_views import RedisTaskViews
from stores.task_views import TaskQuery, TaskViews
from tests.stores.examples import (
    answered,
    artifact,
    at,
    chunk,
    data,
    said,
    status,
    stream_of,
    submitted,
    told,
)
from workflows.contract.events import EVENT_ADAPTER, FINAL_ATTEMPT, TaskCreated, TaskEvent, Warned
from workflows.contract.messages import Part, TextPart
from workflows.contract.names import stream_key
from workflows.contract.tasks import TaskState, TaskStatus, TaskView

RUNS = st.sampled_from(["run-a", "run-b", "run-c"])
STATES = st.sampled_from([TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
PARTS: st.SearchStrategy[Part] = st.builds(lambda text: TextPart(text=text), TEXTS) | st.just(data(x="1"))
USER_MESSAGES = st.builds(said, st.sampled_from(["m1", "m2", "m3", "m4"]))
AGENT_MESSAGES = st.none() | st.builds(told, st.sampled_from(["t1", "t2", "t3"]))
STATUSES = st.builds(
    status,
    st.integers(1, 4),
    STATES,
    step=st.integers(0, 1),
    message=AGENT_MESSAGES,
    received=st.lists(USER_MESSAGES, max_size=2).map(tuple),
    seconds=st.integers(0, 5),
)
CHUNKS = st.builds(
    chunk,
    st.just(""),
    position=st.integers(0, 2),
    attempt=st.sampled_from([1, 2, FINAL_ATTEMPT]),
    index=st.integers(0, 2),
    last=st.booleans(),
    artifact_id=st.sampled_from(["response", "log"]),
    part=PARTS,
)
EVENTS: st.SearchStrategy[TaskEvent] = STATUSES | CHUNKS | st.just(Warned(text="w"))


@dataclass(frozen=True)
class Create:
    """The gateway creates the task."""


@dataclass(frozen=True)
class Publish:
    """A worker publishes a batch."""

    run_id: str
    events: Sequence[TaskEvent]


@dataclass(frozen=True)
class Restore:
    """A gateway restores what a run of the workflow answered."""

    run_id: str
    version: int
    status: TaskStatus
    history: tuple[str, ...]
    artifacts: tuple[tuple[str, bool], ...]

    def view_of(self, view: TaskView) -> TaskView:
        return answered(
            view,
            self.run_id,
            self.version,
            status=self.status,
            history=tuple(map(said, self.history)),
            artifacts=tuple(
                artifact(f"restored {key}", complete=done, artifact_id=key) for key, done in self.artifacts
            ),
        )


CREATES = st.builds(Create)
PUBLISHES = st.builds(Publish, RUNS, st.lists(EVENTS, min_size=1, max_size=4))
RESTORES = st.builds(
    Restore,
    RUNS,
    st.integers(1, 4),
    st.builds(TaskStatus, state=STATES, at=st.integers(0, 5).map(at), message=AGENT_MESSAGES),
    st.lists(st.sampled_from(["m1", "m2", "m3", "m5"]), unique=True).map(tuple),
    st.lists(
        st.tuples(st.sampled_from(["response", "log"]), st.booleans()),
        max_size=2,
        unique_by=lambda pair: pair[0],
    ).map(tuple),
)
Change = Create | Publish | Restore


async def apply(views: TaskViews, view: TaskView, change: Change) -> None:
    match change:
        case Create():
            await views.create(view)
        case Publish():
            await views.publish(view.task_id, change.run_id, change.events)
        case Restore():
            await views.restore(change.view_of(view))


async def loaded(views: TaskViews, task_id: str) -> TaskView | None:
    snapshot = await views.load(task_id)
    return snapshot.view if snapshot else None


async def folded_from_stream(redis: Redis, view: TaskView) -> TaskView | None:
    """Fold the stream as it stands in Redis, from its start, into a new task."""
    task = FoldedTask()
    for _, fields in await redis.xrange(stream_key(view.task_id)):
        event = EVENT_ADAPTER.validate_json(fields["event"])
        if isinstance(event, TaskCreated):
            assert task.create(view) == [event]
        else:
            assert task.publish(fields["run"], [event]) == [event]
    return task.view


@settings(max_examples=150, deadline=None)
@given(changes=st.lists(CREATES | PUBLISHES | RESTORES, min_size=1, max_size=10))
async def test_redis_and_memory_agree_on_every_history(redis_url: str, changes: Sequence[Change]) -> None:
    """Whatever is created, published and restored in whatever order, both stores come to the same."""
    view = submitted()
    memory = MemoryTaskViews()
    async with connect_redis(redis_url) as redis:
        stored = RedisTaskViews(redis)
        for change in changes:
            await apply(memory, view, change)
            await apply(stored, view, change)
            assert await loaded(stored, view.task_id) == await loaded(memory, view.task_id)

        assert await stream_of(stored, view.task_id) == await stream_of(memory, view.task_id)
        query = TaskQuery(owner=view.owner, context_id=view.context_id)
        assert await stored.list_tasks(query) == await memory.list_tasks(query)


@settings(max_examples=100, deadline=None)
@given(changes=st.lists(CREATES | PUBLISHES, min_size=1, max_size=10))
async def test_the_view_is_the_fold_of_the_stream(redis_url: str, changes: Sequence[Change]) -> None:
    """Folding the stream from its start gives the view, and lets every event through."""
    view = submitted()
    async with connect_redis(redis_url) as redis:
        stored = RedisTaskViews(redis)
        for change in changes:
            await apply(stored, view, change)

        assert await folded_from_stream(redis, view) == await loaded(stored, view.task_id)


@settings(max_examples=100, deadline=None)
@given(changes=st.lists(CREATES | PUBLISHES | RESTORES, min_size=1, max_size=6))
async def test_repeating_the_last_change_changes_no_view(redis_url: str, changes: Sequence[Change]) -> None:
    """A caller that lost the answer to its call may call again: the view stays, statuses and chunks too."""
    view = submitted()
    async with connect_redis(redis_url) as redis:
        stored = RedisTaskViews(redis)
        for change in changes:
            await apply(stored, view, change)
        once, heard_once = await loaded(stored, view.task_id), await stream_of(stored, view.task_id)

        await apply(stored, view, changes[-1])

        assert await loaded(stored, view.task_id) == once
        heard_again = (await stream_of(stored, view.task_id))[len(heard_once) :]
        assert not [event for event in heard_again if not isinstance(event, Warned)]
