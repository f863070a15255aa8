"""GetTask, CancelTask and ListTasks: A2A 1.0 §3.1.3 to §3.1.5, §3.3.1."""

import asyncio
from datetime import UTC, datetime, timedelta

from a2a.types import a2a_pb2 as pb

from tests.conformance.messages import ASKS, COMPLETES, WRITES_TEXT, fresh, message
from tests.support.rigs.operator import until
from tests.support.wires.agent import Agent


async def test_a_task_can_be_read_as_it_was_sent_back(agent: Agent) -> None:
    """GetTask returns the result of the send: status, artifacts and history (§3.1.3)."""
    sent = await agent.send(message(WRITES_TEXT))
    assert await agent.get(sent.id) == sent


async def test_canceling_is_idempotent(agent: Agent) -> None:
    """Canceling again has the same effect, one after the other and concurrently (§3.3.1)."""
    asking = await agent.send(message(ASKS))
    both = await asyncio.gather(agent.cancel(asking.id), agent.cancel(asking.id))
    again = await agent.cancel(asking.id)
    read = await agent.get(asking.id)
    assert {task.status.state for task in (*both, again, read)} == {pb.TASK_STATE_CANCELED}
    assert {task.id for task in (*both, again)} == {asking.id}


async def _tasks(agent: Agent, context_id: str, *behaviours: str) -> list[pb.Task]:
    """Return tasks in one context, oldest first, once they are listed with the states they were sent with."""
    tasks = [await agent.send(message(behaviour, contextId=context_id)) for behaviour in behaviours]
    await _until_listed(agent, context_id, *tasks)
    return tasks


async def _until_listed(agent: Agent, context_id: str, *tasks: pb.Task) -> None:
    """Wait until lists have the states of tasks: they follow the answer to a sender, a moment later."""

    async def look() -> set[str]:
        of_states = [agent.list(contextId=context_id, status=state) for state in states]
        return {task_id for page in of_states for task_id in _ids(await page)}

    states = {pb.TaskState.Name(task.status.state) for task in tasks}
    await until(look, does=lambda listed: listed >= {task.id for task in tasks})


def _ids(page: pb.ListTasksResponse) -> list[str]:
    return [task.id for task in page.tasks]


async def test_the_newest_status_comes_first(agent: Agent) -> None:
    """Tasks are sorted by the time of their status, descending; an update moves a task up (§3.1.4)."""
    context_id = fresh("context")
    first, second, third = await _tasks(agent, context_id, ASKS, COMPLETES, ASKS)
    assert _ids(await agent.list(contextId=context_id)) == [third.id, second.id, first.id]
    await _until_listed(agent, context_id, await agent.send(message(COMPLETES, taskId=first.id)))
    page = await agent.list(contextId=context_id)
    assert _ids(page) == [first.id, third.id, second.id]
    times = [task.status.timestamp.ToNanoseconds() for task in page.tasks]
    assert times == sorted(times, reverse=True)


async def test_filters_apply_together(agent: Agent) -> None:
    """A task is listed if it passes all filters (§3.1.4)."""
    context_id = fresh("context")
    older, newer, _ = await _tasks(agent, context_id, ASKS, ASKS, COMPLETES)
    since = older.status.timestamp.ToDatetime(UTC) + timedelta(microseconds=1)
    page = await agent.list(
        contextId=context_id, status="TASK_STATE_INPUT_REQUIRED", statusTimestampAfter=_iso(since)
    )
    assert _ids(page) == [newer.id]


async def test_pages_add_up_to_the_list(agent: Agent) -> None:
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


async def test_artifacts_are_listed_only_if_wanted(agent: Agent) -> None:
    """Unless includeArtifacts is true, they are left out (§3.1.4)."""
    context_id = fresh("context")
    (task,) = await _tasks(agent, context_id, WRITES_TEXT)
    assert not (await agent.list(contextId=context_id)).tasks[0].artifacts
    assert not (await agent.list(contextId=context_id, includeArtifacts=False)).tasks[0].artifacts
    with_artifacts = await agent.list(contextId=context_id, includeArtifacts=True)
    assert list(with_artifacts.tasks[0].artifacts) == list(task.artifacts)


def _iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
