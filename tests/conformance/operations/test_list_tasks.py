"""ListTasks: A2A 1.0 §3.1.4."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from a2a.types import a2a_pb2 as pb

from tests.conformance.bindings import JSONRPC, Binding, opened, refusal
from tests.conformance.messages import ASKS, COMPLETES, WRITES_TEXT, fresh, message
from tests.conformance.stack import Stack


async def _tasks(agent: Binding, context_id: str, *behaviours: str) -> list[pb.Task]:
    """Return tasks in one context, oldest first."""
    return [await agent.send(message(behaviour, contextId=context_id)) for behaviour in behaviours]


def _ids(page: pb.ListTasksResponse) -> list[str]:
    return [task.id for task in page.tasks]


async def test_a_context_lists_its_tasks_alone(agent: Binding) -> None:
    """Tasks of other contexts are left out (§3.1.4)."""
    context_id, other = fresh("context"), fresh("context")
    (mine,) = await _tasks(agent, context_id, COMPLETES)
    await _tasks(agent, other, COMPLETES)
    assert _ids(await agent.list(contextId=context_id)) == [mine.id]


async def test_the_newest_status_comes_first(agent: Binding) -> None:
    """Tasks are sorted by the time of their status, descending; an update moves a task up (§3.1.4)."""
    context_id = fresh("context")
    first, second, third = await _tasks(agent, context_id, ASKS, COMPLETES, ASKS)
    assert _ids(await agent.list(contextId=context_id)) == [third.id, second.id, first.id]
    await agent.send(message(COMPLETES, taskId=first.id))
    page = await agent.list(contextId=context_id)
    assert _ids(page) == [first.id, third.id, second.id]
    times = [task.status.timestamp.ToNanoseconds() for task in page.tasks]
    assert times == sorted(times, reverse=True)


async def test_without_filters_the_newest_of_all_come_first(agent: Binding) -> None:
    """The order holds for the whole list (§3.1.4)."""
    (newest,) = await _tasks(agent, fresh("context"), COMPLETES)
    page = await agent.list()
    times = [task.status.timestamp.ToNanoseconds() for task in page.tasks]
    assert times == sorted(times, reverse=True)
    assert page.tasks[0].id == newest.id


async def test_a_status_lists_tasks_in_that_state_alone(agent: Binding) -> None:
    """Status filters, alone and with the context (§3.1.4)."""
    context_id = fresh("context")
    asking, done = await _tasks(agent, context_id, ASKS, COMPLETES)
    page = await agent.list(contextId=context_id, status="TASK_STATE_INPUT_REQUIRED")
    assert (_ids(page), page.total_size) == ([asking.id], 1)
    page = await agent.list(contextId=context_id, status="TASK_STATE_COMPLETED")
    assert (_ids(page), page.total_size) == ([done.id], 1)
    page = await agent.list(contextId=context_id, status="TASK_STATE_FAILED")
    assert (_ids(page), page.total_size) == ([], 0)
    everywhere = await agent.list(status="TASK_STATE_INPUT_REQUIRED")
    assert {task.status.state for task in everywhere.tasks} == {pb.TASK_STATE_INPUT_REQUIRED}


async def test_a_time_lists_later_updates_alone(agent: Binding) -> None:
    """A time in statusTimestampAfter leaves out whatever has not changed since (§3.1.4)."""
    context_id = fresh("context")
    older, newer = await _tasks(agent, context_id, ASKS, ASKS)
    since = older.status.timestamp.ToDatetime(UTC) + timedelta(microseconds=1)
    page = await agent.list(contextId=context_id, statusTimestampAfter=_iso(since))
    assert (_ids(page), page.total_size) == ([newer.id], 1)
    await agent.send(message(COMPLETES, taskId=older.id))
    page = await agent.list(contextId=context_id, statusTimestampAfter=_iso(since))
    assert _ids(page) == [older.id, newer.id]
    later = datetime.now(UTC) + timedelta(days=1)
    assert not _ids(await agent.list(contextId=context_id, statusTimestampAfter=_iso(later)))


async def test_filters_apply_together(agent: Binding) -> None:
    """A task is listed if it passes all filters (§3.1.4)."""
    context_id = fresh("context")
    older, newer, _ = await _tasks(agent, context_id, ASKS, ASKS, COMPLETES)
    since = older.status.timestamp.ToDatetime(UTC) + timedelta(microseconds=1)
    page = await agent.list(
        contextId=context_id, status="TASK_STATE_INPUT_REQUIRED", statusTimestampAfter=_iso(since)
    )
    assert _ids(page) == [newer.id]


async def test_pages_add_up_to_the_list(agent: Binding) -> None:
    """Each token leads to the next page, no task comes twice, the last token is empty (§3.1.4)."""
    context_id = fresh("context")
    tasks = await _tasks(agent, context_id, *[COMPLETES] * 5)
    pages = [await agent.list(contextId=context_id, pageSize=2)]
    while pages[-1].next_page_token:
        pages.append(await agent.list(contextId=context_id, pageSize=2, pageToken=pages[-1].next_page_token))
    assert [len(page.tasks) for page in pages] == [2, 2, 1]
    assert [task_id for page in pages for task_id in _ids(page)] == [task.id for task in reversed(tasks)]
    assert {page.total_size for page in pages} == {5}
    assert {page.page_size for page in pages} == {2}


async def test_tasks_that_change_meanwhile_do_not_upset_the_pages(agent: Binding) -> None:
    """A cursor, no offset: what is older than a page comes once, while other tasks move up (§3.1.4)."""
    context_id = fresh("context")
    first, second, third, fourth = await _tasks(agent, context_id, ASKS, ASKS, ASKS, ASKS)
    page = await agent.list(contextId=context_id, pageSize=2)
    assert _ids(page) == [fourth.id, third.id]
    await agent.send(message(COMPLETES, taskId=fourth.id))
    await _tasks(agent, context_id, COMPLETES)
    rest = await agent.list(contextId=context_id, pageSize=2, pageToken=page.next_page_token)
    assert _ids(rest) == [second.id, first.id]


async def test_an_empty_list_is_an_answer(agent: Binding) -> None:
    """Nothing found: no tasks, no token, a total of zero (§3.1.4)."""
    page = await agent.list(contextId=fresh("context"))
    assert (len(page.tasks), page.next_page_token, page.total_size) == (0, "", 0)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def crowded(stack: Stack) -> str:
    """A context of 51 tasks."""
    context_id = fresh("context")
    async with opened(stack.url, stack.grpc_address, JSONRPC) as agent:
        await asyncio.gather(*(_tasks(agent, context_id, COMPLETES) for _ in range(51)))
    return context_id


async def test_the_page_size_is_fifty_unless_given(agent: Binding, crowded: str) -> None:
    """The default page has 50 tasks at most, and the answer says so (§3.1.4)."""
    page = await agent.list(contextId=crowded)
    assert (len(page.tasks), page.page_size, page.total_size) == (50, 50, 51)
    assert page.next_page_token
    whole = await agent.list(contextId=crowded, pageSize=100)
    assert (len(whole.tasks), whole.page_size, whole.next_page_token) == (51, 100, "")


@pytest.mark.parametrize("size", [0, -1, 101])
async def test_a_page_size_out_of_range_is_refused(agent: Binding, size: int) -> None:
    """1 to 100 tasks make a page; the error names the field and the range (§3.1.4, §3.3.2)."""
    refused = await refusal(agent.list(pageSize=size))
    assert refused.reason == "INVALID_PARAMS"
    assert "pageSize" in refused.message
    assert "100" in refused.message


async def test_a_page_token_that_is_none_is_refused(agent: Binding) -> None:
    """A token has to be one that the server gave (§3.1.4, §3.3.2)."""
    refused = await refusal(agent.list(pageToken="not-a-token"))
    assert refused.reason == "INVALID_PARAMS"
    assert "pageToken" in refused.message


async def test_artifacts_are_listed_only_if_wanted(agent: Binding) -> None:
    """Unless includeArtifacts is true, there are none (§3.1.4)."""
    context_id = fresh("context")
    (task,) = await _tasks(agent, context_id, WRITES_TEXT)
    assert not (await agent.list(contextId=context_id)).tasks[0].artifacts
    assert not (await agent.list(contextId=context_id, includeArtifacts=False)).tasks[0].artifacts
    with_artifacts = await agent.list(contextId=context_id, includeArtifacts=True)
    assert list(with_artifacts.tasks[0].artifacts) == list(task.artifacts)


def _iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
