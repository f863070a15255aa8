"""Reads artifacts from Redis and their content from there and from blobs, while others change them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import cast

from redis.asyncio import Redis
from redis.client import NEVER_DECODE

from everloop.runtime.blobs import BlobMissingError
from everloop.runtime.redis import cipher_of
from everloop.stores.artifacts.cleanup import ArtifactBlobs
from everloop.stores.artifacts.errors import ArtifactMissingError, ArtifactReplacedError
from everloop.stores.artifacts.record import (
    ArtifactAddress,
    ArtifactRecord,
    PartContent,
    unseal_record,
    unseal_tail,
)
from everloop.stores.artifacts.rules import part_of

_RECORDS_PER_COMMAND = 100


class ArtifactReader:
    """One whose time to live has ended by `clock` is not there."""

    def __init__(self, redis: Redis, blobs: ArtifactBlobs, clock: Callable[[], datetime]) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._blobs = blobs
        self._clock = clock

    async def record(self, address: ArtifactAddress) -> ArtifactRecord:
        """Return the record of an artifact.

        Raises:
            ArtifactMissingError: there is none.
        """
        found = await self.records([address.record_key])
        if not found:
            raise ArtifactMissingError(address.artifact_id)
        return found[0]

    async def records(self, record_keys: Sequence[str]) -> list[ArtifactRecord]:
        """Return those of these records that there are."""
        found: list[ArtifactRecord] = []
        for first in range(0, len(record_keys), _RECORDS_PER_COMMAND):
            keys = record_keys[first : first + _RECORDS_PER_COMMAND]
            texts = cast("list[str | None]", await self._redis.mget(keys))
            records = (self._parse(key, text) for key, text in zip(keys, texts, strict=True))
            found += [record for record in records if record]
        return found

    async def tail(self, address: ArtifactAddress, index: int) -> bytes | None:
        """Return the tail of a part, None if there is none."""
        _, tail = await self._record_and_tail(address, index)
        return tail

    async def read(
        self, address: ArtifactAddress, index: int, start: int, end: int | None
    ) -> AsyncIterator[bytes]:
        """Yield what `Artifacts.read_part` promises.

        While the content only grows, blobs may be put together anew and tails may move into them: a reader
        that finds something gone looks again, and goes on.
        """
        record, position = await self.record(address), start
        last = _last(record, index, end)
        while position < last:
            content = record.contents[index]
            piece = await self._piece(address, index, content, position)
            if piece is None:
                record = await self._look_again(address, index, content, position)
                if record.contents[index].generation != content.generation:
                    if position > start:
                        raise ArtifactReplacedError(address.artifact_id, index)
                    last = _last(record, index, end)
                continue
            yield piece[: last - position]
            position += len(piece)

    async def _piece(
        self, address: ArtifactAddress, index: int, content: PartContent, position: int
    ) -> bytes | None:
        """Return content from a position on, or None if it is not where it was."""
        place = content.segment_at(position)
        if place is None:
            return await self._piece_of_tail(address, index, content, position)
        segment, first = place
        try:
            return (await self._blobs.get(address.blob_key(segment.name)))[position - first :]
        except BlobMissingError:
            return None

    async def _piece_of_tail(
        self, address: ArtifactAddress, index: int, content: PartContent, position: int
    ) -> bytes | None:
        record, tail = await self._record_and_tail(address, index)
        if record is None or index >= len(record.contents):
            return None
        now = record.contents[index]
        if (now.generation, now.segments) != (content.generation, content.segments):
            return None
        return now.check_tail(tail, address.tail_key(index))[position - now.flushed :]

    async def _look_again(
        self, address: ArtifactAddress, index: int, content: PartContent, position: int
    ) -> ArtifactRecord:
        """Return the record of now.

        Raises:
            BlobMissingError: by it, too, the content is in a blob that is not there.
        """
        record = await self.record(address)
        part_of(record.artifact, index)
        now, place = record.contents[index], content.segment_at(position)
        if place and now.generation == content.generation and now.segment_at(position) == place:
            raise BlobMissingError(address.blob_key(place[0].name))
        return record

    async def _record_and_tail(
        self, address: ArtifactAddress, index: int
    ) -> tuple[ArtifactRecord | None, bytes | None]:
        """Return both as they were at one moment."""
        # The client is set up to decode texts, and a tail is none.
        execute = cast("Callable[..., Awaitable[list[bytes | None]]]", self._redis.execute_command)
        keys = address.record_key, address.tail_key(index)
        text, tail = await execute("MGET", *keys, **{NEVER_DECODE: True})
        record = self._parse(address.record_key, text.decode() if text else None)
        return record, None if tail is None else unseal_tail(tail, address.tail_key(index), self._cipher)

    def _parse(self, key: str, text: str | None) -> ArtifactRecord | None:
        record = unseal_record(text, key, self._cipher) if text else None
        return record if record and record.expires_at > self._clock() else None


def _last(record: ArtifactRecord, index: int, end: int | None) -> int:
    size = part_of(record.artifact, index).size
    return size if end is None else min(end, size)
