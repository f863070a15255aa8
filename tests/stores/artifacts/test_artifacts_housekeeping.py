"""Housekeeping of artifacts: it deletes expired ones, and none that changed since."""

from datetime import timedelta

from everloop.activities.tools.tool_results import bounded
from everloop.stores.artifacts.changes import Append, Create, NewPart
from everloop.stores.keys import EXPIRING_ARTIFACTS_KEY
from everloop.stores.retention.artifacts import ExpiredArtifacts
from everloop.stores.retention.cleaned import Cleaned
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.names import context_key, result_artifact
from everloop.workflows.contract.tasks import TaskRef
from tests.stores.artifacts.artifact_failures import begin, housekeep, kept_blobs
from tests.stores.artifacts.artifact_rig import TTL, ArtifactRig


async def test_housekeeping_removes_expired_artifacts(rig: ArtifactRig) -> None:
    """Expired artifacts are deleted with all content; those changed since stay."""
    assert rig.redis
    for artifact_id in ("old", "changed"):
        create = Create("task", (NewPart("file", b"0" * 900), NewPart("file", b"1")))
        await rig.artifacts.apply(rig.context_id, artifact_id, create)
    rig.clock.at += TTL
    assert await rig.artifacts.list_artifacts(rig.context_id) == []
    rig.clock.at -= timedelta(seconds=1)
    await rig.artifacts.apply(rig.context_id, "changed", Append(b"x", index=0))
    rig.clock.at += timedelta(seconds=1)

    assert await housekeep(rig) == (1, 0)
    assert await housekeep(rig) == (0, 0)
    assert await rig.content("changed") == b"0" * 900 + b"x"
    assert kept_blobs(rig) == set((await rig.record("changed")).blob_keys())
    assert await rig.redis.zcard(EXPIRING_ARTIFACTS_KEY) == 1
    assert await rig.redis.keys("everloop:artifact*:old*") == []


async def test_results_of_tools_are_cleared_away_though_they_are_never_listed(rig: ArtifactRig) -> None:
    """Results of tools, which are not listed, are deleted with their content."""
    artifact_id = result_artifact("task", "r00001-0123abcd")
    create = Create("task", (NewPart("file", b"0" * 900),), complete=True)
    await rig.artifacts.apply(rig.context_id, artifact_id, create)
    assert await rig.artifacts.list_artifacts(rig.context_id) == []
    assert await rig.content(artifact_id) == b"0" * 900
    rig.clock.at += TTL
    assert await housekeep(rig) == (1, 0)
    assert kept_blobs(rig) == set()


async def test_a_result_that_is_kept_again_leaves_nothing_behind(rig: ArtifactRig) -> None:
    """A result that is stored again, the same or another, leaves one artifact."""
    task = TaskRef(task_id="task", run_id="run", context_id="c", owner="o", agent_id="agent")
    for attempt, text in (("a/", "x" * 900), ("a/", "x" * 900), ("b/", "y" * 900)):
        result = ToolMessage(call_id="call", name="tool", content=text)
        assert (await bounded(result, 10, rig.artifacts, task, "key", attempt=attempt)).kept == "key"
    address = context_key("o", "c"), result_artifact("task", "key")
    pieces = [piece async for piece in rig.artifacts.read_part(*address)]
    assert b"".join(pieces) == b"y" * 900
    assert (await rig.artifacts.get_artifact(*address)).version == 2
    assert await housekeep(rig) == (0, 0)
    rig.clock.at += TTL
    assert (await housekeep(rig))[0] == 1
    assert kept_blobs(rig) == set()


async def test_an_artifact_that_was_changed_since_it_was_listed_stays(rig: ArtifactRig) -> None:
    """An artifact that changed after it was listed stays, and its place in the list is corrected."""
    assert rig.redis
    await begin(rig)
    record = await rig.record("a")
    key = record.address.record_key
    await rig.redis.zadd(EXPIRING_ARTIFACTS_KEY, {key: rig.clock.at.timestamp() - 1})

    assert await housekeep(rig, later=timedelta()) == (0, 0)
    assert await rig.redis.zscore(EXPIRING_ARTIFACTS_KEY, key) == record.expires_at.timestamp()
    assert await rig.content("a") == b"0" * 150 + b"tail"


async def test_unreadable_records_hold_up_nothing_however_many(rig: ArtifactRig) -> None:
    """Any number of unreadable records stay and do not block the housekeeping.

    The next step starts after them, and the one after the last finds nothing.
    """
    assert rig.redis
    await begin(rig)
    unreadable = {f"everloop:artifact:{{c}}:{number}": 0 for number in range(1001)}
    await rig.redis.mset(dict.fromkeys(unreadable, "sealed:k9:AAAA"))
    await rig.redis.zadd(EXPIRING_ARTIFACTS_KEY, unreadable)
    rig.clock.at += TTL
    housekeeping = ExpiredArtifacts(rig.redis, rig.blobs, clock=rig.clock)

    assert await housekeeping.clean() == Cleaned(0, "1000")
    assert await housekeeping.clean("1000") == Cleaned(1)
    assert await rig.redis.zcard(EXPIRING_ARTIFACTS_KEY) == 1001
    assert kept_blobs(rig) == set()
