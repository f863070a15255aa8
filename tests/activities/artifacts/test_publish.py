"""Publishing what the workflow says, and forgetting secrets at the end."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.publish import ViewPublisher
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.interface import Create, NewPart
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.views.interface import START
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import PublishInput
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskRef, TaskState
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.memory.secrets import MemorySecrets
from tests.support.memory.task_views import MemoryTaskViews
from tests.support.rigs.artifact_rig import RecordingArtifacts


def _publish_input(state: TaskState) -> PublishInput:
    ref = TaskRef(task_id=str(uuid4()), run_id="run", context_id="c", owner="owner", agent_id="agent")
    return PublishInput(task=ref, events=(StatusChanged(version=1, state=state, at=datetime.now(UTC)),))


@pytest.mark.parametrize("state", TaskState)
async def test_the_last_status_ends_the_secrets(state: TaskState) -> None:
    """Any terminal status does, and no other."""
    call, secrets = _publish_input(state), MemorySecrets()
    await secrets.put(call.task.task_id, "message", "x")
    await secrets.accept(call.task.task_id, "message", "token")
    views = MemoryTaskViews()
    publisher = ViewPublisher(views, secrets, MemoryArtifacts(views))
    await ActivityEnvironment().run(publisher.publish, call)
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
    publisher = ViewPublisher(views, secrets, MemoryArtifacts(views))
    with pytest.raises(RedisConnectionError):
        await ActivityEnvironment().run(publisher.publish, call)

    await ActivityEnvironment().run(publisher.publish, call)

    assert await secrets.get(task_id, "token") is None
    assert len(await views.read({task_id: START}, wait=0)) == 1


def _task(call: PublishInput) -> tuple[str, str]:
    return context_key(call.task.owner, call.task.context_id), call.task.task_id


@pytest.mark.parametrize("state", TaskState)
async def test_the_end_of_a_task_closes_its_artifacts(state: TaskState) -> None:
    """They are complete if it completed and failed if not; of others, and while it works, nothing changes."""
    call, views = _publish_input(state), MemoryTaskViews()
    artifacts = MemoryArtifacts(views)
    context, task_id = _task(call)
    parts = (NewPart("text", b"a"),)
    await artifacts.apply(context, "open", Create(task_id, parts, "Open"))
    await artifacts.apply(context, "whole", Create(task_id, parts, complete=True))
    await artifacts.apply(context, "sent", Create(task_id, parts, is_input=True))
    await artifacts.apply(context, "other", Create("another task", parts))
    publisher = ViewPublisher(views, MemorySecrets(), artifacts)

    for _ in range(2):
        await ActivityEnvironment().run(publisher.publish, call)

    ends = {TaskState.COMPLETED: "complete"} | dict.fromkeys(
        (TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED), "failed"
    )
    statuses = {a.artifact_id: a.status.value for a in await artifacts.list_artifacts(context)}
    assert statuses == {"open": ends.get(state, "building"), "whole": "complete", "sent": "building"} | {
        "other": "building"
    }
    events = [streamed.event for streamed in await views.read({task_id: START}, wait=0)]
    assert [event.kind for event in events] == ["artifact-chunk"] * state.is_terminal + ["status"]
    found = await views.artifact(task_id, "open")
    shown = found and (found.artifact.name, found.artifact.complete, found.artifact.failed)
    assert shown == (
        ("Open", ends[state] == "complete", ends[state] == "failed") if state.is_terminal else None
    )


async def test_a_task_does_not_end_before_its_artifacts() -> None:
    """Completing one may need the blob store; while it is away, nothing is said, and Temporal tries again."""
    call, views = _publish_input(TaskState.COMPLETED), MemoryTaskViews()
    artifacts = RecordingArtifacts(views)
    context, task_id = _task(call)
    for artifact_id in ("a", "b"):
        await artifacts.apply(context, artifact_id, Create(task_id, (NewPart("text", b"a"),)))
    artifacts.fails_before = lambda at: BlobsUnavailableError("S3", "away") if at == 4 else None
    publisher = ViewPublisher(views, MemorySecrets(), artifacts)
    with pytest.raises(ApplicationError, match=r"their store is away$") as raised:
        await ActivityEnvironment().run(publisher.publish, call)
    assert (raised.value.type, raised.value.__cause__) == (failures.FILES_UNAVAILABLE, None)
    assert "status" not in await _kinds(views, task_id)
    await ActivityEnvironment().run(publisher.publish, call)
    assert await _kinds(views, task_id) == ["artifact-chunk", "artifact-chunk", "status"]


async def _kinds(views: MemoryTaskViews, task_id: str) -> list[str]:
    return [streamed.event.kind for streamed in await views.read({task_id: START}, wait=0)]


async def test_an_artifact_is_completed_after_all_that_was_told_of_it() -> None:
    """Whatever the position of the call that wrote it last."""
    call, views = _publish_input(TaskState.COMPLETED), MemoryTaskViews()
    artifacts = MemoryArtifacts(views)
    context, task_id = _task(call)
    written = ArtifactPublisher(artifacts, call.task, 999_999, views)
    await written.apply(context, "a", Create(task_id, (NewPart("text", b"a"),)))
    await ActivityEnvironment().run(ViewPublisher(views, MemorySecrets(), artifacts).publish, call)
    found = await views.artifact(task_id, "a")
    assert found
    assert (found.artifact.complete, found.position) == (True, 1_000_000)
