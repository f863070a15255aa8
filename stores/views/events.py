"""Reads the event streams of many tasks through one connection."""

import uuid
from collections.abc import Mapping, Sequence
from typing import cast

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import LONGEST_BLOCK, cipher_of
from everloop.stores.keys import stream_key, wake_key
from everloop.stores.views.codec import unseal_event
from everloop.stores.views.interface import START, StreamedEvent
from everloop.workflows.contract.events import EVENT_ADAPTER

_WAKE_TTL = 600
"""Seconds that a wake entry lives: longer than a reader pauses between two reads."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)

_Entry = tuple[str, dict[str, str]]


class RedisEventReader:
    """The one reader of a process; one `read` at a time.

    A read holds one connection of the pool while it blocks. Events of a kind that this version does not
    know, or that cannot be decrypted, are skipped with a warning.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._wake_key = wake_key(uuid.uuid4().hex)
        self._woken_at = START
        self._skipped: dict[str, tuple[str, str]] = {}

    async def read(self, positions: Mapping[str, str], *, wait: float, limit: int) -> list[StreamedEvent]:
        """Return what `TaskViews.read` promises; it may return early, with nothing."""
        self._skipped = {task_id: skip for task_id, skip in self._skipped.items() if task_id in positions}
        task_ids = {stream_key(task_id): task_id for task_id in positions}
        streams = {key: self._first_unread(task_id, positions[task_id]) for key, task_id in task_ids.items()}
        events: list[StreamedEvent] = []
        for key, entries in await self._xread(streams, wait, limit):
            if key == self._wake_key:
                self._woken_at = entries[-1][0]
            else:
                task_id = task_ids[key]
                events += self._parse_all(task_id, positions[task_id], entries)
        return events

    async def wake(self) -> None:
        """End the read that waits now, or else the next one."""
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.xadd(self._wake_key, {"wake": "1"}, maxlen=1, approximate=False)
            pipeline.expire(self._wake_key, _WAKE_TTL)
            await pipeline.execute()

    async def _xread(
        self, streams: Mapping[str, str], wait: float, limit: int
    ) -> Sequence[tuple[str, Sequence[_Entry]]]:
        # BLOCK 0 would wait for ever, so a read that must not wait goes without BLOCK.
        block = max(1, round(min(wait, LONGEST_BLOCK) * 1000)) if wait > 0 else None
        reply = await self._redis.xread({**streams, self._wake_key: self._woken_at}, count=limit, block=block)
        return cast("Sequence[tuple[str, Sequence[_Entry]]]", reply)

    def _first_unread(self, task_id: str, position: str) -> str:
        """Return the position to read on from: behind what was skipped right after the caller's position.

        The caller never gets skipped events; without this the read would find them again at once.
        """
        asked, skipped_to = self._skipped.get(task_id, ("", ""))
        return skipped_to if asked == position else position

    def _parse_all(self, task_id: str, asked: str, entries: Sequence[_Entry]) -> list[StreamedEvent]:
        events = [event for entry in entries if (event := self._parse(task_id, entry))]
        read_to, last_position = events[-1].position if events else asked, entries[-1][0]
        if read_to != last_position:
            self._skipped[task_id] = read_to, last_position
        return events

    def _parse(self, task_id: str, entry: _Entry) -> StreamedEvent | None:
        position, fields = entry
        try:
            json = unseal_event(fields.get("event", ""), task_id, self._cipher)
            return StreamedEvent(task_id, position, EVENT_ADAPTER.validate_json(json))
        except EncryptionError as error:  # of one task; the others are to go on
            _log.error("event skipped", task_id=task_id, position=position, problem=str(error))
            return None
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]["msg"]
            _log.warning("unknown event skipped", task_id=task_id, position=position, problem=problem)
            return None
