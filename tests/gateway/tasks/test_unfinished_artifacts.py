"""Artifacts of tasks that ended, or were lost, without their workflow."""

import pytest
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.gateway.errors import PayloadsUnavailableError
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.messages import DataPart, FilePart, StoredPartRef, TextPart
from everloop.workflows.contract.names import child_task_id, context_key
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.gateway.downloads.site import FailingArtifacts
from tests.gateway.harness import unique
from tests.gateway.tasks.silent_tasks import (
    OWNER,
    VIEWER,
    defective_worker,
    services,
    start,
    until_closed,
    view_of,
)


def text(content: str) -> NewPart:
    return NewPart(kind="text", content=content.encode())


async def put(
    artifacts: Artifacts,
    view: TaskView,
    artifact_id: str,
    *parts: NewPart,
    task_id: str = "",
    complete: bool = False,
) -> None:
    change = Create(task_id=task_id or view.task_id, parts=parts, name=artifact_id, complete=complete)
    await artifacts.apply(context_key(view.owner, view.context_id), artifact_id, change)


async def statuses(artifacts: Artifacts, view: TaskView) -> dict[str, str]:
    stored = await artifacts.list_artifacts(context_key(view.owner, view.context_id))
    return {artifact.artifact_id: artifact.status.value for artifact in stored}


async def test_what_a_terminated_task_was_building_has_failed(client: Client, views: TaskViews) -> None:
    """Its own and its sub-agents', in the store as in the view; complete artifacts and other tasks' stay."""
    gateway = services(client, views)
    artifacts, task_id = gateway.stores.artifacts, await start(client, views, unique("nobody"))
    view = await view_of(views, task_id)
    await put(artifacts, view, "building", text("a"))
    await put(artifacts, view, "of a sub-agent", text("a"), task_id=child_task_id(task_id, "call"))
    await put(artifacts, view, "whole", text("a"), complete=True)
    await put(artifacts, view, "another's", text("a"), task_id=f"{task_id}-2")
    await client.get_workflow_handle(task_id).terminate()
    for _ in range(2):
        await gateway.reconciler.reconcile(task_id)
    assert (await view_of(views, task_id)).status.state is TaskState.FAILED
    assert await statuses(artifacts, view) == {
        "building": "failed",
        "of a sub-agent": "failed",
        "whole": "complete",
        "another's": "building",
    }


@pytest.mark.parametrize("by", ["a look at the task", "the sweep"])
async def test_a_view_that_comes_back_has_its_artifacts(
    client: Client, views: TaskViews, redis: Redis, by: str
) -> None:
    """From the store, in the form of the view: outputs of this task only, finished or not."""
    queue, lost = unique("restored"), TaskViews(redis)
    gateway = services(client, lost, queue=queue)
    artifacts = gateway.stores.artifacts
    async with defective_worker(client, queue):
        task_id = await start(client, views, queue)
        view = await view_of(views, task_id)
        await put(artifacts, view, "text", text("written"), complete=True)
        large = NewPart(kind="file", content=b"x" * 200_000, media_type="image/png", filename="p.png")
        await put(artifacts, view, "large", large, complete=True)
        await put(artifacts, view, "data", NewPart(kind="data", content=b'{"a": 1}'))
        await put(artifacts, view, "another's", text("x"), task_id="another")
        await artifacts.apply(
            context_key(OWNER, view.context_id),
            "input",
            Create(task_id=task_id, parts=(text("i"),), is_input=True),
        )
        if by == "the sweep":
            await Tasks(client, queue).view(task_id)  # a worker has begun with it
            await client.get_workflow_handle(task_id).terminate()
            await until_closed(client, task_id)
            await gateway.reconciler.reconcile(task_id)
        restored = (await gateway.snapshots.take(task_id, VIEWER)).view
    shown = {each.artifact_id: each for each in restored.artifacts}
    assert list(shown) == ["text", "large", "data"]
    assert shown["text"].parts == (TextPart(text="written"),)
    assert shown["data"].parts == (DataPart(data={"a": 1}),)
    assert shown["large"].parts == (
        FilePart(
            media_type="image/png", filename="p.png", size=200_000, stored=StoredPartRef(artifact_id="large")
        ),
    )
    assert [each.complete for each in restored.artifacts] == [True, True, False]
    assert shown["data"].failed == (by == "the sweep")


async def test_a_view_does_not_come_back_without_its_artifacts(
    client: Client, views: TaskViews, redis: Redis
) -> None:
    """While their content cannot be read the client gets a retry time; then it gets all of it."""
    queue, artifacts = unique("restored"), FailingArtifacts(TaskViews(redis))
    gateway = services(client, TaskViews(redis), queue=queue, artifacts=artifacts)
    async with defective_worker(client, queue):
        task_id = await start(client, views, queue)
        await put(artifacts, await view_of(views, task_id), "text", text("written"), complete=True)
        artifacts.failure, artifacts.pieces = BlobsUnavailableError("s3", "away"), 0
        with pytest.raises(PayloadsUnavailableError):
            await gateway.snapshots.take(task_id, VIEWER)
        artifacts.failure = None
        restored = (await gateway.snapshots.take(task_id, VIEWER)).view
    assert [each.artifact_id for each in restored.artifacts] == ["text"]
    await client.get_workflow_handle(task_id).terminate()
