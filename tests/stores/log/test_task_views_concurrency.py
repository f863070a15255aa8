"""Concurrent writers and readers: a snapshot and later events have each change once."""

import asyncio

from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import Snapshot
from everloop.workflows.contract.events import ArtifactChunk, TaskEvent
from everloop.workflows.contract.messages import text_of
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import chunk, status, submitted

TASKS = 12
CHUNKS = 40
READERS_PER_TASK = 3


async def write(views: TaskViews, task_id: str) -> None:
    """Publish a text in chunks, each once in time and once late, and complete the task."""
    await views.publish(task_id, "run", [status(1)])
    for index in range(CHUNKS):
        await asyncio.gather(
            views.publish(task_id, "run", [chunk(f"<{index}>", index=index, last=index == CHUNKS - 1)]),
            views.publish(task_id, "run", [chunk(f"<{index}>", index=index, last=index == CHUNKS - 1)]),
        )
    await views.publish(task_id, "run", [status(2, TaskState.COMPLETED)])


async def take_snapshot(views: TaskViews, task_id: str) -> tuple[Snapshot, str]:
    snapshot = await views.load(task_id)
    assert snapshot
    return snapshot, "".join(text_of(found.parts) for found in snapshot.view.artifacts)


async def follow(views: TaskViews, task_id: str, chunks_before: int) -> tuple[str, TaskState]:
    """Take a snapshot at this length of the text, then follow; return final text and state."""
    snapshot, text = await take_snapshot(views, task_id)
    while text.count("<") < chunks_before:
        await views.read({task_id: snapshot.position}, wait=5)
        snapshot, text = await take_snapshot(views, task_id)
    position, state = snapshot.position, snapshot.view.status.state
    while not state.is_terminal:
        for entry in await views.read({task_id: position}, wait=5, limit=7):
            position = entry.position
            text, state = apply(entry.event, text, state)
    return text, state


def apply(event: TaskEvent, text: str, state: TaskState) -> tuple[str, TaskState]:
    if isinstance(event, ArtifactChunk):
        return text + text_of((event.part,)), state
    return text, getattr(event, "state", state)


async def test_a_snapshot_and_what_follows_make_the_whole(redis_url: str) -> None:
    """A reader that joins at any moment has each chunk exactly once, in order."""
    writer_client, reader_client = connect_redis(redis_url), connect_redis(redis_url)
    async with writer_client, reader_client:
        writer: TaskViews = TaskViews(writer_client)
        tasks = [submitted() for _ in range(TASKS)]
        for task in tasks:
            await writer.create(task)

        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(write(writer, task.task_id))
            following = [
                group.create_task(
                    follow(TaskViews(reader_client), task.task_id, joined * CHUNKS // READERS_PER_TASK)
                )
                for task in tasks
                for joined in range(READERS_PER_TASK)
            ]

        whole = "".join(f"<{index}>" for index in range(CHUNKS))
        assert {future.result() for future in following} == {(whole, TaskState.COMPLETED)}
