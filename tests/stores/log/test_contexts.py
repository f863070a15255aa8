"""Contexts of an owner: their tasks and usage are counted once, despite repeated and late events."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis

from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.keys import context_info_key, head_key, log_key, owner_contexts_key
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.log.contexts import ContextInfo, Contexts
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import InvalidPageTokenError
from everloop.stores.retention.views import ExpiredViews
from everloop.workflows.contract.events import USAGE
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import at, new_id, said, status, submitted

DAY = 24 * 3600
KNOWN_FOR = {"written": 30, "bare": 7, "at once": 30}
"""Context → days."""


@pytest.fixture(params=["redis", pytest.param("encrypted", marks=pytest.mark.slow)])
def views(request: pytest.FixtureRequest) -> TaskViews:
    return TaskViews(request.getfixturevalue(str(request.param)))


def used(read: int, written: int, cost: float | None) -> dict[str, JsonValue]:
    return {USAGE: {"inputTokens": read, "outputTokens": written, "cost": cost}}


async def known(views: TaskViews, owner: str, context_id: str) -> ContextInfo:
    context = await views.contexts.get(owner, context_id)
    assert context
    return context


async def test_what_tasks_have_used_is_counted_once(views: TaskViews) -> None:
    """Usage of a status replaces the earlier one's, also when repeated; an end closes a task."""
    owner, context_id = new_id(), "c / 1"
    first, second = (submitted(owner=owner, context_id=context_id) for _ in range(2))
    for view in (first, second):
        await views.create(view)
        await views.create(view)
    working = status(2, TaskState.WORKING, metadata=used(10, 1, 0.25))
    done = status(3, TaskState.COMPLETED, metadata=used(30, 3, 0.5))
    for event in (working, done, done, working):
        await views.publish(first.task_id, "run", [event])
    half = await known(views, owner, context_id)
    await views.publish(second.task_id, "run", [status(2, TaskState.FAILED, metadata=used(5, 5, None))])
    end = await known(views, owner, context_id)

    assert (half.count, half.open_tasks, half.agents) == (2, 1, (first.agent_id,))
    assert (half.usage.input_tokens, half.usage.output_tokens, half.usage.cost) == (30, 3, 0.5)
    assert (end.count, end.open_tasks, end.usage.input_tokens, end.usage.cost) == (2, 0, 35, None)
    assert {task.task_id for task in end.tasks} == {first.task_id, second.task_id}


async def test_a_title_is_how_the_first_message_begins(views: TaskViews) -> None:
    """A title is the beginning of the first message until one is set.

    After that task's deletion, the next one's.
    """
    owner, context_id = new_id(), new_id()
    for second, text in enumerate(("Write\n a poem", "Another " * 50)):
        view = submitted(owner=owner, context_id=context_id, seconds=second)
        await views.create(view.model_copy(update={"history": (said("m", text),)}))
    first = await known(views, owner, context_id)
    await views.contexts.forget_task(owner, context_id, first.tasks[0].task_id)
    second = await known(views, owner, context_id)
    assert await views.contexts.set_title(owner, context_id, "Poems")
    await views.contexts.forget_task(owner, context_id, second.tasks[0].task_id)

    assert (first.title, second.title[:15], len(second.title)) == ("Write a poem", "Another Another", 80)
    assert (await known(views, owner, context_id)).title == "Poems"
    assert not await views.contexts.set_title(owner, "none", "Poems")


async def test_what_is_forgotten_of_a_context_is_counted_down(views: TaskViews) -> None:
    """A deletion decrements tasks, open tasks and agents of a context.

    Its usage stays while it has a task.
    """
    owner = new_id()
    ended, open_ = (submitted(owner=owner, context_id="c") for _ in range(2))
    for view in (ended, open_):
        await views.create(view)
    used_up = status(2, TaskState.COMPLETED, metadata=used(3, 1, 0.5))
    await views.publish(ended.task_id, "run", [used_up])
    assert not await views.contexts.forget(owner, "c")
    found = list[tuple[int, int, int, int]]()
    for view in (ended, ended, open_):
        await views.contexts.forget_task(owner, "c", view.task_id)
        context = await known(views, owner, "c")
        found.append((context.count, context.open_tasks, len(context.agents), context.usage.input_tokens))

    assert found == [(1, 1, 1, 3), (1, 1, 1, 3), (0, 0, 0, 3)]
    assert [await views.contexts.forget(owner, "c") for _ in range(2)] == [True, False]
    assert (await views.contexts.get(owner, "c"), await views.contexts.ids(owner)) == (None, [])


@pytest.mark.parametrize("put", ["never", "before", "meanwhile"])
async def test_a_context_with_content_is_not_forgotten(views: TaskViews, put: str) -> None:
    """Content that is added during the deletion of the last task restores the context with its title."""
    view = submitted(owner=new_id(), context_id="c")
    await views.create(view)
    await views.contexts.forget_task(view.owner, "c", view.task_id)
    assert await views.contexts.set_title(view.owner, "c", "A title of mine")
    assert await views.contexts.set_retention(view.owner, "c", timedelta(days=1))
    before = await known(views, view.owner, "c")
    answers = {"never": [False, False], "before": [True], "meanwhile": [False, True]}[put]

    async def has_content() -> bool:
        return answers.pop(0)

    is_forgotten = await views.contexts.forget_if_empty(view.owner, "c", has_content)

    assert (is_forgotten, answers) == (put == "never", [])
    left = [before] if put != "never" else []
    assert await views.contexts.ids(view.owner) == [each.context_id for each in left]
    assert await views.contexts.get(view.owner, "c") == (left[0] if left else None)
    due = [each.context_id for each in await views.contexts.due(9) if each.owner == view.owner]
    assert due == ["c" for _ in left]


async def test_pages_have_each_context_once_the_newest_first(views: TaskViews) -> None:
    """Pages have each context of the owner once, newest first, filtered by a query in the title."""
    owner = new_id()
    for number in range(7):
        view = submitted(owner=owner, context_id=f"c{number}", seconds=number)
        await views.create(view.model_copy(update={"history": (said("m", f"Number {number % 2}"),)}))
    await views.create(submitted(owner=new_id(), context_id="c1"))
    found, token = list[str](), ""
    while True:
        page = await views.contexts.page(owner, 3, token)
        found += [context.context_id for context in page.contexts]
        if not (token := page.next_page_token):
            break
    odd = await views.contexts.page(owner, 50, query="NUMBER 1")

    assert found == [f"c{number}" for number in range(6, -1, -1)]
    assert [context.context_id for context in odd.contexts] == ["c5", "c3", "c1"]
    with pytest.raises(InvalidPageTokenError):
        await views.contexts.page(owner, 3, "x")


async def test_contexts_go_a_time_after_their_last_task(own_redis: Redis) -> None:
    """A context expires after its last task's end, not while one is open; the housekeeping unlists it."""
    second = 1 / 86_400
    views = TaskViews(
        own_redis, RetentionSettings.model_construct(task_ttl_days=second, conversation_ttl_days=second)
    )
    owner = new_id()
    ended, open_, first, again = (
        submitted(owner=owner, context_id=name) for name in ("ended", "open", "again", "again")
    )
    for view in (ended, open_, first):
        await views.create(view)
    await views.publish(first.task_id, "run", [status(2, TaskState.COMPLETED)])
    await views.create(again)
    await views.publish(ended.task_id, "run", [status(2, TaskState.COMPLETED)])
    while await views.contexts.get(owner, "ended"):  # noqa: ASYNC110 -- Redis says nothing when a key expires
        await asyncio.sleep(0.05)
    await ExpiredViews(own_redis).clean("", dry_run=False)

    assert sorted(await own_redis.zrange(owner_contexts_key(owner), 0, -1)) == ["again", "open"]
    assert (await known(views, owner, "open")).open_tasks == 1


async def test_a_context_is_known_as_long_as_its_artifacts(own_redis: Redis) -> None:
    """A context lives as long as its artifacts, even if later tasks have none or were answered at once."""
    views, owner = TaskViews(own_redis), new_id()
    artifacts = Artifacts(own_redis, RedisBlobs(own_redis))
    written, bare = (submitted(owner=owner, context_id=name) for name in ("written", "bare"))
    later = submitted(owner=owner, context_id="written")
    for view in (written, bare, later):
        await views.create(view)
        if view is written:
            await artifacts.apply(context_key(owner, "written"), "a", Create("task", ()))
        await views.publish(view.task_id, "run", [status(2, TaskState.COMPLETED)])
    await artifacts.apply(context_key(owner, "at once"), "a", Create("task", ()))
    await views.note_answer(submitted(owner=owner, context_id="at once"))

    lives = {each: await own_redis.ttl(context_info_key(owner, each)) / DAY for each in KNOWN_FOR}
    assert {each: round(life) for each, life in lives.items()} == KNOWN_FOR


async def test_events_of_a_task_that_is_to_be_kept_stay(own_redis: Redis) -> None:
    """Events of a task live as long as its retention or its context's, beyond their own time."""
    views, owner = TaskViews(own_redis), new_id()
    lives = list[float]()
    for of_context, of_task in ((90, None), (90, 30), (None, 30), (None, None)):
        view = submitted(owner=owner, context_id=new_id())
        await views.create(view)
        for days, task_id in ((of_context, ""), (of_task, view.task_id)):
            if days:
                await views.contexts.set_retention(owner, view.context_id, timedelta(days=days), task_id)
        await views.publish(view.task_id, "run", [status(2, TaskState.COMPLETED)])
        lives += [await own_redis.ttl(key(view.task_id)) / DAY for key in (log_key, head_key)]

    assert list(map(round, lives)) == [90, 90, 30, 30, 30, 30, 0, 7]


async def test_what_was_answered_at_once_is_no_task(views: TaskViews) -> None:
    """A message that is answered at once is not a task; its context is listed by its first time."""
    view = submitted(owner=new_id(), context_id="c1").model_copy(update={"history": (said("m", "Hi"),)})
    await views.note_answer(view)
    await views.note_answer(view.model_copy(update={"created_at": at(9)}))
    context = await known(views, view.owner, "c1")

    assert (context.count, context.open_tasks, context.title) == (0, 0, "Hi")
    assert context.updated_at == view.created_at
    assert [task.task_id for task in context.tasks] == [view.task_id]
    assert await views.contexts.forget_task(view.owner, "c1", view.task_id)
    assert (await known(views, view.owner, "c1")).count == 0


@pytest.mark.parametrize("moment", ["before", "within", "after"])
async def test_a_retention_that_is_set_while_somebody_looks_is_seen_to(own_redis: Redis, moment: str) -> None:
    """A retention that is set during the housekeeping's read of a context is applied, not overlooked."""
    views, owner = TaskViews(own_redis), new_id()
    await views.create(submitted(owner=owner, context_id="c"))
    contexts = _Interrupted(own_redis)
    assert await contexts.set_retention(owner, "c", None)
    (due,) = await contexts.due(100)
    if moment == "within":
        contexts.meanwhile = lambda: _look_and_leave(contexts)
    if moment == "after":
        await contexts.look_again(due, None)
    assert await contexts.set_retention(owner, "c", timedelta(days=1))
    if moment == "before":
        await contexts.look_again(due, None)

    assert [(each.owner, each.context_id) for each in await contexts.due(100)] == [(owner, "c")]


async def _look_and_leave(contexts: Contexts) -> None:
    for due in await contexts.due(100):
        await contexts.look_again(due, None)


class _Interrupted(Contexts):
    """Contexts that call a function right before each write."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def _change(self, owner: str, context_id: str, *fields: str) -> bool:
        if self.meanwhile:
            await self.meanwhile()
        return await super()._change(owner, context_id, *fields)
