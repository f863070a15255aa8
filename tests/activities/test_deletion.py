"""Steps of a deletion, where little is left of what is deleted."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio
from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from everloop.activities.deletion import StoreDeletion
from everloop.runtime.redis import remove_matching
from everloop.stores.artifacts.schedule_files import ScheduleFiles
from everloop.stores.blobs.local import LocalBlobs
from everloop.stores.conversations.store import Conversations
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.deletion import DeletionKind, DeletionTarget
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import new_id, said, status, submitted
from tests.support.memory.artifacts import MemoryArtifacts


@pytest_asyncio.fixture(loop_scope="session")
async def deletion(redis: Redis, temporal_address: str, tmp_path: Path) -> AsyncGenerator[StoreDeletion]:
    views, blobs = TaskViews(redis), LocalBlobs(tmp_path)
    artifacts = MemoryArtifacts(views)
    yield StoreDeletion(
        redis,
        blobs,
        await Client.connect(temporal_address),
        "queue",
        views,
        ScheduleFiles(artifacts, artifacts),
        ScheduleWebhooks(redis, PushConfigs(redis)),
    )
    blobs.close()


async def test_what_a_task_said_goes_though_nothing_else_is_left_of_it(
    redis: Redis, deletion: StoreDeletion
) -> None:
    """Its view may have expired just before its time was over, and Temporal has forgotten it long ago."""
    views, conversations = TaskViews(redis), Conversations(redis)
    view = submitted(owner=new_id(), context_id="c")
    await views.create(view)
    await views.publish(view.task_id, "run", [status(2, TaskState.COMPLETED)])
    context = context_key(view.owner, "c")
    await conversations.append(context, view.task_id, [said("secret")])
    await conversations.append(context, "other", [said("stays")])
    await remove_matching(redis, f"everloop:task:{{{view.task_id}}}*")
    target = DeletionTarget(kind=DeletionKind.TASK, owner=view.owner, context_id="c", id=view.task_id)
    steps = [await ActivityEnvironment().run(deletion.remove, target) for _ in range(3)]

    assert [step.found_nothing for step in steps] == [False, True, True]
    assert await conversations.get_recent(context, 10) == [said("stays")]
