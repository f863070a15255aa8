"""Deletion of expired tasks by the housekeeping, and expiry of other data."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.asyncio import Redis

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.temporal.deletions import Deletions
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Create
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord, unseal_record
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.keys import EXPIRING_ARTIFACTS_KEY, RETENTIONS_KEY, conversation_key, head_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.retention.retentions import LOOK_AFTER, Retentions
from everloop.workflows.contract.deletion_payloads import DeletionKind, DeletionTarget
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import EPOCH, new_id, said, status, submitted

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Asked(Deletions):
    """A double that records requested deletions."""

    def __init__(self) -> None:
        self.targets = list[DeletionTarget]()

    async def start(self, target: DeletionTarget) -> str:
        self.targets.append(target)
        return ""


async def kept(
    views: TaskViews, owner: str, ago: timedelta, retention: timedelta | None, *, ended: bool = True
) -> TaskView:
    """Store a task of the context with this age, retention and end."""
    seconds = (datetime.now(UTC) - ago - EPOCH).total_seconds()
    view = submitted(owner=owner, context_id="c", seconds=seconds)
    await views.create(view)
    if ended:
        await views.publish(view.task_id, "run", [status(2, TaskState.COMPLETED, seconds=seconds)])
    if retention:
        await views.contexts.set_retention(owner, "c", retention, view.task_id)
    return view


async def record_of(redis: Redis, key: str) -> ArtifactRecord:
    return unseal_record(str(await redis.get(key)), key, NO_CIPHER)


async def listed(redis: Redis, key: str) -> datetime:
    return datetime.fromtimestamp(float(await redis.zscore(EXPIRING_ARTIFACTS_KEY, key) or 0), UTC)


class Case(NamedTuple):
    """The retention of a context and its task, which changed two hours ago."""

    context: timedelta | None
    task: timedelta | None
    deleted: str = ""
    ended: bool = True
    beside: bool = False


CASES = {
    "a context is over": Case(HOUR, None, "context"),
    "a context goes with its tasks": Case(HOUR, HOUR, "context"),
    "a context is not over": Case(DAY, None),
    "a context with an open task": Case(HOUR, None, beside=True),
    "a task is over": Case(None, HOUR, "task"),
    "a task is over in a context that is not": Case(DAY, HOUR, "task"),
    "a task is not over": Case(None, DAY),
    "a task is open": Case(None, HOUR, ended=False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_only_what_is_over_is_deleted(redis: Redis, tmp_path: Path, case: Case) -> None:
    """Only expired tasks are deleted; a context with a new task may stay, and a count deletes nothing."""
    await redis.delete(RETENTIONS_KEY)
    views, owner, asked = TaskViews(redis), new_id(), Asked()
    view = await kept(views, owner, 2 * HOUR, case.task, ended=case.ended)
    if case.beside:
        await kept(views, owner, 2 * HOUR, None, ended=False)
    await views.contexts.set_retention(owner, "c", case.context)
    retentions = Retentions(redis, LocalBlobs(tmp_path), asked)
    counted = (await retentions.clean(dry_run=True)).removed
    assert asked.targets == []
    cleaned = (await retentions.clean(dry_run=False)).removed

    context = DeletionTarget(kind=DeletionKind.CONTEXT, owner=owner, context_id="c", if_over=True)
    task = DeletionTarget(kind=DeletionKind.TASK, owner=owner, context_id="c", id=view.task_id)
    assert asked.targets == {"context": [context], "task": [task], "": []}[case.deleted]
    assert counted == cleaned == len(asked.targets)
    assert await views.contexts.due(9) == []
    now = datetime.now(UTC).timestamp()
    assert await redis.zcount(RETENTIONS_KEY, now, now + LOOK_AFTER.total_seconds()) == 1


async def test_what_is_not_over_lives_as_long_as_somebody_said(redis: Redis, tmp_path: Path) -> None:
    """Other data gets its retention: from now while a task of the context is open, else from the task's end.

    No expiry is shortened.
    """
    await redis.delete(RETENTIONS_KEY)
    views, conversations, blobs = TaskViews(redis), Conversations(redis), LocalBlobs(tmp_path)
    artifacts, found = Artifacts(redis, blobs), dict[str, list[int]]()
    for name, of_context in (("as settings say", None), ("short", 9), ("long", 90)):
        owner = new_id()
        context = context_key(owner, "c")
        tasks = [await kept(views, owner, 10 * DAY, life) for life in (None, 50 * DAY)]
        await kept(views, owner, 20 * DAY, None, ended=False)
        await conversations.append(context, tasks[0].task_id, [said("m")])
        for number, task in enumerate(tasks):
            await artifacts.apply(context, f"a{number}", Create(task.task_id, (), complete=True))
        await views.contexts.set_retention(owner, "c", of_context * DAY if of_context else None)
        await Retentions(redis, blobs, Asked()).clean(dry_run=False)
        lives = [await redis.ttl(head_key(task.task_id)) for task in tasks]
        lives.append(await redis.ttl(conversation_key(context)))
        keys = [ArtifactAddress(context, f"a{number}").record_key for number in range(2)]
        ends = [(await record_of(redis, key)).expires_at for key in keys]
        assert ends == [await listed(redis, key) for key in keys]
        lives += [int((end - datetime.now(UTC)).total_seconds()) for end in ends]
        found[name] = [round(timedelta(seconds=life) / DAY) for life in lives]

    assert found == {
        "as settings say": [7, 40, 7, 30, 40],
        "short": [9, 40, 9, 30, 40],
        "long": [90, 40, 90, 90, 90],
    }
