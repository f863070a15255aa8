"""Events of tasks from the beginning, from Temporal's history: across continued runs and resets.

Nothing is stored here. Of a history only a page of events and the open calls are in memory.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from a2a.utils.errors import InvalidParamsError
from pydantic import JsonValue
from temporalio.client import Client

from everloop.gateway.errors import (
    TaskUnknownError,
    translate_blob_errors,
    translate_not_found,
    translate_temporal_errors,
)
from everloop.gateway.tasks.history_items import Item
from everloop.gateway.tasks.history_reader import HistoryReader
from everloop.gateway.tasks.workflow_runs import history_of
from everloop.runtime.protocol.a2a_tasks import TaskUrl, timestamp
from everloop.runtime.temporal.describe import describe
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import position_order
from everloop.workflows.contract import names
from everloop.workflows.contract.events import Narrated

_LAST = 9_999_999_999_999_999_999
"""Greater than any sequence number of stream entries within one millisecond."""

_EPOCH = datetime.fromtimestamp(0, UTC)

MAX_RUNS = 1000
"""Maximum runs of a task that continues as new: the newest ones."""

MAX_PAGE_BYTES = 4_000_000
"""Approximate maximum bytes of a page of events, as JSON. A single event may be larger."""

_ID = re.compile(
    r"([0-9a-f]{8})-(\d{1,9})-(\d{1,9})-(\d{1,9})-(\d{1,9})-(\d{1,15})(?:-(\d{1,19}))?", re.ASCII
)


@dataclass(frozen=True)
class EventPosition:
    """Position of an event of a task, which is its id.

    Item `index` of the history event `number` of a run, which is named by the beginning of its id.
    `version`, of the last status before it, and `iteration` are the state that a reader needs. `at`:
    the milliseconds at which it was written; of a narration after it, its position in the stream.
    """

    run: str = ""
    number: int = 0
    index: int = 0
    version: int = 0
    iteration: int = 0
    at: str = "0"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an id; an empty one is the beginning.

        Raises:
            InvalidParamsError: it is malformed.
        """
        if not text:
            return cls()
        if not (found := _ID.fullmatch(text)):
            raise InvalidParamsError(
                "after (or pageToken) is no id of an event; send one that this address has answered, or none"
            )
        run, number, index, version, iteration, at, sequence = found.groups()
        place = f"{at}-{sequence}" if sequence else at
        return cls(run, int(number), int(index), int(version), int(iteration), place)

    def __str__(self) -> str:
        return f"{self.run}-{self.number}-{self.index}-{self.version}-{self.iteration}-{self.at}"

    @property
    def stream_position(self) -> str:
        """Position in the stream after which its narrations follow."""
        return self.at if "-" in self.at else f"{self.at}-{_LAST}"


@dataclass(frozen=True)
class TaskHistoryEvent:
    """Event of a task, with its position."""

    place: EventPosition
    item: Item

    @property
    def written_at(self) -> int:
        return position_order(self.place.at)[0]

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "id": str(self.place),
            "at": timestamp(self.item.at),
            "type": self.item.type,
            "iteration": self.place.iteration,
            "data": self.item.data,
        }


class Histories:
    """Reads the events of tasks. Callers must check access first."""

    def __init__(self, client: Client, views: TaskViews) -> None:
        self._client = client
        self._views = views

    async def page(
        self, task: TaskUrl, after: EventPosition, size: int
    ) -> tuple[Sequence[TaskHistoryEvent], bool]:
        """Return up to `size` events after a position, with the narrations between, and whether more follow.

        Raises:
            TaskUnknownError: Temporal no longer has the history of the task.
            TemporalUnavailableError, PayloadLostError, PayloadsUnavailableError: it cannot be read now.
            InvalidParamsError: the run of the position was deleted or reset.
        """
        events, room, has_more = list[TaskHistoryEvent](), MAX_PAGE_BYTES, False
        async with aclosing(self.events(task, after)) as past:
            async for event in past:
                room -= len(str(event.item.data))
                if len(events) == size or (events and room < 0):
                    has_more = True
                    break
                events.append(event)
        return await self._narrated(task.task_id, after, events, is_end=not has_more), has_more

    async def events(
        self, task: TaskUrl, after: EventPosition | None = None
    ) -> AsyncGenerator[TaskHistoryEvent]:
        """Yield the events after a position, without narrations.

        Raises:
            the errors of `page`.
        """
        after, converter = after or EventPosition(), self._client.data_converter
        reader = HistoryReader(converter, task, version=after.version, iteration=after.iteration)
        for run_id in _from(after, await self._runs(task.task_id)):
            run, first = run_id[:8], (after.number, after.index)
            is_behind = run == after.run
            async for event in history_of(self._client, task.task_id, run_id):
                version, at = reader.version, str(event.event_time.ToMilliseconds())
                async with translate_blob_errors():
                    items = await reader.read(event, told=is_behind and event.event_id < after.number)
                for index, item in enumerate(items):
                    if not is_behind or (event.event_id, index) > first:
                        yield TaskHistoryEvent(
                            EventPosition(run, event.event_id, index, version, reader.iteration, at), item
                        )

    async def _runs(self, task_id: str) -> list[str]:
        """Return the newest run and those that it continues, the first one first.

        Runs that Temporal has deleted are left out: each is retained for a while after its own end.
        """
        async with translate_temporal_errors(), translate_not_found(task_id):
            newest = await describe(self._client, task_id)
        if newest.workflow_type != names.WORKFLOW_TYPE:
            raise TaskUnknownError(task_id)
        run_id = newest.run_id
        runs = list[str]()
        while run_id and len(runs) < MAX_RUNS:
            try:
                async with aclosing(history_of(self._client, task_id, run_id, page_size=1)) as events:
                    first = await anext(events)
            except TaskUnknownError:
                break
            runs.append(run_id)
            run_id = first.workflow_execution_started_event_attributes.continued_execution_run_id
        if not runs:
            raise TaskUnknownError(task_id)
        return runs[::-1]

    async def _narrated(
        self, task_id: str, after: EventPosition, events: Sequence[TaskHistoryEvent], *, is_end: bool
    ) -> list[TaskHistoryEvent]:
        """Insert the narrations, as long as the stream of the task has them."""
        last = None if is_end else events[-1].written_at
        narrations = [each async for each in self._narrations(task_id, after.stream_position, last)]
        merged, before = list[TaskHistoryEvent](), TaskHistoryEvent(after, Item("", _EPOCH, {}))
        for event in events:
            while narrations and position_order(narrations[0][0])[0] <= event.written_at:
                merged.append(_narration(before, *narrations.pop(0)))
            before = event
            merged.append(event)
        return [*merged, *(_narration(before, *each) for each in narrations)]

    async def _narrations(
        self, task_id: str, position: str, last: int | None
    ) -> AsyncGenerator[tuple[str, str]]:
        """Yield position and text of each narration after a position, up to that millisecond."""
        while page := await self._views.read({task_id: position}, wait=0):
            for streamed in page:
                position = streamed.position
                if last is not None and position_order(position)[0] > last:
                    return
                if isinstance(streamed.event, Narrated):
                    yield position, streamed.event.text


def _from(after: EventPosition, runs: list[str]) -> list[str]:
    """Return the runs from that of a position on."""
    places = [run_id[:8] for run_id in runs]
    if after.run and after.run not in places:
        raise InvalidParamsError(
            "the run of this event is no longer there, or an operator has reset the task since; "
            "begin anew, without after"
        )
    return runs[places.index(after.run) :] if after.run else runs


def _narration(before: TaskHistoryEvent, position: str, text: str) -> TaskHistoryEvent:
    """Return a narration as an event. Its position is that of the event before, plus one in the stream."""
    at = datetime.fromtimestamp(position_order(position)[0] / 1000, UTC)
    place = replace(before.place, at=position)
    return TaskHistoryEvent(place, Item("narration", at, {"text": text}))
