"""The transcript cache: the messages that a model call reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

from pydantic import TypeAdapter
from redis.asyncio import Redis

from everloop.runtime.encryption.cipher import Cipher, EncryptionError
from everloop.runtime.redis import cipher_of
from everloop.stores.keys import records_key, registry_key, transcript_key
from everloop.stores.lifetimes import GRACE
from everloop.stores.scripts import Lease, Step, lease_words, run_scripts
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TranscriptMessage,
    measure,
)

Reply = TypeVar("Reply", AssistantMessage, SummaryMessage)
"""The model's answer to a transcript: the next message, or a summary of older ones."""


@dataclass(frozen=True)
class OpenedTranscript:
    """The cached messages for one model call.

    `messages` is None unless all requested positions are cached. `reply` is the message at that length: a
    reply or summary of an earlier attempt at the same call.
    """

    messages: tuple[TranscriptMessage, ...] | None
    reply: AssistantMessage | SummaryMessage | None


def fitting(sizes: Iterable[tuple[int, int]], max_bytes: int) -> list[int]:
    """Return the positions that fit, in order. `sizes` are positions and their sizes, the newest first."""
    room, chosen = max_bytes, list[int]()
    for position, size in sizes:
        if size <= room:
            chosen.append(position)
            room -= size
    return sorted(chosen)


# The transcript cache in Redis: a hash of position → message for each run.

_MESSAGE: TypeAdapter[TranscriptMessage] = TypeAdapter(TranscriptMessage)


class Transcripts:
    """Position → message, for each run of each task. Losing it costs one re-send, never a result.

    A call is usually one round trip.

    `ttl` counts from the last write, or from the end of a task that was open then (default `GRACE`).

    An unreadable entry, for example of a newer version or with another key, counts as missing: it is written
    again.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = GRACE) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._seconds = int(ttl.total_seconds())

    async def open(  # noqa: PLR0913 -- all that one round trip does, each by its name
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
        cached: int = 0,
    ) -> OpenedTranscript:
        """Write `new` as the last of `length` positions, then read all of them and the one after.

        Positions before `new` that are missing in this run are first copied from `previous_run`, which it
        continues. The first `cached` messages are not read.
        """
        step = self.opening(task_id, run_id, length, new, previous_run=previous_run, cached=cached)
        if new or previous_run:
            return (await run_scripts(self._redis, step))[0]
        positions = list(map(str, range(cached, length + 1)))
        return step.read(await self._redis.hmget(transcript_key(task_id, run_id), positions))

    def opening(  # noqa: PLR0913 -- as of `open`, each by its name
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
        cached: int = 0,
        lease: Lease | None = None,
        claims: str = "",
    ) -> Step[OpenedTranscript]:
        """Return the step of `open`. `claims` are as in `lease_words`."""
        start, entries = length - len(new), self._entries(task_id)
        keys = [transcript_key(task_id, run_id), transcript_key(task_id, previous_run or run_id)]
        keys += [records_key(task_id), registry_key(task_id)]
        words = [
            *lease_words(lease, claims),
            self._seconds,
            start,
            cached,
            length,
            *entries.encode(start, new),
        ]

        def read(stored: Sequence[str | None]) -> OpenedTranscript:
            return entries.decode(stored, new[max(cached - start, 0) :])

        return Step(task_id, "transcript/open.lua", keys, words, read)

    async def newest(
        self, task_id: str, run_id: str, max_bytes: int
    ) -> Mapping[int, TranscriptMessage] | None:
        """Return the newest messages within so many bytes in total, by position, oldest first.

        Larger and unreadable messages are left out. None if the beginning is missing, so the cache was lost.
        """
        key, entries = transcript_key(task_id, run_id), self._entries(task_id)
        positions = sorted(map(int, await self._redis.hkeys(key)), reverse=True)
        if not positions or positions[-1] != 0:
            return None
        async with self._redis.pipeline(transaction=False) as pipeline:
            for position in positions:
                pipeline.hstrlen(key, str(position))
            sizes = cast("list[int]", await pipeline.execute())
        chosen = fitting(zip(positions, sizes, strict=True), max_bytes)
        fields = [str(position) for position in chosen]
        stored = cast("list[str | None]", await self._redis.hmget(key, fields)) if fields else []
        newest, room = list[tuple[int, TranscriptMessage]](), max_bytes
        for position, entry in reversed([*zip(chosen, stored, strict=True)]):
            message = entries.parse(entry) if entry else None
            if message and (size := measure(message)) <= room:  # a compressed entry is larger now
                newest.append((position, message))
                room -= size
        return dict(reversed(newest))

    async def put(
        self,
        task_id: str,
        run_id: str,
        start: int,
        messages: Sequence[TranscriptMessage],
        lease: Lease | None = None,
    ) -> None:
        """Write messages from position `start` on, over existing ones.

        From position 0 on, this is the complete transcript, sent again: all other entries are deleted.

        Raises:
            OvertakenError: A later attempt has claimed the call that `lease` names.
        """
        keys = [transcript_key(task_id, run_id), records_key(task_id), registry_key(task_id)]
        entries = self._entries(task_id).encode(start, messages)
        words = [*lease_words(lease), self._seconds, int(start == 0), *entries]
        await run_scripts(self._redis, Step(task_id, "transcript/put.lua", keys, words, bool))

    def adding(  # noqa: PLR0913, PLR0917 -- the message, its place and its writer
        self,
        task_id: str,
        run_id: str,
        position: int,
        message: TranscriptMessage,
        lease: Lease | None = None,
        claims: str = "",
    ) -> Step[TranscriptMessage | None]:
        """Return the step that writes a message unless the position is taken, and reads the entry after that.

        None if the entry is unreadable. `claims` is as in `opening`.
        """
        keys = [transcript_key(task_id, run_id), records_key(task_id), registry_key(task_id)]
        entries = self._entries(task_id)
        words = [*lease_words(lease, claims), self._seconds, *entries.encode(position, [message])]

        def read(standing: str | int) -> TranscriptMessage | None:
            return entries.parse(standing) if isinstance(standing, str) else message

        return Step(task_id, "transcript/add.lua", keys, words, read)

    async def add(
        self,
        task_id: str,
        run_id: str,
        position: int,
        message: TranscriptMessage,
        lease: Lease | None = None,
    ) -> TranscriptMessage | None:
        """Run the step of `adding`."""
        return (await run_scripts(self._redis, self.adding(task_id, run_id, position, message, lease)))[0]

    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: Reply, lease: Lease | None = None
    ) -> Reply:
        """Write the reply unless the position has one of its kind; return the one in the cache.

        Raises:
            OvertakenError: As for `put`.
        """
        standing = await self.add(task_id, run_id, position, reply, lease)
        if isinstance(standing, type(reply)):
            return standing
        await self.put(task_id, run_id, position, [reply], lease)
        return reply

    def _entries(self, task_id: str) -> "_Entries":
        return _Entries(self._cipher, f"transcript {task_id}")


@dataclass(frozen=True)
class _Entries:
    """Encodes the messages of one task. They are not bound to a run: the next one copies them."""

    cipher: Cipher
    purpose: str

    def encode(self, start: int, messages: Sequence[TranscriptMessage]) -> list[str | bytes | int]:
        """Return positions and entries in turn."""
        texts = (message.model_dump_json(exclude_defaults=True) for message in messages)
        packed = (self.cipher.pack(text, self.purpose) for text in texts)
        return [word for position, entry in enumerate(packed, start) for word in (position, entry)]

    def decode(self, stored: Sequence[str | None], new: Sequence[TranscriptMessage]) -> OpenedTranscript:
        """Combine the entries that were read, of which the last is the reply, with the new messages."""
        *before, reply = (self.parse(entry) if entry else None for entry in stored)
        messages = (*(message for message in before if message), *new)
        return OpenedTranscript(
            messages=messages if len(messages) == len(before) + len(new) else None,
            reply=reply if isinstance(reply, AssistantMessage | SummaryMessage) else None,
        )

    def parse(self, entry: str) -> TranscriptMessage | None:
        try:
            return _MESSAGE.validate_json(self.cipher.unpack(entry, self.purpose))
        except (EncryptionError, ValueError):  # includes pydantic's
            return None
