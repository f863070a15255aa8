"""Task views and event streams in Redis."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from everloop.runtime.redis import cipher_of
from everloop.stores.keys import (
    history_key,
    push_configs_key,
    records_key,
    route_key,
    stream_key,
    view_key,
)
from everloop.stores.retention import (
    DEFAULT_RETENTION,
    EVENTS_GRACE,
    GRACE,
    RetentionSettings,
)
from everloop.stores.steps import Lease, Step, Steps, late_words
from everloop.stores.views.codec import (
    ScriptArguments,
    ViewCodec,
    history_of,
    is_complete,
    unword,
    word,
)
from everloop.stores.views.contexts import Contexts
from everloop.stores.views.events import RedisEventReader
from everloop.stores.views.interface import (
    START,
    OpenTask,
    Published,
    Snapshot,
    StreamedEvent,
    TaskPage,
    TaskQuery,
    ViewArtifact,
    ViewStatus,
    WaitingPage,
    WaitingQuery,
    is_position,
    listing_of,
)
from everloop.stores.views.lists import TaskLists
from everloop.stores.views.parts import MAX_EVENTS, identity_of
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, StatusChanged, TaskEvent
from everloop.workflows.contract.names import root_task_id
from everloop.workflows.contract.tasks import Route, TaskState, TaskView

_ARTIFACT_SCRIPT = """
local draft, tail = unpack(redis.call('HMGET', KEYS[1], 'artifact:' .. ARGV[1], 'tail:' .. ARGV[1]))
if not draft then return nil end
local blocks = {}
for number = 1, draft:match('^%S+ %S+ %S+ (%d+)') - 1 do
  blocks[number] = redis.call('HGET', KEYS[1], 'block:' .. number .. ':' .. ARGV[1])
end
blocks[#blocks + 1] = tail
return {draft, blocks}
"""
T = TypeVar("T")

_Reply = tuple[object, list[str] | None, list[str]]
"""What a step did, what is to be listed, ids of push configs."""

_Loaded = tuple[int, list[str | None], list[str], str | None]
"""Size, fields (name and value in turn), messages, ids of messages left out."""


class TaskViews:
    """The folded view of every task and the stream of its events.

    A view and its stream change in one atomic step, by the rules in `everloop.workflows.contract.events`; so
    does the stream of a client's task with those of its sub-agents. Lists follow, and who is to be notified
    (`follow_up`). A call may be repeated when its answer was lost: what was folded in is dropped the second
    time, and what follows is done again; only events outside of the view, such as a tool's progress, appear
    in the stream again.

    An open task is kept, and `retention` says how long one that has ended is kept after its last event, and
    one of which nobody knows whose it is; its events go after `EVENTS_GRACE`, or `GRACE` where somebody
    is to be notified. `max_events` is about how many events its stream keeps (default 10,000), of at most
    `max_bytes` together. That is also how large a view may get: whoever adds to one asks first how large it
    is (`size`), since what is published is folded in, whatever its size. What is known of a context is kept
    as long as a conversation after the last status of its tasks, at least as long as these; if it has
    artifacts, at least as long as these.
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
        self.steps = Steps(redis)
        self._artifact = redis.register_script(_ARTIFACT_SCRIPT)
        self._reader = RedisEventReader(redis)
        self.contexts = Contexts(redis, retention.artifact_ttl)
        self.lists = TaskLists(redis, self._ttl, retention.conversation_ttl, self.contexts)

    async def create(self, view: TaskView) -> None:
        """Write the static part of a view (ids, owner, creation, history), and its status if there is none.

        Does nothing where the view is already whole. Publishes `TaskCreated` when it wrote something.
        """
        await self.run(self.creating(view))

    async def begin(self, view: TaskView, *, most: int) -> Snapshot | None:
        """Create the view of a client's task, and return the task as it stands then, as `load` does."""
        step = self.creating(view, most)
        created, snapshot = await self.run(step, self._loading(view.task_id, most))
        if snapshot is None and created.listing:  # it is as we have made it
            return Snapshot(view, created.listing.revision, sum(len(str(word)) for word in step.arguments))
        return snapshot

    def creating(self, view: TaskView, most: int = 0) -> Step[Published]:
        """Return the step of `create`.

        It ends the script where nothing was known of a client's task, and it has no more than `most` bytes:
        it stands as `view` has it then.
        """
        arguments = [*self._codec(view.task_id).creation(view), most]
        return self._step("create", view.task_id, view.run_id, arguments, _read_change)

    async def publish(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Sequence[TaskState]:
        """Fold events into the view and append them to the stream, in one atomic step; then follow it up.

        Returns the states that the task took by this: none for a status that is old news, or that says
        something new of the same state. `lease` is that of the attempt at a call which publishes them.

        Raises:
            OvertakenError: a later attempt has claimed the call.
        """
        if not events:
            return ()
        (published,) = await self.run(self.publishing(task_id, run_id, events, lease))
        return published.states

    async def run(self, *steps: Step[Any]) -> tuple[Any, ...]:
        """Do steps at the keys of one task, and what follows those that publish.

        Raises:
            OvertakenError: as `Steps.run`.
        """
        replies = await self.steps.run(*steps)
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, Published):
                await self.follow_up(step.task_id, reply)
        return replies

    def publishing(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Step[Published]:
        """Return the step of `publish`, for `run`, which follows it up."""
        arguments = self._codec(task_id).events(events)
        return self._step("publish", task_id, run_id, arguments, _read_published(events), lease)

    def publishing_bare(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent]
    ) -> Step[Published | None]:
        """Return a step that publishes if the view shows no artifacts but the reply of the model.

        Else it does nothing, returns None, and ends the script.
        """
        arguments, read = self._codec(task_id).events(events), _read_published(events)
        return self._step("publish_bare", task_id, run_id, arguments, lambda reply: reply and read(reply))

    async def follow_up(self, task_id: str, published: Published | None) -> None:
        """Do what follows a step outside of the keys of its task; whoever repeats the step repeats this.

        Raises:
            RedisError: nobody knows how far it came.
        """
        del task_id
        if published and published.listing:
            await self.lists.enter(published.listing)

    async def end(self, task_id: str, run_id: str, status: StatusChanged) -> bool:
        """Give a task the last status that its run did not publish itself, and return whether this did it.

        It does nothing where the view is unknown or says an end already, or where it follows another run
        whose status is later: what was found out of a run may be out of date when it arrives. An empty run
        id is that of the run that the view follows.
        """
        arguments = self._codec(task_id).status(status)
        (ended,) = await self.run(self._step("end", task_id, run_id, arguments, _read_change))
        return ended is not None and ended.listing is not None

    async def restore(self, view: TaskView) -> None:
        """Put back a view that the workflow answered, except where newer events were folded in meanwhile."""
        arguments = self._codec(view.task_id).restoration(view)
        await self.run(self._step("restore", view.task_id, view.run_id, arguments, _read_change))

    async def load(
        self, task_id: str, *, most: int | None = None, history_length: int | None = None
    ) -> Snapshot | None:
        """Return view and position, or None if the view is unknown or lacks its static part.

        The view has its newest `history_length` messages (None: all). Where it takes more than `most` bytes
        (None: however many) it comes without messages and artifacts.
        """
        if most is not None:
            (loaded,) = await self.steps.run(self._loading(task_id, most, history_length))
            return loaded
        newest = (1, 0) if history_length == 0 else (-(history_length or 0), -1)
        async with self._redis.pipeline(transaction=True) as pipeline:
            self._queue_size(pipeline, task_id)
            pipeline.hgetall(view_key(task_id))
            pipeline.lrange(history_key(task_id), *newest)
            *sizes, fields, later = await pipeline.execute()
        view = self._codec(task_id).view(fields, history_of(fields, later, history_length))
        return _snapshot(view, fields, _sum(sizes)) if view else None

    def _loading(self, task_id: str, most: int, history_length: int | None = None) -> Step[Snapshot | None]:
        def read(loaded: _Loaded) -> Snapshot | None:
            size, words, later, left_out = loaded
            pairs = zip(words[::2], words[1::2], strict=True)
            fields = {name: value for name, value in pairs if name and value is not None}
            history = () if left_out is not None else history_of(fields, later, history_length)
            view = self._codec(task_id).view(fields, history)
            if view is None:
                return None
            ids = None if left_out is None else frozenset(map(unword, left_out.split()))
            return _snapshot(view, fields, size, ids)

        keys = [view_key(task_id), history_key(task_id)]
        newest = "all" if history_length is None else history_length
        return Step(task_id, "shown.task", keys, [most, newest], read)

    async def size(self, task_id: str) -> int:
        """Return how many bytes the view of a task takes as it is stored; 0 if there is none."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            self._queue_size(pipeline, task_id)
            return _sum(await pipeline.execute())

    async def state(self, task_id: str) -> TaskState | None:
        """Return the state of a task, or None where `load` does; it reads nothing else."""
        task, state = cast("list[str | None]", await self._redis.hmget(view_key(task_id), "task", "state"))
        return TaskState(state) if task and state else None

    async def states(self, task_ids: Sequence[str]) -> Mapping[str, ViewStatus]:
        """Return what the views of these tasks say last; those that have none are left out."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                pipeline.hmget(view_key(task_id), "task", "state", "status_run", "version")
            found = cast("list[tuple[str | None, ...]]", await pipeline.execute())
        return {
            task_id: ViewStatus(TaskState(state), run_id or "", int(version or 0))
            for task_id, (task, state, run_id, version) in zip(task_ids, found, strict=True)
            if task and state
        }

    async def list_open(self, first: int, count: int) -> Sequence[OpenTask]:
        """Return clients' tasks that have not ended, whoever owns them, by when they had their last status.

        The oldest is the first; at most `count` from that number on. What changes meanwhile may be left out.
        Where a list says something else than the view, it is put right.
        """
        return await self.lists.open_tasks(first, count)

    async def keep_route(self, task_id: str, route: Route) -> None:
        """Keep what became of a message that has no task of its own, as long as tasks that have ended are.

        Temporal may forget it sooner, and the same message must not be answered anew.
        """
        sealed = self._cipher.seal_text(route.model_dump_json(), _route_purpose(task_id))
        await self._redis.set(route_key(task_id), sealed, ex=self._ttl)

    async def note_answer(self, view: TaskView) -> None:
        """Let its context know of a message that was answered at once; `view` shows it as a task."""
        await self.lists.note_answer(identity_of(view), self._codec(view.task_id).title(view))

    async def find(self, task_id: str, *, most: int) -> tuple[Route | None, Snapshot | None]:
        """Return what was kept of the message whose task would have this id, and that task."""

        def read(kept: str | None) -> Route | None:
            text = self._cipher.unseal_text(kept, _route_purpose(task_id)) if kept else ""
            return Route.model_validate_json(text) if text else None

        if not await self._redis.exists(route_key(task_id), view_key(task_id)):
            return None, None
        kept = Step(task_id, "shown.route", [route_key(task_id)], [], read)
        return await self.steps.run(kept, self._loading(task_id, most))

    async def artifacts_seen(self, task_id: str) -> Mapping[str, bool] | None:
        """Return the artifacts of a view, and whether each is complete; None where there is no view.

        The reply of the model is not among them: no store has it.
        """
        task, drafts = cast("list[str | None]", await self._redis.hmget(view_key(task_id), "task", "drafts"))
        if task is None:
            return None
        words = [each for each in (drafts or "").split() if each != RESPONSE_ARTIFACT]
        if not words:
            return {}
        names = [f"artifact:{each}" for each in words]
        kept = cast("list[str]", await self._redis.hmget(view_key(task_id), names))
        return {unword(each): is_complete(draft) for each, draft in zip(words, kept, strict=True)}

    async def artifact(self, task_id: str, artifact_id: str) -> ViewArtifact | None:
        """Return one artifact of a view, None if there is none; it reads nothing else."""
        found = await self._artifact(keys=[view_key(task_id)], args=[word(artifact_id)])
        if not found:
            return None
        draft, blocks = cast("tuple[str, list[str]]", found)
        return self._codec(task_id).artifact(artifact_id, draft, blocks)

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        """Return events after the given position of each task's stream, oldest first within a task.

        Waits up to `wait` seconds (0: not at all) for the first one; `wake` ends the wait early.
        At most `limit` events per task.
        """
        return await self._reader.read(positions, wait=wait, limit=limit)

    async def forget_events(self, task_id: str, positions: Sequence[str]) -> int:
        """Take events out of the stream of a task; return how many there were."""
        return int(await self._redis.xdel(stream_key(task_id), *positions)) if positions else 0

    async def wake(self) -> None:
        """Make the `read` of this object that waits now, or else the next one, return at once."""
        await self._reader.wake()

    async def holds(self, task_id: str, position: str) -> bool:
        """Whether reading on from a position misses nothing: it is held, or nothing came after it."""
        if not is_position(position):
            return False
        if position == START:
            return await self._holds_first(task_id)
        entries = await self._redis.xrange(stream_key(task_id), position, position)
        if [position] == [entry[0] for entry in cast("list[tuple[str, object]]", entries)]:
            return True
        # A stream expires before its view, and the task may go on (Reset).
        return await self._redis.hget(view_key(task_id), "last") == position

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """List the tasks of an owner, newest status first.

        A task that gets a new status while a client pages moves to the front; it is neither listed twice
        nor does it push another one out of the pages. A page ends early where it would have more than about
        `MAX_PAGE_BYTES`. A task of which more is wanted comes without history and artifacts.

        Raises:
            InvalidPageTokenError: the token was not made by this method.
        """
        return await self.lists.page(query)

    async def list_waiting(self, query: WaitingQuery) -> WaitingPage:
        """List the tasks that ask others than their owner, those that have waited longest first.

        Raises:
            InvalidPageTokenError: the token was not made by this method.
        """
        return await self.lists.waiting_page(query)

    @staticmethod
    def _queue_size(pipeline: Pipeline, task_id: str) -> None:
        """Ask for two sizes. Of samples, which are the default, an estimate comes that may be half of it."""
        pipeline.memory_usage(view_key(task_id), samples=0)
        pipeline.memory_usage(history_key(task_id), samples=0)

    def _codec(self, task_id: str) -> ViewCodec:
        return ViewCodec(task_id, self._cipher)

    async def _holds_first(self, task_id: str) -> bool:
        # XINFO's max-deleted-entry-id would not tell: trimming by MAXLEN leaves it at 0-0.
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hget(view_key(task_id), "first")
            pipeline.xrange(stream_key(task_id), count=1)
            first, entries = await pipeline.execute()
        return bool(entries) and entries[0][0] == first

    def _step(  # noqa: PLR0913, PLR0917 -- all that a step takes
        self,
        operation: str,
        task_id: str,
        run_id: str,
        arguments: ScriptArguments,
        read: Callable[[Any], T],
        lease: Lease | None = None,
    ) -> Step[T]:
        lives = [self._ttl, self._events_ttl, self._pushed_ttl]
        header = [run_id, *lives, self._max_events, self.max_bytes, *late_words(lease)]
        root = root_task_id(task_id)
        keys = [view_key(task_id), history_key(task_id), stream_key(task_id), stream_key(root)]
        keys.append(records_key(task_id))
        if task_id == root:
            keys.append(push_configs_key(task_id))
        return Step(task_id, f"view.{operation}", keys, [*header, *arguments], read)


def _read_published(events: Sequence[TaskEvent]) -> Callable[[_Reply], Published]:
    states = [event.state for event in events if isinstance(event, StatusChanged)]
    is_urgent = any(state.is_terminal or state.is_interrupted for state in states)

    def read(reply: _Reply) -> Published:
        taken, listed, push = reply
        states = tuple(map(TaskState, cast("list[str]", taken)))
        return Published(states, listing_of(listed) if listed else None, tuple(push), is_urgent)

    return read


def _read_change(reply: _Reply) -> Published:
    _, listed, push = reply
    return Published(listing=listing_of(listed) if listed else None, push=tuple(push))


def _snapshot(
    view: TaskView, fields: Mapping[str, str], size: int, left_out: frozenset[str] | None = None
) -> Snapshot:
    return Snapshot(view, fields.get("last", START), size, left_out, is_incomplete="lost" in fields)


def _sum(sizes: Iterable[int | None]) -> int:
    return sum(size or 0 for size in sizes)


def _route_purpose(task_id: str) -> str:
    return f"route {task_id}"
