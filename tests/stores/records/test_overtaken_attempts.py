"""What is written for a call is refused to an attempt that was overtaken, in the step that would write it."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from everloop.stores.steps import Lease, OvertakenError
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.events import Warned
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage
from tests.stores.examples import new_id, said, status, submitted

Write = Callable[[Redis, str, Lease | None], Awaitable[object]]

RESULT = ToolMessage(call_id="call", name="tool", content="late")

WRITES: dict[str, Write] = {
    "events": lambda redis, task, lease: TaskViews(redis).publish(
        task, "run", [status(2), Warned(text="late")], lease
    ),
    "transcript": lambda redis, task, lease: Transcripts(redis).put(task, "run", 0, [said("x")], lease),
    "message": lambda redis, task, lease: Transcripts(redis).put(task, "run", 1, [said("x")], lease),
    "result": lambda redis, task, lease: _add(Transcripts(redis), task, RESULT, lease),
    "reply": lambda redis, task, lease: Transcripts(redis).put_reply(
        task, "run", 1, AssistantMessage(), lease
    ),
}


async def _add(transcripts: Transcripts, task: str, result: ToolMessage, lease: Lease | None) -> None:
    await transcripts.steps.run(transcripts.adding(task, "run", 1, result, lease))


async def _kept(redis: Redis, pattern: str) -> dict[str, object]:
    return {str(key): await redis.dump(key) for key in await redis.keys(pattern)}


@pytest.mark.parametrize("how", ["claimed", "given back", "finished", "revoked"])
@pytest.mark.parametrize("name", WRITES)
async def test_an_overtaken_attempt_writes_nothing(redis: Redis, name: str, how: str) -> None:
    """Whatever the later attempt has done with the call; that one, and whoever holds no lease, may write."""
    task_id, write = new_id(), WRITES[name]
    first, second = Lease(task_id, "call", "first", "1"), Lease(task_id, "call", "second", "2")
    views, records = TaskViews(redis), ToolRecords(redis)
    await views.create(submitted(task_id))
    await Transcripts(redis).put(task_id, "run", 0, [said("m")])
    await records.claim(first, 0)
    if how == "revoked":
        await records.revoke(second)
    else:
        await records.claim(second, 10)
    if how == "given back":
        await records.release(second)
    if how == "finished":
        await records.finish(second, RESULT)
    before = await _kept(redis, f"everloop:task:{{{task_id}}}:*")

    with pytest.raises(OvertakenError):
        await write(redis, task_id, first)

    assert await _kept(redis, f"everloop:task:{{{task_id}}}:*") == before
    await write(redis, task_id, second)
    assert await _kept(redis, f"everloop:task:{{{task_id}}}:*") != before
    await write(redis, task_id, None)


async def test_an_attempt_that_waits_does_not_silence_the_one_at_work(redis: Redis) -> None:
    """Temporal had forgotten the first one, which lives: the second finds its lease."""
    task_id = new_id()
    first, second = Lease(task_id, "call", "first", "1"), Lease(task_id, "call", "second", "2")
    views, records = TaskViews(redis), ToolRecords(redis)
    await views.create(submitted(task_id))
    await records.claim(first, 10)
    await records.claim(second, 10)

    for lease in (first, second):
        await views.publish(task_id, "run", [Warned(text="told")], lease)

    assert len(await views.read({task_id: "0-0"}, wait=0)) == 3
