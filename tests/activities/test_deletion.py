"""Steps of a deletion of partly lost data."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment

from everloop.activities.store_deletion import StoreDeletion
from everloop.runtime.redis import connect_redis, remove_matching
from everloop.runtime.schedules.recurrence import Recurrence
from everloop.runtime.schedules.schedule_definition import ScheduleDefinition
from everloop.runtime.schedules.schedules import Schedules, ScheduleUnknownError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.artifacts.record import ArtifactAddress, folder_of_record
from everloop.stores.artifacts.schedule_files import ScheduleFiles
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.keys import EXPIRING_ARTIFACTS_KEY, head_key, pending_blobs_key
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract import names
from everloop.workflows.contract.deletion_payloads import DeletionKind, DeletionTarget, RemoveResult
from everloop.workflows.contract.names import child_task_id, context_key
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import new_id, said, status, submitted
from tests.support.encryption import keyring
from tests.support.rigs.operator import until


@pytest_asyncio.fixture(loop_scope="session")
async def deletion(redis: Redis, temporal_address: str, tmp_path: Path) -> AsyncGenerator[StoreDeletion]:
    views, blobs = TaskViews(redis), LocalBlobs(tmp_path)
    yield StoreDeletion(
        redis,
        blobs,
        await Client.connect(temporal_address),
        "queue",
        views,
        ScheduleWebhooks(redis, PushConfigs(redis)),
    )
    blobs.close()


async def test_what_a_task_said_goes_though_nothing_else_is_left_of_it(
    redis: Redis, deletion: StoreDeletion
) -> None:
    """Messages are deleted even if the view has expired and Temporal has no record of the task."""
    views, conversations = TaskViews(redis), Conversations(redis)
    view = submitted(owner=new_id(), context_id="c")
    await completed_task(views, view)
    context = context_key(view.owner, "c")
    await conversations.append(context, view.task_id, [said("secret")])
    await conversations.append(context, "other", [said("stays")])
    await remove_matching(redis, f"everloop:task:{{{view.task_id}}}*")
    steps = [await ActivityEnvironment().run(deletion.remove, all_of(view)) for _ in range(3)]

    assert [step.found_nothing for step in steps] == [False, True, True]
    assert await conversations.get_recent(context, 10) == [said("stays")]


async def test_files_of_a_task_and_its_sub_agents_go_with_it(
    redis: Redis, deletion: StoreDeletion, tmp_path: Path
) -> None:
    """Files of a task and its sub-agents are deleted, also a dead change's; those of other tasks stay."""
    views, view = TaskViews(redis), submitted(owner=new_id(), context_id="c")
    await completed_task(views, view)
    context, blobs = context_key(view.owner, "c"), LocalBlobs(tmp_path)
    artifacts = Artifacts(redis, blobs, ttl=timedelta(days=1), inline_limit=10)
    writers = {"own": view.task_id, "below": child_task_id(view.task_id, "call"), "stays": new_id()}
    for artifact_id, task_id in writers.items():
        content = f"the content of {artifact_id}".encode()
        await artifacts.apply(
            context, artifact_id, Create(task_id, (NewPart("file", content),), complete=True)
        )
    folder = folder_of_record(ArtifactAddress(context, "own").record_key)
    await blobs.put(f"{folder}/unnamed", b"the content of nothing")
    await redis.zadd(pending_blobs_key(context), {f"{folder}/unnamed": 0})
    await done(deletion, all_of(view))
    blobs.close()

    assert [each.artifact_id for each in await artifacts.list_artifacts(context)] == ["stays"]
    assert await redis.zrange(pending_blobs_key(context), 0, -1) == []
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert [each for each in (*writers, "nothing") if f"content of {each}".encode() in files] == ["stays"]


async def test_a_context_goes_with_a_task_that_only_temporal_knows(
    deletion: StoreDeletion, temporal_address: str
) -> None:
    """A context of a task that only Temporal has a record of is deleted.

    A deletion of expired tasks keeps it while the task runs.
    """
    client, owner = await Client.connect(temporal_address), new_id()
    attributes = [SearchAttributePair(names.OWNER, owner), SearchAttributePair(names.CONTEXT_ID, "c")]
    task = await client.start_workflow(
        names.WORKFLOW_TYPE,
        id=new_id(),
        task_queue="nobody",
        search_attributes=TypedSearchAttributes(attributes),
    )
    target = DeletionTarget(kind=DeletionKind.CONTEXT, owner=owner, context_id="c")
    query = f"{names.OWNER.name} = '{owner}' AND ExecutionStatus = "
    await until(lambda: client.count_workflows(f"{query}'Running'"), does=lambda found: found.count == 1)
    await done(deletion, target.model_copy(update={"if_over": True}))
    await task.terminate()
    await until(lambda: client.count_workflows(f"{query}'Terminated'"), does=lambda found: found.count == 1)
    await done(deletion, target)

    with pytest.raises(RPCError, match="not found"):
        await task.describe()


async def test_what_outlives_the_view_of_a_task_goes_with_it(redis: Redis, deletion: StoreDeletion) -> None:
    """A transcript that outlives its view is deleted by the hash of keys."""
    views = TaskViews(redis, RetentionSettings(task_ttl_days=1))
    transcripts = Transcripts(redis, ttl=timedelta(days=9))
    view = submitted(owner=new_id(), context_id="c")
    await views.create(view)
    await transcripts.open(view.task_id, view.run_id, 1, [said("secret")])
    await views.publish(view.task_id, view.run_id, [status(2, TaskState.COMPLETED)])
    await redis.delete(head_key(view.task_id))
    await ActivityEnvironment().run(deletion.remove, all_of(view))

    assert await redis.keys(f"everloop:task:{{{view.task_id}}}*") == []


@pytest.mark.parametrize("left", ["nothing", "nothing but itself", "a task", "an artifact"])
async def test_a_context_goes_with_the_last_that_is_in_it(
    redis: Redis, deletion: StoreDeletion, tmp_path: Path, left: str
) -> None:
    """A context is deleted with its last task, with title and retention, also after a step that died.

    Anything left in it keeps it listed.
    """
    views, view = TaskViews(redis), submitted(owner=new_id(), context_id="c")
    await completed_task(views, view)
    if left == "a task":
        await completed_task(views, submitted(owner=view.owner, context_id="c"))
    artifacts = Artifacts(redis, LocalBlobs(tmp_path), ttl=timedelta(days=1))
    context = context_key(view.owner, "c")
    if left == "an artifact":
        part = NewPart("file", b"content")
        await artifacts.apply(context, "kept", Create(new_id(), (part,), complete=True))
    assert await views.contexts.set_title(view.owner, "c", "A title of mine")
    assert await views.contexts.set_retention(view.owner, "c", timedelta(days=1))
    target = all_of(view)
    if left == "nothing but itself":  # a step died between the two
        await views.contexts.forget_task(view.owner, "c", view.task_id)
    for _ in range(2):
        await done(deletion, target)

    page = await views.contexts.page(view.owner, 9)
    assert [each.title for each in page.contexts] == (
        [] if left.startswith("nothing") else ["A title of mine"]
    )
    due = [each.context_id for each in await views.contexts.due(9) if each.owner == view.owner]
    assert due == ([] if left.startswith("nothing") else ["c"])
    if left == "an artifact":
        await done(deletion, target.model_copy(update={"kind": DeletionKind.ARTIFACT, "id": "kept"}))
        assert await views.contexts.ids(view.owner) == []


async def test_steps_look_at_nothing_but_what_they_delete(redis: Redis, deletion: StoreDeletion) -> None:
    """Steps read the keys of their data by name, and scan only once neither task nor context is left."""
    views, owner = TaskViews(redis), new_id()
    for context in ("a", "a", "b"):
        await completed_task(views, submitted(owner=owner, context_id=context))
    target = DeletionTarget(kind=DeletionKind.OWNER, owner=owner)
    steps, scans = list[RemoveResult](), list[int]()
    while not (steps and steps[-1].found_nothing):
        before = await scans_of(redis)
        steps.append(await ActivityEnvironment().run(deletion.remove, target))
        scans.append(await scans_of(redis) - before)

    assert [step.removed.tasks for step in steps] == [0, 3, 0, 0]
    assert steps[0].removed.keys >= 6
    assert scans[:3] == [0, 0, 0]
    assert await redis.keys(f"*{owner}*") == []


async def test_a_task_that_begins_in_a_context_whose_time_is_over_keeps_it(
    redis: Redis, deletion: StoreDeletion
) -> None:
    """A task that begins in an expired context keeps it and its messages, even during the deletion."""
    views, conversations, owner = TaskViews(redis), Conversations(redis), new_id()
    old = [submitted(owner=owner, context_id=context) for context in ("early", "late", "late")]
    for view in old:
        await completed_task(views, view)
        await conversations.append(context_key(owner, view.context_id), view.task_id, [said("old")])

    async def begin(context: str) -> str:
        new = submitted(owner=owner, context_id=context)
        await views.create(new)
        await views.publish(new.task_id, "run", [status(2)])
        return new.task_id

    async def steps(context: str, count: int) -> list[RemoveResult]:
        target = DeletionTarget(kind=DeletionKind.CONTEXT, owner=owner, context_id=context, if_over=True)
        return [await ActivityEnvironment().run(deletion.remove, target) for _ in range(count)]

    for context in ("early", "late"):
        assert await views.contexts.set_retention(owner, context, timedelta(hours=1))
    await begin("early")
    kept = await steps("early", 2)
    gone = await steps("late", 2)
    late = await begin("late")
    await conversations.append(context_key(owner, "late"), late, [said("new")])
    stopped = await steps("late", 2)

    assert [step.found_nothing for step in (*kept, *stopped)] == [True] * 4
    assert [step.removed.tasks for step in gone] == [0, 2]
    assert await conversations.get_recent(context_key(owner, "early"), 9) == [said("old")]
    assert await conversations.messages_of(context_key(owner, "late"), late) == [said("new")]
    assert await views.state(late) is TaskState.WORKING
    context = await views.contexts.get(owner, "late")
    assert context is not None
    assert [task.task_id for task in context.tasks] == [late]


@pytest.mark.parametrize("kind", [DeletionKind.ARTIFACT, DeletionKind.CONTEXT, DeletionKind.OWNER])
async def test_artifacts_go_that_nobody_can_decrypt(
    redis: Redis, redis_url: str, deletion: StoreDeletion, tmp_path: Path, kind: DeletionKind
) -> None:
    """An artifact whose record has a lost key is deleted with its tails and blobs."""
    owner, blobs = new_id(), LocalBlobs(tmp_path)
    context = context_key(owner, "c")
    async with connect_redis(redis_url.replace("/0", "/1"), keyring("lost")) as encrypted:
        artifacts = Artifacts(encrypted, blobs, ttl=timedelta(days=1), inline_limit=10)
        for content in (b"short", b"longer than what is inline"):
            part = NewPart("file", content)
            await artifacts.apply(context, f"kept-{len(content)}", Create(new_id(), (part,), complete=True))
    target = DeletionTarget(kind=kind, owner=owner, context_id="c", id="kept-5")
    await done(deletion, target if kind is not DeletionKind.OWNER else DeletionTarget(kind=kind, owner=owner))
    if kind is DeletionKind.ARTIFACT:
        await done(deletion, target.model_copy(update={"id": "kept-26"}))
    blobs.close()

    assert await redis.keys(f"*{owner}*") == []
    listed = cast("list[str]", await redis.zrange(EXPIRING_ARTIFACTS_KEY, 0, -1))
    assert [key for key in listed if owner in key] == []
    assert [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()] == []


async def test_a_schedule_goes_with_files_that_nobody_can_decrypt(
    redis: Redis, redis_url: str, temporal_address: str, deletion: StoreDeletion
) -> None:
    """Files that cannot be decrypted are deleted with a schedule, in a context of their own."""
    client = await Client.connect(temporal_address, data_converter=WIRE_DATA_CONVERTER)
    owner, schedules = new_id(), Schedules(client, "queue")
    once = Recurrence(at=datetime.now(UTC) + timedelta(days=999))
    schedule = ScheduleDefinition("agent", "Agent", (), once, owner=owner, name="yearly", keeps=True)
    await schedules.add(schedule)
    await until(lambda: schedules.of_owner(owner), does=lambda found: bool(found.ids))
    async with connect_redis(redis_url.replace("/0", "/1"), keyring("lost")) as encrypted:
        artifacts = Artifacts(encrypted, deletion.blobs)
        files = {"input-1": NewPart("file", b"content")}
        await ScheduleFiles(artifacts, artifacts).keep(owner, schedule.id, files)
    await done(deletion, DeletionTarget(kind=DeletionKind.OWNER, owner=owner))

    assert await redis.keys(f"*{owner}*") == []
    with pytest.raises(ScheduleUnknownError):
        await schedules.get(schedule.id)


def all_of(view: TaskView) -> DeletionTarget:
    """Return the deletion of a task."""
    return DeletionTarget(
        kind=DeletionKind.TASK, owner=view.owner, context_id=view.context_id, id=view.task_id
    )


async def done(deletion: StoreDeletion, target: DeletionTarget) -> None:
    """Take steps until one finds nothing to delete."""
    await until(
        lambda: ActivityEnvironment().run(deletion.remove, target), does=lambda step: step.found_nothing
    )


async def completed_task(views: TaskViews, view: TaskView) -> None:
    """Store a task that ended long ago."""
    await views.create(view)
    await views.publish(view.task_id, "run", [status(2, TaskState.COMPLETED)])


async def scans_of(redis: Redis) -> int:
    """Return the server's number of key scans."""
    counts = cast("dict[str, dict[str, int]]", await redis.info("commandstats"))
    return counts.get("cmdstat_scan", {"calls": 0})["calls"]
