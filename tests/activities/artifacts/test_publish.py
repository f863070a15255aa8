"""Publishing of the workflow's events, and closing of a task's artifacts at its end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everloop.activities.conversation.conversation_memory import RememberedConversation
from everloop.activities.model.models import Models
from everloop.activities.publish import TRIES_TO_REMEMBER, ViewPublisher, finalize_artifacts, list_written
from everloop.models.catalogue import Catalogue
from everloop.runtime.blobs import PROBE_KEY, BlobsUnavailableError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Append, Change, Create, Fail, NewPart
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.artifacts import ArtifactStatus
from everloop.workflows.contract.calls import PublishInput, SaveContextInput
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.messages import FilePart, StoredPartRef, TextPart
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import Artifact, TaskRef, TaskState
from tests.stores.blobs.failing_blobs import FailingBlobs
from tests.stores.examples import chunk
from tests.support.fakes.failing import failing
from tests.support.rigs.artifacts.rig import RecordingArtifacts
from tests.support.rigs.model_rig import new_view
from tests.support.stores import database, new_artifacts


def _publish_input(state: TaskState) -> PublishInput:
    ref = TaskRef(task_id=str(uuid4()), run_id="run", context_id="c", owner="owner", agent_id="agent")
    return PublishInput(task=ref, events=(StatusChanged(version=1, state=state, at=datetime.now(UTC)),))


def _task(call: PublishInput) -> tuple[str, str]:
    return context_key(call.task.owner, call.task.context_id), call.task.task_id


@pytest.mark.parametrize("state", TaskState)
async def test_the_end_of_a_task_closes_its_artifacts(state: TaskState) -> None:
    """The end of a task completes its artifacts, or fails them if it failed.

    Other states and tasks change nothing.
    """
    call, views = _publish_input(state), TaskViews(database())
    artifacts = new_artifacts(views)
    context, task_id = _task(call)
    parts = (NewPart("text", b"a"),)
    await artifacts.apply(context, "open", Create(task_id, parts, "Open"))
    await artifacts.apply(context, "whole", Create(task_id, parts, complete=True))
    await artifacts.apply(context, "sent", Create(task_id, parts, is_input=True))
    await artifacts.apply(context, "other", Create("another task", parts))
    publisher = ViewPublisher(views, artifacts)

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
    # Complete content that subscribers have not seen yet is published now.
    assert [event.kind for event in events] == ["artifact-chunk"] * 2 * state.is_terminal + ["status"]
    found = await views.artifact(task_id, "open")
    shown = found and (found.name, found.complete, found.failed)
    assert shown == (
        ("Open", ends[state] == "complete", ends[state] == "failed") if state.is_terminal else None
    )


SHOWN: dict[str, list[str]] = {
    "nothing": [],
    "the reply": ["response"],
    "an artifact": ["draft"],
    "both": ["response", "draft"],
}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
async def test_what_only_subscribers_have_of_a_task_is_taken_back_before_it_ends(
    redis: Redis, shown: Sequence[str]
) -> None:
    """Drafts that only subscribers have seen are taken back in the step that publishes the end.

    The artifact store has no record of them: they are read from the view.
    """
    call, views = _publish_input(TaskState.COMPLETED), TaskViews(redis)
    task = call.task
    await views.create(new_view(task))
    for artifact_id in shown:
        await views.publish(task.task_id, task.run_id, [chunk("a", artifact_id=artifact_id)])
    publisher = ViewPublisher(views, new_artifacts(views))

    for _ in range(2):
        await ActivityEnvironment().run(publisher.publish, call)

    taken_back = ["artifact-chunk"] * ("draft" in shown)
    kinds = [event.event.kind for event in await views.read({task.task_id: START}, wait=0)]
    assert kinds == ["task-created", *["artifact-chunk"] * len(shown), *taken_back, "status"]
    found = await views.artifact(task.task_id, "draft")
    assert (found and (found.failed, found.parts[0])) == ((True, TextPart(text="")) if taken_back else None)


async def test_a_task_does_not_end_before_its_artifacts() -> None:
    """The end is not published while the blob store that completes an artifact is away; Temporal retries."""
    call, artifacts = _publish_input(TaskState.COMPLETED), RecordingArtifacts()
    views = artifacts.views
    context, task_id = _task(call)
    for artifact_id in ("a", "b"):
        await artifacts.apply(context, artifact_id, Create(task_id, (NewPart("text", b"a"),)))
    artifacts.fails_before = lambda at: BlobsUnavailableError("S3", "away") if at == 4 else None
    publisher = ViewPublisher(views, artifacts)
    with pytest.raises(ApplicationError, match=r"their store is away$") as raised:
        await ActivityEnvironment().run(publisher.publish, call)
    assert (raised.value.type, raised.value.__cause__) == (failures.FILES_UNAVAILABLE, None)
    assert "status" not in await _kinds(views, task_id)
    await ActivityEnvironment().run(publisher.publish, call)
    assert await _kinds(views, task_id) == ["artifact-chunk", "artifact-chunk", "status"]


@pytest.mark.parametrize("attempt", [TRIES_TO_REMEMBER - 1, TRIES_TO_REMEMBER])
async def test_the_end_of_a_task_waits_for_its_conversation_for_a_while(attempt: int) -> None:
    """The end waits some attempts for the conversation to be stored, and is then published without it."""
    call, conversations = _publish_input(TaskState.COMPLETED), failing(Conversations(database()), "append")
    views, models = TaskViews(database()), Models(Catalogue({}))
    context = RememberedConversation(conversations, Transcripts(database()), models, ToolRecords(database()))
    publisher = ViewPublisher(views, new_artifacts(views), context)
    remember = SaveContextInput(task=call.task, length=0, memory=Memory())
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)

    with nullcontext() if attempt == TRIES_TO_REMEMBER else pytest.raises(RedisConnectionError):
        await environment.run(publisher.publish, call.model_copy(update={"remember": remember}))

    assert await _kinds(views, call.task.task_id) == ["status"] * (attempt == TRIES_TO_REMEMBER)


async def _kinds(views: TaskViews, task_id: str) -> list[str]:
    return [streamed.event.kind for streamed in await views.read({task_id: START}, wait=0)]


CONTEXT = context_key("owner", "c")
LARGE = b"x" * 150_000, b"y" * 60_000
"""The first value is stored in a blob, the second beside the record until the artifact is closed."""


class Ward:
    """The artifacts and the end of one task at a time."""

    def __init__(self, artifacts: Artifacts | None = None, views: TaskViews | None = None) -> None:
        self.views = views or TaskViews(database())
        self.artifacts = artifacts or new_artifacts(self.views)

    async def begin(self) -> TaskRef:
        """Publish a new task to subscribers."""
        task = _publish_input(TaskState.WORKING).task
        await self.views.create(new_view(task))
        return task

    async def write(self, task: TaskRef, artifact_id: str, *changes: Change) -> None:
        """Make these changes as a tool call whose result has position 2."""
        writer = ArtifactPublisher(self.artifacts, task, 2, self.views)
        for change in changes:
            await writer.apply(CONTEXT, artifact_id, change)

    async def end(self, task: TaskRef, state: TaskState) -> None:
        written = await list_written(self.artifacts, task)
        await finalize_artifacts(self.artifacts, self.views, task, state, written)

    async def shown(self, task: TaskRef, artifact_id: str) -> Artifact:
        found = await self.views.artifact(task.task_id, artifact_id)
        assert found
        return found

    async def status(self, artifact_id: str) -> ArtifactStatus:
        return (await self.artifacts.get_artifact(CONTEXT, artifact_id)).status


def made(task: TaskRef, content: bytes, *, complete: bool = False) -> Create:
    return Create(task.task_id, (NewPart("text", content),), complete=complete, override=True)


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED])
async def test_what_was_drafted_and_never_written_is_taken_back(state: TaskState) -> None:
    """Drafts without a stored artifact are taken back at the end, once, even if it is published twice."""
    ward = Ward()
    task = await ward.begin()
    await ward.write(task, "doc", made(task, b"The first text.", complete=True))
    for artifact_id in ("doc", "never", "response"):
        draft = chunk("The second, better t", artifact_id=artifact_id, position=3)
        await ward.views.publish(task.task_id, task.run_id, [draft])

    await ward.end(task, state)
    told = await ward.views.read({task.task_id: START}, wait=0)
    await ward.end(task, state)

    doc, never = await ward.shown(task, "doc"), await ward.shown(task, "never")
    assert (doc.parts, doc.complete, doc.failed) == ((TextPart(text="The first text."),), True, False)
    assert never.parts == (TextPart(text=""),)
    assert not never.complete
    # Other cases repeat the last status.
    assert never.failed == (state is TaskState.COMPLETED)
    assert (await ward.shown(task, "response")).parts == (TextPart(text="The second, better t"),)
    assert await ward.views.read({task.task_id: START}, wait=0) == told


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.CANCELED])
async def test_an_artifact_that_failed_is_shown_so(state: TaskState) -> None:
    """A failed artifact is shown as failed in any task; a later attempt replaces it."""
    ward = Ward()
    task = await ward.begin()
    await ward.write(task, "cut", made(task, b"ha"), Append(b"lf"), Fail())
    await ward.write(task, "mended", made(task, b"ha"), Fail(), made(task, b"ha", complete=True))
    await ward.end(task, state)
    cut, mended = await ward.shown(task, "cut"), await ward.shown(task, "mended")
    assert (cut.parts, cut.complete, cut.failed) == ((TextPart(text="half"),), False, True)
    assert (mended.parts, mended.complete, mended.failed) == ((TextPart(text="ha"),), True, False)


@pytest.mark.parametrize("way", ["it is tried again", "the task ends"])
async def test_a_change_that_was_not_published_is_published_later(way: str) -> None:
    """An unpublished change of a writer that died is published later.

    The artifact has changed in place; its view has not.
    """
    ward = Ward()
    task = await ward.begin()
    create = made(task, b"whole", complete=True)
    await ward.artifacts.apply(CONTEXT, "doc", create, operation_id="o")
    assert await ward.views.artifact(task.task_id, "doc") is None

    if way == "the task ends":
        await ward.end(task, TaskState.COMPLETED)
    else:
        for _ in range(2):
            writer = ArtifactPublisher(ward.artifacts, task, 2, ward.views)
            await writer.apply(CONTEXT, "doc", create, operation_id="o")

    seen = await ward.shown(task, "doc")
    assert (seen.parts, seen.complete) == ((TextPart(text="whole"),), True)
    events = [streamed.event.kind for streamed in await ward.views.read({task.task_id: START}, wait=0)]
    assert events == ["task-created", "artifact-chunk"]


async def test_an_artifact_of_another_task_is_closed_for_this_one() -> None:
    """An artifact that another task continues or has taken over is closed for this task only."""
    ward = Ward()
    first, second = await ward.begin(), await ward.begin()
    await ward.write(first, "doc", made(first, b"from the first"))
    await ward.write(second, "doc", Append(b" and the second"))
    await ward.end(second, TaskState.COMPLETED)
    seen = await ward.shown(second, "doc")
    assert (seen.parts, seen.complete) == ((TextPart(text="from the first and the second"),), True)
    assert await ward.status("doc") is ArtifactStatus.BUILDING
    await ward.write(second, "doc", made(second, b"the second's", complete=True))
    await ward.end(first, TaskState.COMPLETED)
    seen = await ward.shown(first, "doc")
    assert (seen.parts, seen.complete) == ((TextPart(text="the second's"),), True)


class Scene:
    """A ward in Redis, with an artifact whose content is partly in blobs."""

    def __init__(self, ward: Ward, task: TaskRef, blobs: FailingBlobs, folder: Path) -> None:
        self.ward = ward
        self.task = task
        self.blobs = blobs
        self.files = [path for path in folder.rglob("artifact/**/*") if path.is_file()]


@pytest.fixture
async def scene(redis: Redis, tmp_path: Path) -> AsyncIterator[Scene]:
    with closing(LocalBlobs(tmp_path)) as local:
        views, blobs = TaskViews(redis), FailingBlobs(local)
        # A directory that had its probe knows what is missing from one that is not mounted.
        await blobs.put(PROBE_KEY, b"id")
        ward = Ward(Artifacts(redis, blobs), views)
        task = await ward.begin()
        await ward.write(task, task.task_id, made(task, LARGE[0]), Append(LARGE[1]))
        yield Scene(ward, task, blobs, tmp_path)


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED])
@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "corrupt"])
async def test_a_lost_blob_does_not_keep_a_task_from_ending(
    scene: Scene, state: TaskState, *, is_missing: bool
) -> None:
    """An artifact whose blob is lost fails at the end of its task: no retry could complete it."""
    assert scene.files
    for path in scene.files:
        path.unlink() if is_missing else path.write_bytes(path.read_bytes()[:-1] + b"!")
    await scene.ward.end(scene.task, state)
    seen = await scene.ward.shown(scene.task, scene.task.task_id)
    assert (seen.complete, seen.failed) == (False, True)
    assert await scene.ward.status(scene.task.task_id) is ArtifactStatus.FAILED


async def away() -> None:
    raise BlobsUnavailableError("S3", "away")


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.CANCELED])
async def test_a_task_that_did_not_complete_ends_without_its_blobs(scene: Scene, state: TaskState) -> None:
    """Subscribers keep what they have; one that completes waits for its blobs."""
    scene.blobs.before_get = away
    with pytest.raises(BlobsUnavailableError):
        await scene.ward.end(scene.task, TaskState.COMPLETED)
    await scene.ward.end(scene.task, state)
    seen = await scene.ward.shown(scene.task, scene.task.task_id)
    assert (seen.parts, seen.failed) == ((TextPart(text=b"".join(LARGE).decode()),), True)


async def test_what_cannot_be_read_is_a_link(scene: Scene) -> None:
    """A task that was cancelled publishes so what its log has lost."""
    task = await scene.ward.begin()
    await scene.ward.artifacts.apply(CONTEXT, task.task_id, made(task, LARGE[0]))
    scene.blobs.before_get = away
    await scene.ward.end(task, TaskState.CANCELED)
    seen = await scene.ward.shown(task, task.task_id)
    link = FilePart(media_type="text/plain", stored=StoredPartRef(artifact_id=task.task_id))
    assert (seen.parts, seen.failed) == ((link,), True)


async def test_a_task_that_completes_waits_for_what_nobody_has_seen(scene: Scene) -> None:
    """A completing task publishes content whose writer died before publishing it, not a link."""
    task = await scene.ward.begin()
    await scene.ward.artifacts.apply(CONTEXT, task.task_id, made(task, LARGE[0], complete=True))
    scene.blobs.before_get = away
    with pytest.raises(BlobsUnavailableError):
        await scene.ward.end(task, TaskState.COMPLETED)
    scene.blobs.before_get = None
    await scene.ward.end(task, TaskState.COMPLETED)
    assert (await scene.ward.shown(task, task.task_id)).parts == (TextPart(text=LARGE[0].decode()),)


async def test_a_blob_store_that_never_answers_is_not_waited_for(scene: Scene) -> None:
    """The end of a cancelled task waits for a silent blob store for a limited time."""
    scene.blobs.before_get = asyncio.Event().wait
    stores = scene.ward.artifacts, scene.ward.views
    written = await list_written(scene.ward.artifacts, scene.task)
    await finalize_artifacts(*stores, scene.task, TaskState.CANCELED, written, max_outage=0.1)
    assert (await scene.ward.shown(scene.task, scene.task.task_id)).failed
