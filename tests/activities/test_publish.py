"""Publishing what the workflow says, and forgetting secrets at the end."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.testing import ActivityEnvironment

from activities.publish import ViewPublisher
from stores.memory_secrets import MemorySecrets
from stores.memory_task_views import MemoryTaskViews
from stores.task_views import START
from workflows.contract.calls import PublishInput
from workflows.contract.events import StatusChanged
from workflows.contract.tasks import TaskRef, TaskState


def _publish_input(state: TaskState) -> PublishInput:
    ref = TaskRef(task_id=str(uuid4()), run_id="run", context_id="c", owner="owner", agent_id="agent")
    return PublishInput(task=ref, events=(StatusChanged(version=1, state=state, at=datetime.now(UTC)),))


@pytest.mark.parametrize("state", TaskState)
async def test_the_last_status_ends_the_secrets(state: TaskState) -> None:
    """Any terminal status does, and no other."""
    call, secrets = _publish_input(state), MemorySecrets()
    await secrets.put(call.task.task_id, "message", "x")
    await secrets.accept(call.task.task_id, "message", "token")

    await ActivityEnvironment().run(ViewPublisher(MemoryTaskViews(), secrets).publish, call)

    kept = await secrets.get(call.task.task_id, "token")
    assert kept == (None if state.is_terminal else "x")


async def test_what_was_not_forgotten_is_forgotten_by_the_next_attempt() -> None:
    """The status is published first; publishing it again tells subscribers nothing new."""

    class FailingOnce(MemorySecrets):
        is_away = True

        async def forget(self, task_id: str) -> None:
            if self.is_away:
                self.is_away = False
                raise RedisConnectionError
            await super().forget(task_id)

    call, views, secrets = _publish_input(TaskState.COMPLETED), MemoryTaskViews(), FailingOnce()
    task_id = call.task.task_id
    await secrets.put(task_id, "message", "x")
    await secrets.accept(task_id, "message", "token")
    publisher = ViewPublisher(views, secrets)
    with pytest.raises(RedisConnectionError):
        await ActivityEnvironment().run(publisher.publish, call)

    await ActivityEnvironment().run(publisher.publish, call)

    assert await secrets.get(task_id, "token") is None
    assert len(await views.read({task_id: START}, wait=0)) == 1
