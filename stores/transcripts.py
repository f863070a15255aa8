"""The transcript cache: the messages that a model call reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis

from everloop.runtime.encryption.cipher import Cipher, EncryptionError
from everloop.runtime.redis import cipher_of
from everloop.stores.keys import attempts_key, transcript_key
from everloop.stores.retention import GRACE
from everloop.stores.steps import Lease, OvertakenError, Step, Steps, late_key, order_of
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    ToolMessage,
    TranscriptMessage,
)

Reply = TypeVar("Reply", AssistantMessage, SummaryMessage)
"""What a model makes of a transcript: the next message, or one that stands for older ones."""


@dataclass(frozen=True)
class OpenedTranscript:
    """What the cache holds for one model call.

    `messages` is None unless every position that was asked for is there. `reply` is the message at
    that length: a reply or summary that an earlier attempt of the same call left behind. `attempt` is the
    number of this attempt.
    """

    messages: tuple[TranscriptMessage, ...] | None
    reply: AssistantMessage | SummaryMessage | None
    attempt: int = 1


@dataclass(frozen=True)
class Attempt:
    """One attempt at a call. `call` names it within its run; Temporal has counted `count` attempts.

    Temporal begins again when an operator resets an activity; `OpenedTranscript.attempt` is greater than that
    of any attempt before, and the same however often one attempt asks. `lease` is what it holds.
    """

    call: str
    count: int
    lease: Lease


def fitting(sizes: Iterable[tuple[int, int]], max_bytes: int) -> list[int]:
    """Return which positions fit, in order; `sizes` are positions and their sizes, the newest first."""
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

    Each call is one round trip.

    `ttl` counts from the last call, or from the end of a task that was open then (default `GRACE`).

    An entry that cannot be read, of a newer version or another key perhaps, counts as missing: it is written
    again.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = GRACE) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._seconds = int(ttl.total_seconds())
        self._steps = Steps(redis)

    async def open(  # noqa: PLR0913 -- all that one round trip does, each by its name
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
        attempt: Attempt | None = None,
        known: int = 0,
    ) -> OpenedTranscript:
        """Write `new` as the last of `length` positions, then read all of them and the one after.

        What this run lacks before `new` is first copied from `previous_run`, which it continues. The first
        `known` messages are not read.

        Raises:
            OvertakenError: the attempt was overtaken.
        """
        (opened,) = await self._steps.run(
            self.opening(
                task_id, run_id, length, new, previous_run=previous_run, attempt=attempt, known=known
            )
        )
        if opened is None:
            raise OvertakenError
        return opened

    def opening(  # noqa: PLR0913 -- as of `open`
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
        attempt: Attempt | None = None,
        known: int = 0,
    ) -> Step[OpenedTranscript]:
        """Return the step that opens a transcript; an attempt that was overtaken ends the trip."""
        key, start, entries = transcript_key(task_id, run_id), length - len(new), self._entries(task_id)
        lease = attempt.lease if attempt else None
        keys = [
            key,
            attempts_key(task_id, run_id),
            transcript_key(task_id, previous_run or run_id),
            late_key(task_id, lease),
        ]
        counted = (
            [attempt.call, attempt.count, attempt.lease.token, attempt.lease.order] if attempt else [""] * 4
        )
        arguments = [self._seconds, start, *counted, known, length, *entries.encode(start, new)]

        def read(reply: tuple[int, Sequence[str]]) -> OpenedTranscript:
            count, words = reply
            fields = dict(zip(words[::2], words[1::2], strict=True))
            return replace(entries.decode(fields, known, length), attempt=count)

        return Step(task_id, "transcript.open", keys, arguments, read)

    async def newest(
        self, task_id: str, run_id: str, max_bytes: int
    ) -> Mapping[int, TranscriptMessage] | None:
        """Return the newest messages that together have so many bytes at most, by position, oldest first.

        A larger message is left out, and so is one that cannot be read. None: the beginning is not there, so
        that the cache was lost.
        """
        key, entries = transcript_key(task_id, run_id), self._entries(task_id)
        positions = sorted(map(int, await self._redis.hkeys(key)), reverse=True)
        if not positions or positions[-1] != 0:
            return None
        async with self._redis.pipeline(transaction=False) as pipeline:
            for position in positions:
                pipeline.hstrlen(key, str(position))
            sizes = cast("list[int]", await pipeline.execute())
        wanted = fitting(zip(positions, sizes, strict=True), max_bytes)
        fields = [str(position) for position in wanted]
        kept = cast("list[str | None]", await self._redis.hmget(key, fields)) if fields else []
        read = {at: entries.parse(entry) for at, entry in zip(wanted, kept, strict=True) if entry}
        return {position: message for position, message in read.items() if message}

    async def put(
        self,
        task_id: str,
        run_id: str,
        start: int,
        messages: Sequence[TranscriptMessage],
        lease: Lease | None = None,
    ) -> None:
        """Write messages from position `start` on, over whatever stands there.

        From position 0 on, this is the whole transcript that is sent again: nothing else stays, and attempts
        count anew.

        Raises:
            OvertakenError: a later attempt has claimed the call that `lease` names.
        """
        keys = [transcript_key(task_id, run_id), attempts_key(task_id, run_id), late_key(task_id, lease)]
        how = "" if start else "anew"
        words = self._entries(task_id).encode(start, messages)
        step = Step(task_id, "transcript.put", keys, [self._seconds, order_of(lease), how, *words], bool)
        if await self._steps.run(step) == (None,):
            raise OvertakenError

    async def put_result(
        self, task_id: str, run_id: str, position: int, result: ToolMessage, lease: Lease | None = None
    ) -> None:
        """Write the result of a tool call unless something stands there.

        Raises:
            OvertakenError: as for `put`.
        """
        if await self._steps.run(self.adding(task_id, run_id, position, result, lease)) == (None,):
            raise OvertakenError

    def adding(
        self,
        task_id: str,
        run_id: str,
        position: int,
        message: TranscriptMessage,
        lease: Lease | None = None,
    ) -> Step[str]:
        """Return the step that writes a message unless something stands there, and reads what does."""
        keys = [transcript_key(task_id, run_id), late_key(task_id, lease)]
        entry = self._entries(task_id).encode(position, [message])
        return Step(task_id, "transcript.add", keys, [self._seconds, order_of(lease), *entry], str)

    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: Reply, lease: Lease | None = None
    ) -> Reply:
        """Write the reply unless one of its kind stands there; return the one that stands there now.

        Raises:
            OvertakenError: as for `put`.
        """
        (entry,) = await self._steps.run(self.adding(task_id, run_id, position, reply, lease))
        if entry is None:
            raise OvertakenError
        standing = self._entries(task_id).parse(entry)
        if isinstance(standing, type(reply)):
            return standing
        await self.put(task_id, run_id, position, [reply], lease)
        return reply

    def _entries(self, task_id: str) -> "_Entries":
        return _Entries(self._cipher, f"transcript {task_id}")


@dataclass(frozen=True)
class _Entries:
    """How the messages of one task are kept. Not for one run: the next one copies them."""

    cipher: Cipher
    purpose: str

    def encode(self, start: int, messages: Sequence[TranscriptMessage]) -> list[str | int]:
        """Return positions and entries in turn."""
        sealed = (self.cipher.seal_text(message.model_dump_json(), self.purpose) for message in messages)
        return [word for position, entry in enumerate(sealed, start) for word in (position, entry)]

    def decode(self, fields: Mapping[str, str], start: int, length: int) -> OpenedTranscript:
        kept = [fields[str(position)] for position in range(start, length) if str(position) in fields]
        messages = tuple(message for message in map(self.parse, kept) if message)
        reply = self.parse(fields[str(length)]) if str(length) in fields else None
        return OpenedTranscript(
            messages=messages if len(messages) == length - start else None,
            reply=reply if isinstance(reply, AssistantMessage | SummaryMessage) else None,
        )

    def parse(self, entry: str) -> TranscriptMessage | None:
        try:
            return _MESSAGE.validate_json(self.cipher.unseal_text(entry, self.purpose))
        except (EncryptionError, ValidationError):
            return None
