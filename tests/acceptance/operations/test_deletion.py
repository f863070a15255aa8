"""Deleting for good: no data is left, whatever process dies meanwhile.

Temporal, Redis and the blobs are searched.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from temporalio.client import Client as TemporalClient

from everloop.client import Client, Deletion, ForbiddenError, NotFoundError
from everloop.gateway.auth.api_keys import add_key, new_key
from everloop.gateway.auth.scopes import ADMIN, READ, WRITE
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from everloop.stores.keys import context_info_key, head_key, log_key, owner_contexts_key
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.deletion_payloads import DELETION_WORKFLOW_TYPE
from everloop.workflows.contract.housekeeping_payloads import housekeeping_schedule_id
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import status, submitted
from tests.support.agents.artifacts import ARTIFACT_AGENT
from tests.support.rigs.deployment import ACCEPTANCE_AGENT, Service, running_service
from tests.support.rigs.operator import until
from tests.support.secret_search import redis_keys_with
from tests.support.seeded_secrets import seed_secret
from tests.support.servers.scripted_openai import Reply, by_model, tool_call

AGENTS = f"{ACCEPTANCE_AGENT},{ARTIFACT_AGENT},tests.support.agents.sub_agents:agents"
OWNERS = {"ann": (READ, WRITE), "bob": (READ, WRITE), "law": (READ, WRITE, ADMIN)}
LARGE = "x" * 300_000
"""Length of a message: more than a history holds, so that it becomes a blob."""


class Rig:
    """A deployment with owners, and all its stores."""

    def __init__(
        self, service: Service, keys: dict[str, str], redis: Redis, temporal: TemporalClient
    ) -> None:
        self.service = service
        self.redis = redis
        self.temporal = temporal
        self._keys = keys

    def client(self, owner: str, agent: str = "") -> Client:
        """Return a client of an owner, for an agent."""
        url = self.service.at(agent) if agent else self.service.gateway.url
        return Client(url, api_key=self._keys[owner])

    async def places_of(self, *words: str) -> list[str]:
        """Return the places of any of these words: keys and values, workflows, blobs."""
        url = self.service.everloop.redis_url
        in_redis = [key for each in words for key in await redis_keys_with(url, each)]
        in_temporal = [
            each.id
            async for each in self.temporal.list_workflows()
            if each.workflow_type != DELETION_WORKFLOW_TYPE
            and _has(words, f"{each.id} {each.typed_search_attributes}".encode())
        ]
        blobs = self.service.everloop.directory / "blobs"
        in_blobs = [str(path) for path in blobs.rglob("*") if _has(words, _named(path))]
        return in_redis + in_temporal + in_blobs


def _has(words: tuple[str, ...], text: bytes) -> bool:
    return any(word.encode() in text for word in words)


def _named(path: Path) -> bytes:
    return str(path.name).encode() + (path.read_bytes() if path.is_file() else b"")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Rig]:
    directory = tmp_path_factory.mktemp("rig")
    path, keys = directory / "keys", dict[str, str]()
    for owner, scopes in OWNERS.items():
        key, line = new_key(owner, scopes, None)
        add_key(path, line)
        keys[owner] = seed_secret(key)
    auth = {"EVERLOOP_AUTH": "api-key", "EVERLOOP_API_KEYS_FILE": str(path)}
    async with (
        running_service(directory, AGENTS, **auth) as service,
        connect_redis(service.everloop.redis_url, NO_CIPHER) as redis,
    ):
        temporal = await TemporalClient.connect(service.everloop.temporal_address)
        yield Rig(service, keys, redis, temporal)


async def ended(client: Client, deletion: Deletion, *, owner: str = "") -> Deletion:
    """Wait until a deletion is no longer running."""
    while deletion.state == "running":
        await asyncio.sleep(0.3)
        deletion = await client.deletion(deletion.id, owner=owner)
    return deletion


def word() -> str:
    """Return a unique word."""
    return f"w{uuid4().hex}"


@pytest.mark.slow
async def test_a_task_goes_with_its_sub_agents_and_leaves_others_alone(rig: Rig) -> None:
    """Its words are deleted from the conversation too, while another task's stay.

    A repeat changes nothing.
    """
    secret, context = word(), word()
    rig.service.script(
        by_model(
            lead=[
                Reply([tool_call("writer", f'{{"request": "Write {secret}."}}')]),
                Reply([f"It is {secret}."]),
            ],
            writer=[Reply([f"A poem of {secret}."])],
        )
    )
    async with rig.client("ann", "lead") as client, rig.client("bob", "lead") as other:
        first = await client.send(f"Go {secret}. {LARGE}", context_id=context)
        rig.service.script(by_model(lead=[Reply(["Stays."])]))
        second = await client.send("And you?", context_id=context)
        assert len(await rig.places_of(first.id)) > 10
        with pytest.raises(NotFoundError):
            await other.delete_task(first.id)

        begun = await client.delete_task(first.id)
        again = await client.delete_task(first.id)
        done = await ended(client, begun)
        after = await client.delete_task(first.id)
        said = [each async for each in client.conversation(context)]
        left = await client.context(context)
        with pytest.raises(NotFoundError):
            await client.task(first.id)
        with pytest.raises(NotFoundError):
            await other.deletion(begun.id)

    assert (begun.of.kind, begun.of.id, again.id) == ("task", first.id, begun.id)
    assert (done.state, done.removed.tasks, done.finished_at is not None) == ("done", 1, True)
    assert done.removed.keys > 5
    assert done.removed.blobs > 0
    assert (after.id, after.state) == (begun.id, "done")
    assert await rig.places_of(first.id) == []
    assert [place for place in await rig.places_of(secret) if second.id not in place] == []
    assert ([each.task_id for each in said], left.tasks) == ([second.id, second.id], 1)
    assert (left.title, left.agents) == ("And you?", ["lead"])


@pytest.mark.slow
async def test_a_context_goes_with_tasks_that_run_and_artifacts(rig: Rig, tmp_path: Path) -> None:
    """A tool that writes is stopped; an artifact that another task has read is gone for it, too."""
    context, other_context = word(), word()
    rig.service.script([Reply([tool_call("write_lines", _lines(tmp_path / "open"))]), Reply(["Written."])])
    (tmp_path / "open").touch()
    async with rig.client("ann", "artifacts") as client:
        done_task = await client.send("Write.", context_id=context)
        rig.service.script([Reply([tool_call("write_lines", _lines(tmp_path / "open", "b"))]), Reply(["W."])])
        kept = await client.send("Write.", context_id=other_context)
        rig.service.script([Reply([tool_call("write_lines", _lines(tmp_path / "never", "c"))])])
        running = asyncio.create_task(client.send("Write.", context_id=context))
        await until(_is_open(client, context))
        stored = [each.artifact_id async for each in client.owner_artifacts(context_id=context)]
        deletion = await ended(client, await client.delete_context(context))
        running.cancel()
        with pytest.raises(NotFoundError):
            await client.context(context)
        left = [each.artifact_id async for each in client.owner_artifacts()]

    assert (deletion.state, deletion.removed.tasks) == ("done", 2)
    assert deletion.removed.artifacts >= 2
    assert set(stored) == {"a", "c"}
    assert "b" in left
    assert await rig.places_of(context, done_task.id) == []
    assert await rig.places_of(other_context, kept.id) != []


async def test_a_deletion_goes_on_where_its_worker_was_killed(rig: Rig) -> None:
    """Kill -9 in the middle: another worker takes it up and completes it."""
    secret, context = word(), word()
    async with rig.client("ann", "lead") as client:
        for _ in range(3):
            rig.service.script(by_model(lead=[Reply([f"Said {secret}."])]))
            await client.send(f"Say {secret}", context_id=context)
        deletion = await client.delete_context(context)
        await until(_has_begun(client, deletion.id))
        await rig.service.replace_worker()
        deletion = await ended(client, deletion)

    assert (deletion.state, deletion.removed.tasks) == ("done", 3)
    assert await rig.places_of(context, secret) == []


async def test_an_artifact_goes_from_its_task_as_well(rig: Rig, tmp_path: Path) -> None:
    """View and stream no longer have it; the task itself stays."""
    context = word()
    (tmp_path / "open").touch()
    rig.service.script([Reply([tool_call("write_lines", _lines(tmp_path / "open"))]), Reply(["Written."])])
    async with rig.client("ann", "artifacts") as client:
        task = await client.send("Write.", context_id=context)
        deletion = await ended(client, await client.delete_artifact(context, "a"))
        shown = await client.task(task.id)
        with pytest.raises(NotFoundError):
            await client.delete_artifact(context, "never")

    assert (deletion.state, deletion.removed.artifacts) == ("done", 1)
    assert "a" not in {artifact.id for artifact in shown.artifacts}
    assert await rig.redis.keys(f"everloop:artifact*{context}*:a*") == []
    events = cast("list[object]", await rig.redis.xrange(log_key(task.id)))
    assert [entry for entry in events if '"artifact_id":"a"' in repr(entry)] == []


async def test_everything_of_an_owner_goes_for_an_admin(rig: Rig) -> None:
    """Tasks, schedules and contexts; the scope is required, and other owners keep theirs."""
    secret, context = word(), word()
    rig.service.script(by_model(lead=[Reply([f"Said {secret}."]), Reply(["Stays."])]))
    async with (
        rig.client("ann", "lead") as ann,
        rig.client("bob", "lead") as client,
        rig.client("law") as admin,
    ):
        task = await client.send(f"Say {secret}", context_id=context)
        await client.create_schedule(f"Say {secret}", id="yearly", cron="0 0 1 1 *")
        await ann.send("Stay", context_id=f"{context}-of-ann")
        with pytest.raises(ForbiddenError):
            await ann.delete_owner(owner="bob")
        read = await admin.context(context, owner="bob")
        deletion = await ended(admin, await admin.delete_owner(owner="bob"), owner="bob")
        with pytest.raises(NotFoundError):
            await client.schedule("yearly")
        mine = [each.id async for each in client.contexts()]
        hers = [each.id async for each in ann.contexts()]

    assert read.tasks == 1
    assert (deletion.state, deletion.removed.tasks, deletion.of.id) == ("done", 1, "bob")
    assert await rig.places_of(secret, task.id, f"{context}'", f"{context}:") == []
    assert (mine, f"{context}-of-ann" in hers) == ([], True)


async def test_tasks_of_contexts_that_nobody_knows_go_with_their_owner(rig: Rig) -> None:
    """Neither Redis nor Temporal has the context: only its owner's list has the task."""
    view = submitted(owner="bob", context_id=word(), agent_id="lead")
    async with connect_redis(rig.service.everloop.redis_url) as redis:
        views = TaskViews(redis)
        await views.create(view)
        await views.publish(view.task_id, "run", [status(2, TaskState.COMPLETED)])
    await rig.redis.delete(owner_contexts_key("bob"), context_info_key("bob", view.context_id))
    async with rig.client("bob", "lead") as client:
        with pytest.raises(NotFoundError):
            await client.change_task(view.task_id, retention="1h")
        deletion = await ended(client, await client.delete_owner())

    assert (deletion.state, deletion.removed.tasks) == ("done", 1)
    assert await rig.places_of(view.task_id) == []


@pytest.mark.slow
async def test_what_is_kept_for_a_time_is_deleted_when_it_is_over(rig: Rig) -> None:
    """The housekeeping deletes a context, or a task, sooner than it would expire; others stay."""
    short, task_only, kept = word(), word(), word()
    async with rig.client("ann", "lead") as client:
        ids = dict[str, str]()
        for context in (short, task_only, kept):
            rig.service.script(by_model(lead=[Reply(["Said."])]))
            ids[context] = (await client.send("Say.", context_id=context)).id
        changed = await client.change_context(short, retention="1h", title="For an hour")
        of_task = await client.change_task(ids[task_only], retention="1h")
        await client.change_context(kept, retention="100d")
        for context in (short, task_only):
            await _let_pass(rig.redis, "ann", context, ids[context], hours=2)
        members = cast("list[str]", await rig.redis.zrange("everloop:retentions", 0, -1))
        await rig.redis.zadd("everloop:retentions", dict.fromkeys(members, 0))
        queue = rig.service.everloop.environment["EVERLOOP_TASK_QUEUE"]
        await rig.temporal.get_schedule_handle(housekeeping_schedule_id(queue)).trigger()
        for context in (short, task_only):  # a context goes with its only task
            await until(partial(_is_gone, client, context))
        still = await client.context(kept)
        view_ttl = await rig.redis.ttl(head_key(ids[kept]))
        positions = f"everloop:conversation:{{ann:{kept}}}:positions"
        talk_ttl = await rig.redis.ttl(positions)

    assert (changed.retention, changed.title, of_task) == ("1h", "For an hour", "1h")
    assert (still.retention, still.tasks) == ("100d", 1)
    assert (view_ttl, talk_ttl) > (99 * 86_400, 99 * 86_400)


async def _let_pass(redis: Redis, owner: str, context: str, task_id: str, *, hours: int) -> None:
    """Date the records of a context back by so much."""
    key = f"everloop:owner:{{{owner}}}:context:{context}"
    fields = cast("dict[str, str]", await redis.hgetall(key))
    earlier = hours * 3_600_000_000
    created, changed, *rest = fields[f"task:{task_id}"].split(" ")
    aged = " ".join([f"{int(created) - earlier}", f"{int(changed) - earlier}", *rest])
    await redis.hset(key, f"task:{task_id}", aged)
    await redis.zincrby(owner_contexts_key(owner), -earlier, context)


async def _is_gone(client: Client, context: str) -> bool:
    try:
        await client.context(context)
    except NotFoundError:
        return True
    return False


def _is_open(client: Client, context: str) -> Callable[[], Awaitable[bool]]:
    async def is_open() -> bool:
        names = [each.artifact_id async for each in client.owner_artifacts(context_id=context)]
        return "c" in names and (await client.context(context)).open_tasks == 1

    return is_open


def _has_begun(client: Client, deletion_id: str) -> Callable[[], Awaitable[bool]]:
    async def has_begun() -> bool:
        return (await client.deletion(deletion_id)).removed.keys > 0

    return has_begun


def _lines(gate: Path, artifact_id: str = "a") -> str:
    return f'{{"artifact_id": "{artifact_id}", "count": 40, "gate": "{gate}"}}'
