"""Following of a task to its end, across lost connections."""

import asyncio
import math
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from a2a.types import a2a_pb2 as pb

from everloop.client.changes import changes, ended_calls
from everloop.client.connection import Connection, Responses
from everloop.client.content import plain_struct
from everloop.client.errors import (
    BusyError,
    ClientError,
    NotFoundError,
    ServerError,
    UnreachableError,
    UnsupportedError,
)
from everloop.client.fold import Task, add_steps, fold, result_of, state_of, steps_of
from everloop.client.task_events import ArtifactChanged, Done, Event, Reconnecting, Result, TaskState

HISTORY = 20
"""Messages requested with a task: a server that is not an Everloop may send its answer as one."""

_FIRST_DELAY = 0.2
_LONGEST_DELAY = 5.0


class Backoff:
    """Backoff of reconnections, for `seconds` after the loss of the connection, and not beyond `end`."""

    def __init__(self, seconds: float, *, end: float = math.inf) -> None:
        self._seconds = seconds
        self._end = end
        self._since: float | None = None
        self._attempts = 0

    def restore(self) -> None:
        """Reset the backoff after a received event."""
        self._since, self._attempts = None, 0

    def next(self, problem: ClientError) -> Reconnecting:
        """Return the next attempt.

        Raises:
            ClientError: the problem, if it has lasted too long.
        """
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**self._attempts) * random.uniform(0.5, 1)  # noqa: S311 -- jitter
        if isinstance(problem, BusyError):
            delay = max(delay, problem.retry_after)
        if now + delay > min(self._since + self._seconds, self._end):
            raise problem
        self._attempts += 1
        return Reconnecting(attempt=self._attempts, delay=delay, reason=str(problem))


class _EndedError(UnreachableError):
    """The stream ended regularly before the task did."""


class Following:
    """One task, followed from a message on (`request`) to the end of its turn, or by its id to its end.

    `after` is the event after which it resumes.
    """

    def __init__(
        self,
        connection: Connection,
        task: Task,
        backoff: Backoff,
        *,
        request: pb.SendMessageRequest | None = None,
        after: str = "",
    ) -> None:
        self.task = task
        self._connection = connection
        self._backoff = backoff
        self._request = request
        self._after = after
        self._is_partial = bool(after)
        self._is_whole = not after
        self._events = list[Event | None]()
        self._changed = dict[str, int]()
        """Index of each artifact's last change among the events: it includes the earlier ones."""
        self._is_polling = False
        self._has_subscribed = False
        self._has_received = False
        self._may_have_arrived = False
        self._turn_has_ended = False

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events, and at last the result.

        Raises:
            ClientError: the server rejects it, or could not be reached for too long.
        """
        while not self._is_over():
            problem: ClientError = _EndedError("the stream has ended before the task has")
            try:
                async with aclosing(self._connected()) as events:
                    async for event in events:
                        yield event
            except ClientError as error:
                problem = error
            if not (self._is_over() or await self._has_to_poll(problem)):
                if not await self._may_retry(problem):
                    raise problem
                waiting = self._backoff.next(problem)
                yield self._noted(waiting)
                await asyncio.sleep(waiting.delay)
        yield Done(task_id=self.task.id, event_id=self._after, result=await self._result())

    def result(self) -> Result:
        """Return the current state of the task."""
        return self.task.result(tuple(filter(None, self._events)))

    @property
    def _is_sending(self) -> bool:
        """Whether the arrival of the message is still unconfirmed."""
        return self._request is not None and not self._has_received

    def _is_over(self) -> bool:
        waits = self._request is not None and self.task.is_waiting
        return self.task.state.is_terminal or waits or self._turn_has_ended

    async def _received(self) -> None:
        """Take note of an update of the task."""

    def _noted(self, event: Event, event_id: str = "") -> Event:
        """Record an event."""
        event = replace(event, task_id=event.task_id or self.task.id, event_id=event_id)
        if isinstance(event, ArtifactChanged):
            if (place := self._changed.get(event.artifact.id)) is not None:
                self._events[place] = None
            self._changed[event.artifact.id] = len(self._events)
        self._events.append(event)
        return event

    async def _has_to_poll(self, problem: ClientError) -> bool:
        """Whether to poll from now on: the task has ended meanwhile, or the server has no subscriptions."""
        if self._is_polling or self._is_sending:
            return False
        if isinstance(problem, _EndedError):
            # A subscription that a server has ended would end again.
            ends = self._has_subscribed and not self.task.is_everloop
            self._is_polling = ends or not await self._connection.streams()
        else:
            self._is_polling = isinstance(problem, UnsupportedError | NotFoundError)
        return self._is_polling

    async def _may_retry(self, problem: ClientError) -> bool:
        """Whether a next attempt makes sense, and sends no message twice.

        There is one after a received event, or if a message may have arrived at an Everloop, which
        deduplicates it. Other servers may not.
        """
        if self._is_sending and isinstance(problem, UnreachableError) and not problem.is_unsent:
            self._may_have_arrived = await self._connection.is_everloop()
        is_passing = isinstance(problem, UnreachableError | BusyError | ServerError)
        return is_passing and (self._has_received or self._may_have_arrived)

    async def _connected(self) -> AsyncGenerator[Event]:
        """Yield the new events until the connection or the turn ends."""
        is_turn, held = self._is_sending, list[pb.StreamResponse]()
        self.task = replace(self.task, is_everloop=await self._connection.is_everloop())
        self._is_polling |= self._request is None and not await self._connection.streams()
        async with aclosing(self._source()) as source:
            async for response, event_id in source:
                self._has_received = True
                self._backoff.restore()
                held.append(response)
                if self._after and not event_id:
                    continue  # the next one has the id of both: cut in between, both come again
                self._after = event_id
                for each in held:
                    missed = await self._missed(each.task) if each.HasField("task") else []
                    before, self.task = self.task, fold(self.task, each)
                    await self._received()
                    for event in [*missed, *changes(before, each, self.task, is_partial=self._is_partial)]:
                        yield self._noted(event, event_id)
                held.clear()
                if self._is_over():
                    return
        # The stream of a message ends with its turn.
        self._turn_has_ended = is_turn and self.task.state.is_waiting

    async def _missed(self, snapshot: pb.Task) -> list[Event]:
        """Return the calls that ended before a snapshot, and are not in it, as those in streams."""
        is_new = state_of(snapshot.status.state) is TaskState.SUBMITTED
        if is_new or steps_of(plain_struct(snapshot.metadata)) is not None:
            return []
        self._is_whole = False
        if self._is_polling or not self.task.is_everloop:
            return []
        try:
            task = await self._connection.get_task(snapshot.id, HISTORY)
        except ClientError:
            return []  # the result is read at the end
        before, metadata = self.task, plain_struct(task.metadata)
        self.task = replace(add_steps(before, metadata), id=task.id)
        self._is_whole = not self._is_partial and steps_of(metadata) is not None
        return list(ended_calls(before, self.task))

    def _source(self) -> Responses:
        if self._is_polling:
            return self._polled()
        if self._request is not None and self._is_sending:
            return self._connection.send(self._request)
        self._has_subscribed = True
        return self._connection.subscribe(self.task.id, self._after)

    async def _polled(self) -> Responses:
        """Poll the task, with growing delays."""
        delay = _FIRST_DELAY
        while True:
            task = await self._connection.get_task(self.task.id, HISTORY)
            yield pb.StreamResponse(task=task), self._after
            await asyncio.sleep(delay)
            delay = min(_LONGEST_DELAY, delay * 1.5)

    async def _result(self) -> Result:
        """Return the task, completed by a read of missing parts."""
        result = self.result()
        if self._is_whole or not (result.id and self.task.is_everloop):
            return result
        try:
            task = await self._connection.get_task(result.id, HISTORY)
        except ClientError:
            return result  # better than an error: the task has ended well
        read = result_of(task, is_everloop=True)
        if read.state is not result.state:  # it has changed since
            return replace(result, tool_calls=read.tool_calls)
        return replace(read, events=result.events)
