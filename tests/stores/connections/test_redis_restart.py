"""Redis after a kill and a restart: acknowledged writes are still there."""

from dataclasses import replace
from pathlib import Path

from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import TaskQuery
from everloop.stores.scripts import Lease
from everloop.stores.tool_records import Claim
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.messages import ToolMessage
from tests.stores.examples import chunk, entries_of, new_id, said, status, submitted
from tests.support.servers.processes import redis_answers, running_valkey, wait_until_answers
from tests.support.stores import SingleRecords


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """With appendfsync always, all writes survive a kill, and the same client continues."""
    task_id, outcome = new_id(), ToolMessage(call_id="done", name="search", content="found")
    async with running_valkey(tmp_path) as (server, url), connect_redis(url) as redis:
        # With everysec Redis may acknowledge before it writes while the disk is behind; a kill loses that.
        await redis.config_set("appendfsync", "always")
        views, records, transcripts = TaskViews(redis), SingleRecords(redis), Transcripts(redis)
        view = submitted(task_id)
        await views.create(view)
        await views.publish(task_id, "run", [status(1), chunk("Hel")])
        begun, done = Lease(task_id, "begun", "1"), Lease(task_id, "done", "1")
        await records.claim(begun, 60)
        await records.finish(done, outcome)
        await transcripts.put(task_id, "run", 0, [said("m1")])
        before, entries = await views.load(task_id), await entries_of(views, task_id)

        server.kill()
        server.start()
        await wait_until_answers(server, lambda: redis_answers(url), "valkey")

        assert await views.load(task_id) == before
        assert await entries_of(views, task_id) == entries
        assert await records.claim(replace(begun, token="2"), 60) is Claim.HELD
        assert await records.renew(begun, 60)
        assert await records.outcome(task_id, "done") == outcome
        assert (await transcripts.open(task_id, "run", 1)).messages == (said("m1"),)
        await views.publish(task_id, "run", [status(1), chunk("lo", index=1), status(2)])
        (listed,) = (await views.list_tasks(TaskQuery(view.owner, view.agent_id))).views
        assert (listed.version, listed.artifacts[0].parts) == (2, (chunk("Hello").part,))
        assert [e.event for e in await views.read({task_id: entries[-1].position}, wait=0)] == [
            chunk("lo", index=1),
            status(2),
        ]
