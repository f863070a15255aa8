"""Tasks in Redis: their logs and the views folded from them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from redis.asyncio import Redis

from everloop.runtime.redis import cipher_of
from everloop.stores.keys import (
    head_key,
    log_key,
    push_configs_key,
    records_key,
    registry_key,
    route_key,
    snapshot_key,
)
from everloop.stores.lifetimes import (
    DEFAULT_RETENTION,
    EVENTS_GRACE,
    GRACE,
    RetentionSettings,
)
from everloop.stores.log.contexts import Contexts
from everloop.stores.log.event_reader import RedisEventReader
from everloop.stores.log.lists import TaskLists
from everloop.stores.log.log_codec import LogCodec, ScriptArguments, logged_artifact, unword, word
from everloop.stores.log.log_types import (
    MAX_EVENTS,
    START,
    ListedStatus,
    LoggedArtifact,
    OpenTask,
    Published,
    Snapshot,
    StreamedEvent,
    TaskPage,
    TaskQuery,
    ViewStatus,
    WaitingPage,
    WaitingQuery,
    is_position,
    listing_of,
)
from everloop.stores.log.reading import folded, reading, shortened, snapshot_of
from everloop.stores.scripts import Lease, Step, lease_words, run_scripts
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, ArtifactChunk, StatusChanged, TaskEvent
from everloop.workflows.contract.fold import (
    FoldedView,
    artifact_of,
    identity_of,
    is_newer,
    restored,
)
from everloop.workflows.contract.names import root_task_id
from everloop.workflows.contract.tasks import Artifact, Route, TaskState, TaskView

T = TypeVar("T")

_DRAFT = "draft:"

SMALL_TAIL = 64 * 1024
"""Bytes after the last snapshot up to which no other one is made."""


class TaskViews:
    """The log of every task, and the view folded from its entries.

    Old events are not appended, so every entry counts (`append.lua`). A snapshot is the fold up to a
    position; it saves reading and is never required. Events of sub-agents are also appended to the log of the
    client's task, in the same step. Lists and notifications follow (`follow_up`). A call whose answer was
    lost may be repeated: statuses and chunks count once, and the follow-up is done again; only events outside
    of the view, such as a tool's progress, appear in the log again.

    Open tasks do not expire. `retention` is the lifetime of an ended task after its last event, and of a task
    of unknown owner. Its events expire after `EVENTS_GRACE`, or `GRACE` if it has push configs. `max_events`
    is the approximate maximum of events in a log (default 10,000), `max_bytes` the maximum of their bytes.
    `max_bytes` also limits a view: callers check its `size` before they add to it, because events of any size
    are appended. The record of a context lives as long as a conversation after the last status of its tasks,
    and at least as long as its tasks and artifacts.
    """

    def __init__(
        self, redis: Redis, retention: RetentionSettings = DEFAULT_RETENTION, *, max_events: int = MAX_EVENTS
    ) -> None:
        ttl = retention.task_ttl
        self.retention = retention
        self.max_bytes = retention.max_task_bytes
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._ttl = int(ttl.total_seconds())
        self._events_ttl = int(min(ttl, EVENTS_GRACE).total_seconds())
        self._pushed_ttl = int(min(ttl, GRACE).total_seconds())
        self._max_events = max_events
        self._reader = RedisEventReader(redis)
        self.contexts = Contexts(redis, retention.artifact_ttl)
        self.lists = TaskLists(redis, self._ttl, retention.conversation_ttl, self.contexts)

    async def create(self, view: TaskView) -> None:
        """Write the static part of a view (ids, owner, creation, history), and its status if it has none.

        Does nothing if the view is already complete. Publishes `TaskCreated` if it wrote something.
        """
        await self.run(self.creating(view))

    async def begin(self, view: TaskView, *, most: int) -> Snapshot | None:
        """Create the view of a client's task, and return the stored task, as `load` does."""
        _, snapshot = await self.run(self.creating(view), self._loading(view.task_id, most))
        return snapshot

    def creating(self, view: TaskView) -> Step[Published | None]:
        """Return the step of `create`, for `run`, which follows up."""
        arguments = self._codec(view.task_id).creation(view)
        return self._appending(view.task_id, view.run_id, arguments, ())

    async def publish(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Sequence[TaskState]:
        """Append events to the log of a task, then follow up.

        Returns the new states of the task: none for an old status, or for a status of the same state. `lease`
        is the lease of the publishing attempt at a call.

        Raises:
            OvertakenError: a later attempt has claimed the call.
        """
        if not events:
            return ()
        (published,) = await self.run(self.publishing(task_id, run_id, events, lease))
        return published.states

    async def run(self, *steps: Step[Any]) -> tuple[Any, ...]:
        """Run scripts at the keys of one task, in one round trip, and follow up those that publish.

        Raises:
            OvertakenError: as `run_scripts`.
        """
        replies = await run_scripts(self._redis, *steps)
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, Published):
                await self.follow_up(step.task_id, reply)
        return replies

    def publishing(
        self,
        task_id: str,
        run_id: str,
        events: Sequence[TaskEvent],
        lease: Lease | None = None,
        *,
        claims: str = "",
    ) -> Step[Published | None]:
        """Return the step of `publish`, for `run`, which follows up.

        With `claims`, the step publishes only while the attempt holds the call and its claim had one of these
        answers; otherwise its result is None.
        """
        arguments = self._codec(task_id).append(events)
        return self._appending(task_id, run_id, arguments, events, lease, claims)

    async def follow_up(self, task_id: str, published: Published | None) -> None:
        """Update lists, notify and store a snapshot after a step. To be repeated whenever the step is.

        Raises:
            RedisError: it is unknown which of these were done.
        """
        if published and published.needs_snapshot:
            await self._store_snapshot(task_id)
        if published and published.listing:
            await self.lists.enter(published.listing)

    async def end(self, task_id: str, run_id: str, status: StatusChanged) -> bool:
        """Publish the last status of a run that did not publish it itself, and return whether it was new.

        Does nothing if the view is unknown or has ended, or if it follows another run with a later status:
        facts about a run may be out of date on arrival. An empty run id stands for the run that the view
        follows.
        """
        while True:
            view, position = await self._folded(task_id)
            run = run_id or view.run_id or ""
            is_open = view.identity and view.status and not view.status.state.is_terminal
            if not is_open or not is_newer(view, run, status):
                return False
            arguments = self._codec(task_id).append([status], follows=bool(run))
            step = self._appending(task_id, run, arguments, [status], expected=position)
            if (await self.run(step))[0]:
                return True

    async def restore(self, view: TaskView) -> None:
        """Restore a view from the workflow's answer, unless newer events were appended meanwhile."""
        codec, was_appended = self._codec(view.task_id), False
        while not was_appended:
            before, position = await self._folded(view.task_id)
            after, events = restored(FoldedView() if position == START else before, view)
            arguments = codec.append(events, follows=after.run_id == view.run_id)
            step = self._appending(
                view.task_id,
                view.run_id,
                [*codec.identification(view), *arguments],
                events,
                expected=position,
                made=codec.snapshot(after),
            )
            was_appended = (await self.run(step))[0] is not None

    async def load(
        self, task_id: str, *, most: int | None = None, history_length: int | None = None
    ) -> Snapshot | None:
        """Return view and position, or None if the view is unknown or lacks its static part.

        The view has its newest `history_length` messages (None: all). If it has more than `most` bytes
        (None: no limit), it has neither messages nor artifacts.
        """
        reads_all = history_length is not None  # the size of the other messages is known once all are read
        (loaded,) = await run_scripts(self._redis, self._loading(task_id, None if reads_all else most))
        return shortened(loaded, history_length, most) if loaded and history_length is not None else loaded

    async def size(self, task_id: str) -> int:
        """Return the stored size of a task in bytes; 0 if it does not exist."""
        (found,) = await run_scripts(self._redis, reading(task_id, -1))
        return found.size

    async def state(self, task_id: str) -> TaskState | None:
        """Return the state of a task, or None if `load` would. Reads nothing else."""
        found = (await self.states([task_id])).get(task_id)
        return found and found.state

    async def states(self, task_ids: Sequence[str]) -> Mapping[str, ViewStatus]:
        """Return the last statuses of these tasks, without tasks that have none."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                pipeline.hmget(head_key(task_id), "task", "status", "status_run")
            found = cast("list[tuple[str | None, str | None, str | None]]", await pipeline.execute())
        return {
            task_id: ViewStatus(listed.state, run or "", listed.version)
            for task_id, (task, status, run) in zip(task_ids, found, strict=True)
            if task and status and (listed := ListedStatus.model_validate_json(status))
        }

    async def list_open(self, first: int, count: int) -> Sequence[OpenTask]:
        """Return open clients' tasks of all owners, sorted by the time of their last status, oldest first.

        Returns at most `count`, beginning with number `first`. Tasks that change meanwhile may be left out.
        Lists that differ from the views are corrected.
        """
        return await self.lists.open_tasks(first, count)

    async def keep_route(self, task_id: str, route: Route) -> None:
        """Store the route of a message that has no task of its own, as long as ended tasks.

        Temporal may delete it sooner, and the same message must not be answered again.
        """
        sealed = self._cipher.seal_text(route.model_dump_json(), _route_purpose(task_id))
        await self._redis.set(route_key(task_id), sealed, ex=self._ttl)

    async def note_answer(self, view: TaskView) -> None:
        """Note a message that was answered at once in its context; `view` is the message as a task."""
        await self.lists.note_answer(identity_of(view), self._codec(view.task_id).title(view))

    async def find(self, task_id: str, *, most: int) -> tuple[Route | None, Snapshot | None]:
        """Return the stored route of the message whose task would have this id, and that task."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.get(route_key(task_id))
            pipeline.exists(head_key(task_id))
            kept, is_known = cast("tuple[str | None, int]", await pipeline.execute())
        text = self._cipher.unseal_text(kept, _route_purpose(task_id)) if kept else ""
        route = Route.model_validate_json(text) if text else None
        return route, await self.load(task_id, most=most) if is_known else None

    async def logged_artifacts(self, task_id: str) -> Mapping[str, LoggedArtifact]:
        """Return the state of each artifact from the head of a log, without the answer: no store has that."""
        head = cast("dict[str, str]", await self._redis.hgetall(head_key(task_id)))
        logged = {
            unword(name.removeprefix(_DRAFT)): logged_artifact(words)
            for name, words in head.items()
            if name.startswith(_DRAFT)
        }
        logged.pop(RESPONSE_ARTIFACT, None)
        return logged

    async def logged_artifact(self, task_id: str, artifact_id: str) -> LoggedArtifact | None:
        """Return the state of an artifact from the head of a log; None if it is unknown."""
        found = cast("str | None", await self._redis.hget(head_key(task_id), _DRAFT + word(artifact_id)))
        return logged_artifact(found) if found else None

    async def artifact(self, task_id: str, artifact_id: str) -> Artifact | None:
        """Return one artifact of a view; None if it does not exist."""
        view, _ = await self._folded(task_id)
        found = view.artifacts.get(artifact_id)
        return found and artifact_of(artifact_id, found)

    async def forget_artifact(self, task_id: str, artifact_id: str) -> int:
        """Remove an artifact from a view and its log; return the number of removals."""
        removed, position = 0, START
        view, _ = await self._folded(task_id)
        if artifact_id in view.artifacts:
            removed += 1
            await self._store_snapshot(task_id, without=artifact_id)
            await self._redis.hdel(head_key(task_id), _DRAFT + word(artifact_id))
        while page := await self.read({task_id: position}, wait=0):
            position = page[-1].position
            told = [each.position for each in page if _is_of(each.event, artifact_id)]
            removed += int(await self._redis.xdel(log_key(task_id), *told)) if told else 0
        return removed

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        """Return events after the given position of each task's stream, oldest first within a task.

        Waits up to `wait` seconds (0: not at all) for the first one; `wake` ends the wait early.
        At most `limit` events per task.
        """
        return await self._reader.read(positions, wait=wait, limit=limit)

    async def wake(self) -> None:
        """Make the waiting `read` of this object, or else the next one, return at once."""
        await self._reader.wake()

    async def holds(self, task_id: str, position: str) -> bool:
        """Return True if the log still has all events after a position."""
        if not is_position(position):
            return False
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hmget(head_key(task_id), "first", "last")
            pipeline.xrange(
                log_key(task_id), *(("-", "+") if position == START else (position, position)), count=1
            )
            (first, last), entries = cast(
                "tuple[list[str | None], list[tuple[str, object]]]", await pipeline.execute()
            )
        # XINFO's max-deleted-entry-id does not show a trimmed log: trimming by MAXLEN leaves it at 0-0. The
        # log expires before its head, and the task may go on (Reset).
        held = entries[0][0] if entries else None
        return held == first if position == START and held else position in {held, last}

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """List the tasks of an owner, newest status first.

        A task with a new status moves to the front while a client pages: it is not listed twice, and no other
        task is skipped. A page ends early if it would have more than about `MAX_PAGE_BYTES`. A single task
        that is larger has neither history nor artifacts.

        Raises:
            InvalidPageTokenError: the token was not made by this method.
        """
        return await self.lists.page(query)

    async def list_waiting(self, query: WaitingQuery) -> WaitingPage:
        """List the tasks that wait for answers of others than their owner, the longest waiting first.

        Raises:
            InvalidPageTokenError: the token was not made by this method.
        """
        return await self.lists.waiting_page(query)

    async def _folded(self, task_id: str) -> tuple[FoldedView, str]:
        """Return the folded log of a task and its last position."""
        (found,) = await run_scripts(self._redis, reading(task_id))
        return folded(self._codec(task_id), found), found.position

    def _loading(self, task_id: str, most: int | None) -> Step[Snapshot | None]:
        step, codec = reading(task_id, most), self._codec(task_id)

        def read(reply: Any) -> Snapshot | None:  # noqa: ANN401 -- as of every step
            return snapshot_of(codec, step.read(reply))

        return Step(task_id, step.file, step.keys, step.arguments, read)

    async def _store_snapshot(self, task_id: str, *, without: str = "") -> None:
        view, position = await self._folded(task_id)
        if without:
            artifacts = {name: each for name, each in view.artifacts.items() if name != without}
            view = replace(view, artifacts=artifacts)
        keys = [head_key(task_id), log_key(task_id), snapshot_key(task_id), registry_key(task_id)]
        keys.append(push_configs_key(task_id))
        lives = [self._ttl, self._events_ttl, self._pushed_ttl]
        arguments = [position, self._codec(task_id).snapshot(view), *lives, self._max_events, self.max_bytes]
        await run_scripts(self._redis, Step(task_id, "log/snapshot.lua", keys, arguments, bool))

    def _appending(  # noqa: PLR0913, PLR0917 -- all that a step takes
        self,
        task_id: str,
        run_id: str,
        arguments: ScriptArguments,
        events: Sequence[TaskEvent],
        lease: Lease | None = None,
        claims: str = "",
        *,
        expected: str = "",
        made: str = "",
    ) -> Step[Published | None]:
        root = root_task_id(task_id)
        keys = [head_key(task_id), log_key(task_id), head_key(root), log_key(root), registry_key(task_id)]
        keys += [records_key(task_id), push_configs_key(task_id), snapshot_key(task_id)]
        header = [run_id, *lease_words(lease, claims), self._ttl, expected, made]
        states = [event.state for event in events if isinstance(event, StatusChanged)]
        is_over = any(state.is_terminal for state in states)
        is_urgent = is_over or any(state.is_interrupted for state in states)

        def read(reply: Any) -> Published | None:  # noqa: ANN401 -- as of every step
            if reply is None:
                return None
            listed, push, length, tail, size = reply[:5]
            took = tuple(map(TaskState, cast("list[str]", reply[5:])))
            is_long = int(length) > self._max_events or int(tail) > max(SMALL_TAIL, size / 2)
            return Published(
                took,
                listing_of(listed) if listed else None,
                tuple(each.partition(":")[2] for each in push if each.startswith("config:")),
                is_urgent,
                needs_snapshot=is_long or (is_over and bool(took)),
            )

        return Step(task_id, "log/append.lua", keys, [*header, *arguments], read)

    def _codec(self, task_id: str) -> LogCodec:
        return LogCodec(task_id, self._cipher)


def _is_of(event: object, artifact_id: str) -> bool:
    return isinstance(event, ArtifactChunk) and event.artifact_id == artifact_id


def _route_purpose(task_id: str) -> str:
    return f"route {task_id}"
