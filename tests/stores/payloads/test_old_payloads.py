"""Removal of payloads: those of missing workflows go, and those that may be needed stay at any age."""

import os
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from structlog.testing import capture_logs
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.runtime.temporal.blob_payloads import NO_TASK, PAYLOADS, payload_folder
from everloop.stores.artifacts.changes import Create, NewPart
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.blobs.redis_blobs import RedisBlobs, blob_key
from everloop.stores.keys import ARTIFACTS_LISTED_SINCE_KEY, PENDING_BLOBS_KEY, pending_blobs_key
from everloop.stores.retention.artifacts import OrphanedBlobs
from everloop.stores.retention.payloads import UnknownPayloads
from everloop.stores.retention.users import FOLDER, BlobsSharedError, announce_user
from tests.stores.artifacts.artifact_failures import kept_blobs, local_rig

TTL, LONGER = timedelta(days=30), timedelta(days=31)


@pytest_asyncio.fixture
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address)


def age(path: Path, since: timedelta) -> None:
    put_at = time.time() - since.total_seconds()
    os.utime(path, (put_at, put_at))


async def keep(directory: Path, task_id: str, since: timedelta = LONGER) -> Path:
    """Store a payload of a task with this age."""
    key = f"{payload_folder(task_id)}/content"
    await LocalBlobs(directory).put(key, b"content")
    age(directory / key, since)
    return directory / key


async def started(client: Client, task_id: str) -> str:
    await client.start_workflow("Nobody", id=task_id, task_queue=f"nobody-{task_id[:8]}")
    return task_id


def payloads(directory: Path, client: Client) -> UnknownPayloads:
    return UnknownPayloads(LocalBlobs(directory), client, "queue", ttl=TTL)


async def test_payloads_of_workflows_that_temporal_knows_stay(tmp_path: Path, client: Client) -> None:
    """Payloads of open and closed workflows, of their children, and of unknown origin stay."""
    running, closed = await started(client, str(uuid4())), await started(client, str(uuid4()))
    await client.get_workflow_handle(closed).terminate()
    parent = str(uuid4())
    await started(client, f"{parent}/push/config")
    await until_listed(client, f"{parent}/push/config")
    stay = [await keep(tmp_path, task_id) for task_id in (running, closed, parent, "a" * 300, "a'b", NO_TASK)]
    stay.append(tmp_path / PAYLOADS / "no.task" / "content")
    await LocalBlobs(tmp_path).put(f"{PAYLOADS}/no.task/content", b"content")
    age(stay[-1], LONGER)
    young = await keep(tmp_path, str(uuid4()), since=TTL / 2)
    gone = await keep(tmp_path, f"gone.{uuid4()}")

    assert (await payloads(tmp_path, client).clean("", dry_run=True)).removed == 1
    assert gone.exists()
    assert await payloads(tmp_path, client).clean("", dry_run=False) == (1, "")
    assert [path.exists() for path in [*stay, young, gone]] == [True] * 8 + [False]
    assert not gone.parent.exists()
    assert await payloads(tmp_path, client).clean("", dry_run=False) == (0, "")


async def until_listed(client: Client, workflow_id: str) -> None:
    while not (await client.count_workflows(f"WorkflowId = '{workflow_id}'")).count:
        pass


async def test_nothing_is_removed_where_temporal_does_not_tell(tmp_path: Path, client: Client) -> None:
    """Nothing is removed if the namespace is missing: its workflows are not gone."""
    path = await keep(tmp_path, str(uuid4()))
    config = client.config()
    config["namespace"] = "no-such-namespace"
    with pytest.raises(RPCError):
        await payloads(tmp_path, Client(**config)).clean("", dry_run=False)
    assert path.exists()


async def test_nothing_is_removed_from_a_store_that_others_use(tmp_path: Path, client: Client) -> None:
    """Nothing is removed from a store that another namespace uses; the error names it and a remedy."""
    path = await keep(tmp_path, str(uuid4()))
    await LocalBlobs(tmp_path).put(f"{FOLDER}/other/queue", b"")
    with pytest.raises(BlobsSharedError, match=r"other/queue.*delete its name from the folder used-by"):
        await payloads(tmp_path, client).clean("", dry_run=False)
    assert path.exists()

    age(tmp_path / FOLDER / "other" / "queue", timedelta(hours=-1))  # its clock is ahead of ours
    with pytest.raises(BlobsSharedError):
        await payloads(tmp_path, client).clean("", dry_run=False)
    assert path.exists()

    await LocalBlobs(tmp_path).delete(f"{FOLDER}/other/queue")
    assert (await payloads(tmp_path, client).clean("", dry_run=False)).removed == 1


async def test_redis_keeps_payloads_of_tasks_that_go_on(redis: Redis, client: Client) -> None:
    """Payloads in Redis of running tasks are renewed in time; those of missing workflows expire."""
    blobs, known, gone = RedisBlobs(redis, ttl=TTL), await started(client, str(uuid4())), str(uuid4())
    for task_id in (known, gone):
        await blobs.put(f"{payload_folder(task_id)}/x", b"content")
        await redis.expire(blob_key(f"{payload_folder(task_id)}/x"), TTL / 3)
    cleaner, cursor, is_last = UnknownPayloads(blobs, client, "queue", ttl=TTL), "", False
    while not is_last:
        _, cursor = await cleaner.clean(cursor, dry_run=False)
        is_last = not cursor

    assert await redis.ttl(blob_key(f"{payload_folder(known)}/x")) > TTL.total_seconds() / 2
    assert await redis.ttl(blob_key(f"{payload_folder(gone)}/x")) < TTL.total_seconds() / 2


async def test_blobs_that_no_artifact_names_are_removed(
    own_redis: Redis, client: Client, request: pytest.FixtureRequest
) -> None:
    """Unreferenced blobs are removed once they, and Redis' data, are older than an artifact lives.

    Blobs of unreadable records stay, because their references cannot be checked.
    """
    rig = local_rig(own_redis, request)
    assert isinstance(rig.blobs, LocalBlobs)
    directory = rig.blobs.directory
    for artifact_id in ("kept", "lost", "unread"):
        await rig.artifacts.apply(rig.context_id, artifact_id, Create("task", (NewPart("file", b"0" * 900),)))
    named, lost = set((await rig.record("kept")).blob_keys()), await rig.record("lost")
    unread = await rig.record("unread")
    await own_redis.set(unread.address.record_key, "sealed:k9:AAAA")
    beside = f"{next(iter(named)).rpartition('/')[0]}/beside"
    for key in (beside, "artifact/a/waiting", "artifact/a/young"):
        await rig.blobs.put(key, b"content")
    await own_redis.zadd(PENDING_BLOBS_KEY, {pending_blobs_key("c"): time.time()})
    await own_redis.zadd(pending_blobs_key("c"), {"artifact/a/waiting": time.time()})
    await own_redis.delete(lost.address.record_key)
    for key in kept_blobs(rig) - {"artifact/a/young"}:
        age(directory / key, LONGER)

    cleaner = OrphanedBlobs(own_redis, rig.blobs, client, "queue", ttl=TTL)
    everything = kept_blobs(rig)
    assert await cleaner.clean("", dry_run=False) == (0, "")  # Redis may just have lost its data
    assert kept_blobs(rig) == everything
    await own_redis.incrbyfloat(ARTIFACTS_LISTED_SINCE_KEY, -TTL.total_seconds())
    counted = await cleaner.clean("", dry_run=True)
    removed = await cleaner.clean("", dry_run=False)
    assert counted == removed == (1 + len(lost.blob_keys()), "")
    assert kept_blobs(rig) == {*named, *unread.blob_keys(), "artifact/a/waiting", "artifact/a/young"}
    assert await rig.content("kept") == b"0" * 900


async def test_users_are_known_before_they_clean_up(tmp_path: Path, client: Client) -> None:
    """A worker announces itself as a user of the store at start; a failure to do so is a warning."""
    path = await keep(tmp_path, str(uuid4()))
    config = client.config()
    config["namespace"] = "no-such-namespace"
    with capture_logs() as logs:
        await announce_user(Client(**config), LocalBlobs(tmp_path), "other")
    assert [log["event"] for log in logs].count("use of the blob store not registered") == 1

    await announce_user(client, LocalBlobs(tmp_path), "other")
    with pytest.raises(BlobsSharedError, match="/other"):
        await payloads(tmp_path, client).clean("", dry_run=False)
    assert path.exists()
