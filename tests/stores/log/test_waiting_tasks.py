"""Lists of tasks that wait for other people than their owner."""

import pytest
from redis.asyncio import Redis

from everloop.stores.keys import OPEN_TASKS_KEY
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import InvalidPageTokenError, TaskQuery, WaitingPage, WaitingQuery
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import Question, QuestionKind
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import new_id, status, submitted


def asking(scope: str, question_id: str = "q") -> Question:
    call = ToolCall(id="c", name="refund", arguments="{}")
    kind = QuestionKind.CONFIRMATION
    return Question(id=question_id, kind=kind, text="?", call=call, approvers=scope, purpose="approval")


async def wait_for(views: TaskViews, *scopes: str, seconds: float = 1, task_id: str = "") -> TaskView:
    """Make a task wait for answers of these scopes, "owner" being its owner."""
    view = submitted(task_id, seconds=seconds)
    await views.create(view)
    questions = tuple(asking(scope, scope) for scope in scopes)
    await views.publish(view.task_id, "run", [status(1, state=TaskState.INPUT_REQUIRED, questions=questions)])
    return view


def ids_of(page: WaitingPage) -> list[tuple[str, str]]:
    return [(task.view.task_id, task.scope) for task in page.tasks]


async def test_a_task_is_listed_for_those_whom_it_asks(task_views: TaskViews) -> None:
    """A task is listed by each scope that it asks, and by no other.

    Questions to its owner only for the owner.
    """
    one, two = f"{new_id()}:approve", f"{new_id()}:approve"
    both = await wait_for(task_views, one, two, "owner")
    await wait_for(task_views, "owner")
    await wait_for(task_views, one, task_id=f"{new_id()}/call")  # answered at the client's task

    page = await task_views.list_waiting(WaitingQuery((one, two)))

    assert sorted(ids_of(page)) == sorted([(both.task_id, one), (both.task_id, two)])
    assert page.next_page_token == ""
    assert ids_of(await task_views.list_waiting(WaitingQuery((f"{new_id()}:approve",)))) == []
    (view, _) = page.tasks[0]
    assert (view.history, view.artifacts) == ((), ())
    assert [question.id for question in view.status.questions] == [one, two, "owner"]


async def test_a_task_that_is_answered_or_ends_is_listed_no_more(task_views: TaskViews) -> None:
    """An answered or ended task leaves the list in the step that publishes its status."""
    scope, other = f"{new_id()}:approve", f"{new_id()}:approve"
    answered, ended = await wait_for(task_views, scope, other), await wait_for(task_views, scope)

    await task_views.publish(answered.task_id, "run", [status(2, questions=(asking(other),))])
    await task_views.publish(ended.task_id, "run", [status(2, state=TaskState.CANCELED)])

    assert ids_of(await task_views.list_waiting(WaitingQuery((scope,)))) == []
    assert ids_of(await task_views.list_waiting(WaitingQuery((other,)))) == [(answered.task_id, other)]


async def test_pages_of_waiting_tasks_miss_and_repeat_nothing(task_views: TaskViews) -> None:
    """Pages of waiting tasks miss and repeat none, with equal times and several scopes."""
    scopes = tuple(f"{new_id()}:approve" for _ in range(2))
    tasks = [await wait_for(task_views, *scopes, seconds=1 + index // 3) for index in range(7)]

    found: list[tuple[str, str]] = []
    query = WaitingQuery(scopes, page_size=3)
    while True:
        page = await task_views.list_waiting(query)
        found += ids_of(page)
        if not page.next_page_token:
            break
        assert len(page.tasks) == 3
        query = WaitingQuery(scopes, page_size=3, page_token=page.next_page_token)

    assert sorted(found) == sorted((task.task_id, scope) for task in tasks for scope in scopes)
    assert len(set(found)) == len(found)
    with pytest.raises(InvalidPageTokenError):
        await task_views.list_waiting(WaitingQuery(scopes, page_token="x"))


async def test_a_task_can_be_taken_out_of_all_lists(redis: Redis) -> None:
    """A task can leave all lists: its owner's, the open tasks, and its scopes; others stay."""
    views, scope = TaskViews(redis), f"{new_id()}:approve"
    gone, stays = [await wait_for(views, scope) for _ in range(2)]

    assert await views.lists.forget(gone.owner, gone.task_id)
    assert not await views.lists.forget(gone.owner, gone.task_id)

    assert ids_of(await views.list_waiting(WaitingQuery((scope,)))) == [(stays.task_id, scope)]
    assert await redis.zscore(OPEN_TASKS_KEY, gone.task_id) is None
    assert (await views.list_tasks(TaskQuery(gone.owner, gone.agent_id))).total == 0
