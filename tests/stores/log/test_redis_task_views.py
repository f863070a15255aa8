"""Behaviour of Redis alone: expiry of keys, a lost script, events of a newer version."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from everloop.stores.keys import (
    OPEN_TASKS_KEY,
    head_key,
    log_key,
    owner_tasks_key,
    snapshot_key,
)
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, TaskQuery
from everloop.stores.push.configs import PushConfig, PushConfigs
from everloop.stores.scripts import Lease
from everloop.stores.secrets import Secrets
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.events import Shown, TaskCreated, TaskEvent
from everloop.workflows.contract.messages import ToolMessage, text_of
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView
from tests.stores.examples import (
    AGENT_ID,
    answered,
    artifact,
    at,
    chunk,
    new_id,
    said,
    status,
    submitted,
    view_of,
)
from tests.support.many_tasks import expire_task


@pytest.fixture
def views(redis: Redis) -> TaskViews:
    return TaskViews(redis)


def ended(*, owner: str = "", context_id: str = "", seconds: float = 0) -> TaskView:
    """Return a task that has ended."""
    view = submitted(owner=owner or new_id(), context_id=context_id or new_id(), seconds=seconds)
    status = view.status.model_copy(update={"state": TaskState.COMPLETED})
    return view.model_copy(update={"status": status})


async def keep_all(redis: Redis, task_id: str) -> None:
    """Write each other key of a task and of a sub-agent."""
    for id_ in (task_id, child_task_id(task_id, "call")):
        transcripts, records, secrets = Transcripts(redis), ToolRecords(redis), Secrets(redis)
        await transcripts.put(id_, "run", 0, [said("m")])
        lease = Lease(id_, "call", "attempt")
        await records.claim(lease, 10)
        await records.keep(lease, "asked", {"so": "far"})
        paid = ToolMessage(call_id="call", name="pay", content="paid")
        await records.run(records.finishing(Lease(id_, new_id(), "attempt"), paid))
        await secrets.put(id_, "m", "secret")
        await PushConfigs(redis).put(
            PushConfig(task_id=id_, id="c", owner="owner", context_id="x", url="http://x/", public_url=""),
            position="0-0",
        )
        await PushConfigs(redis).get(id_, "c")


async def rows_of(redis: Redis, owner: str) -> list[str]:
    """Return all list entries of an owner's tasks."""
    return cast("list[str]", await redis.zrange(owner_tasks_key(owner), 0, -1))


async def lives(redis: Redis, view: TaskView) -> dict[str, int]:
    """Return the time to live of each key of a task; -1: for ever."""
    keys = cast("list[str]", await redis.keys(f"everloop:task:{{{view.task_id}*"))
    return {key: await redis.ttl(key) for key in keys}


async def test_nothing_of_an_open_task_expires(redis: Redis, views: TaskViews) -> None:
    """No key of an open task or its sub-agents expires, from views to webhooks, and the task stays listed."""
    view = submitted()
    await keep_all(redis, view.task_id)  # some of it exists before the task
    await views.create(view)
    await keep_all(redis, view.task_id)
    child = child_task_id(view.task_id, "call")
    await views.publish(child, "run", [status(1, received=(said("a"),)), chunk("a")])
    for id_ in (child, view.task_id):
        await views.publish(id_, "run", [status(2, TaskState.INPUT_REQUIRED, received=(said("b"),))])

    open_lives = await lives(redis, await view_of(views, view.task_id))

    assert set(open_lives.values()) == {-1}
    assert len(open_lives) == 4 + 2 * 5 + 1
    assert await redis.zscore(OPEN_TASKS_KEY, view.task_id) is not None


async def test_what_is_kept_of_an_unknown_task_expires(redis: Redis) -> None:
    """Keys of a task whose end was never published expire; a use restarts the time."""
    task_id = new_id()

    async def keys() -> list[str]:
        await keep_all(redis, task_id)
        return cast("list[str]", await redis.keys(f"everloop:task:{{{task_id}*"))

    for key in await keys():
        await redis.expire(key, 5)

    lives = [await redis.ttl(key) for key in await keys()]
    assert len(lives) == 2 * 5 + 1  # and these are all
    assert min(lives) > 1_000


async def test_what_is_written_of_a_task_whose_view_was_lost_does_not_expire(
    redis: Redis, views: TaskViews
) -> None:
    """Keys of a task whose view was lost do not expire.

    An operator may have reset it after the view's expiry.
    """
    view = submitted()
    await views.create(view)
    await keep_all(redis, view.task_id)
    await views.publish(view.task_id, "run", [status(1, state=TaskState.COMPLETED)])
    await redis.delete(head_key(view.task_id), snapshot_key(view.task_id), log_key(view.task_id))

    await views.restore(view.model_copy(update={"run_id": "newer"}))
    await keep_all(redis, view.task_id)

    assert set((await lives(redis, view)).values()) == {-1}


async def test_all_of_a_task_expires_when_it_has_ended(redis: Redis) -> None:
    """All keys of a task expire after its last status, also those written later.

    Its events stay for another day, because clients are notified of them.
    """
    views = TaskViews(redis, RetentionSettings(task_ttl_days=2))
    view = submitted()
    await views.create(view)
    await keep_all(redis, view.task_id)
    child = child_task_id(view.task_id, "call")
    await views.publish(child, "run", [status(1, received=(said("a"),)), chunk("a")])
    for id_ in (child, view.task_id):
        await views.publish(id_, "run", [status(2, received=(said("b"),))])

    await views.publish(view.task_id, "run", [status(3, state=TaskState.COMPLETED)])
    await views.publish(child, "run", [chunk("b", index=1)])
    await Transcripts(redis).put(view.task_id, "late", 0, [said("m")])

    ended = await lives(redis, await view_of(views, view.task_id))
    assert {key for key in ended if key.endswith(":log")} == {log_key(view.task_id), log_key(child)}
    assert 24 * 3600 - 100 < ended[log_key(view.task_id)] <= 24 * 3600
    assert ended[log_key(child)] > 2 * 24 * 3600 - 100  # no snapshot has all of it: it has not ended
    assert min(ended.values()) > 24 * 3600 - 100
    assert ended[head_key(view.task_id)] > 2 * 24 * 3600 - 100
    assert snapshot_key(view.task_id) in ended
    assert await redis.zscore(OPEN_TASKS_KEY, view.task_id) is None
    await views.publish(view.task_id, "newer", [status(1, seconds=100)])  # an operator has reset it
    assert set((await lives(redis, await view_of(views, view.task_id))).values()) == {-1}


async def test_an_expired_task_leaves_all_its_lists(redis: Redis, views: TaskViews) -> None:
    """An expired task leaves all lists: pages are full, and totals exact."""
    owner, context_id = new_id(), new_id()
    tasks = [ended(owner=owner, context_id=context_id, seconds=n) for n in range(6)]
    for task in tasks:
        await views.create(task)
    for task in tasks[2:5]:
        await expire_task(redis, task)

    page = await views.list_tasks(TaskQuery(owner, AGENT_ID, page_size=2))

    assert [view.task_id for view in page.views] == [tasks[5].task_id, tasks[1].task_id]
    assert page.total == 3
    assert not [row for row in await rows_of(redis, owner) if any(gone.task_id in row for gone in tasks[2:5])]


async def test_an_event_that_cannot_be_read_is_skipped(redis: Redis, views: TaskViews) -> None:
    """An unreadable event is skipped by all readers, with one warning."""
    view = submitted()
    await views.create(view)
    await redis.xadd(log_key(view.task_id), {"event": '{"kind":"from-the-future"}'})

    with capture_logs() as logs:
        (created,) = await views.read({view.task_id: START}, wait=0)
        assert await views.read({view.task_id: created.position}, wait=0) == []
        await views.publish(view.task_id, "run", [status(1)])
        (found,) = await views.read({view.task_id: created.position}, wait=0)

    assert (created.event, found.event) == (TaskCreated(), status(1))
    assert [entry["log_level"] for entry in logs if entry.get("task_id") == view.task_id] == ["warning"]


async def test_a_status_that_follows_a_loss_says_so(views: TaskViews) -> None:
    """A status with a gap in its number marks a loss, in the view too, until the workflow has restored it."""
    view = submitted()
    await views.create(view)
    await views.publish(view.task_id, "run", [status(1), status(3)])
    loaded = [await views.load(view.task_id), await views.load(view.task_id, most=0)]
    events = await views.read({view.task_id: START}, wait=0)
    await views.restore(answered(view, "run", 3, history=(said("m1"), said("m2"))))
    loaded.append(await views.load(view.task_id))
    await views.publish(view.task_id, "run", [status(4)])
    loaded.append(await views.load(view.task_id))

    assert [shown and shown.is_incomplete for shown in loaded] == [True, True, False, False]
    assert [event.follows_loss for event in events] == [False, False, True]
    assert said("m2") in (await view_of(views, view.task_id)).history


@pytest.mark.parametrize(("before", "is_lost"), [((status(1),), True), ((status(1), status(2)), False)])
async def test_a_passing_status_follows_that_of_its_version(
    views: TaskViews, before: Sequence[TaskEvent], *, is_lost: bool
) -> None:
    """A status with a step follows its version's status without one; otherwise that one is lost."""
    view = submitted()
    await views.create(view)
    await views.publish(view.task_id, "run", before)
    await views.publish(view.task_id, "run", [status(2, step=1)])

    loaded = await views.load(view.task_id)
    assert loaded
    assert loaded.is_incomplete == is_lost


ANSWERED = [chunk("Hi", position=3, last=True)]
LOSSES: dict[str, tuple[Sequence[TaskEvent], Shown | None, bool]] = {
    "nothing is shown": ([], None, False),
    "the answer": (ANSWERED, Shown(answer=3), False),
    "a later answer": (ANSWERED, Shown(answer=2), False),
    "no answer": ([], Shown(answer=3), True),
    "half of the answer": ([chunk("H", position=3)], Shown(answer=3), True),
    "an earlier answer": (ANSWERED, Shown(answer=5), True),
    "an artifact": ([chunk("x", artifact_id="a b")], Shown(artifacts={"a b": 2}), False),
    "no artifact": (ANSWERED, Shown(artifacts={"a b": 2}), True),
}


@pytest.mark.parametrize(("shown", "shows", "is_lost"), LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("state", [TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED])
async def test_a_status_whose_view_lacks_what_it_shows_follows_a_loss(
    views: TaskViews, shown: Sequence[TaskEvent], shows: Shown | None, *, is_lost: bool, state: TaskState
) -> None:
    """A status marks a loss if the view lacks an artifact that it shows, unless it is published with it."""
    at_once, before = submitted(), submitted()
    for view in (at_once, before):
        await views.create(view)
    await views.publish(before.task_id, "run", [status(1), *shown])
    await views.publish(before.task_id, "run", [status(2, state, shows=shows)])
    await views.publish(at_once.task_id, "run", [*shown, status(1, state, shows=shows)])
    loaded = [await views.load(view.task_id) for view in (before, at_once)]
    streams = [await views.read({view.task_id: START}, wait=0) for view in (before, at_once)]

    assert [each and each.is_incomplete for each in loaded] == [is_lost] * 2
    assert [stream[-1].follows_loss for stream in streams] == [is_lost] * 2


@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, TaskState.COMPLETED])
async def test_what_a_view_lacks_comes_from_its_workflow_and_the_stores(
    views: TaskViews, state: TaskState
) -> None:
    """A view with gaps is restored once by its workflow and the stores, although they have no newer status.

    Half an answer and half an artifact are replaced.
    """
    view = submitted()
    await views.create(view)
    halves = [chunk("H", position=3), chunk("x", artifact_id="log", position=2)]
    await views.publish(view.task_id, "run", [*halves, status(1, state, shows=Shown(answer=3))])
    whole = artifact("Hi").model_copy(update={"position": 3}), artifact("xy", artifact_id="log")
    known = answered(view, "run", 1, status=TaskStatus(state=state, at=at(1)), artifacts=whole)
    await views.restore(known)
    told = await views.read({view.task_id: START}, wait=0)
    await views.restore(known)
    loaded = await views.load(view.task_id)

    assert loaded
    assert not loaded.is_incomplete
    texts = {each.artifact_id: (text_of(each.parts), each.complete) for each in loaded.view.artifacts}
    assert texts == {"response": ("Hi", True), "log": ("xy", True)}
    assert await views.read({view.task_id: START}, wait=0) == told


async def test_a_status_of_an_emptied_redis_follows_a_loss(redis: Redis, views: TaskViews) -> None:
    """A status after the first of its run marks a loss if the view is missing, as in an emptied Redis."""
    view = submitted()
    await views.create(view)
    await views.publish(view.task_id, "run", [status(1)])
    await redis.flushdb()
    await views.publish(view.task_id, "run", [status(2), status(3)])
    first = submitted()
    await views.publish(first.task_id, "run", [status(1)])  # a task that is not created yet

    found = await views.read({view.task_id: START, first.task_id: START}, wait=0)
    assert {(event.task_id, event.follows_loss) for event in found} == {
        (view.task_id, True),
        (view.task_id, False),
        (first.task_id, False),
    }


@pytest.mark.one_server  # readers of a cluster leave nothing behind
async def test_a_reader_that_dies_leaves_nothing_behind(redis: Redis, views: TaskViews) -> None:
    """The wake stream of a dead reader expires by itself and never grows."""
    before = set(await redis.keys("everloop:reader:*"))
    for _ in range(3):
        reading = asyncio.create_task(views.read({new_id(): START}, wait=60))
        await asyncio.sleep(0)  # it is waiting
        await views.wake()
        assert await reading == []

    (key,) = set(await redis.keys("everloop:reader:*")) - before
    assert await redis.xlen(key) == 1
    assert 0 < await redis.ttl(key) <= 600
