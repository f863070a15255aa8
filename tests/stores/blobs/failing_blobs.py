"""A blob store that fails, or ends the process, at a chosen call."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from everloop.runtime.blobs import BlobLinks, BlobPage, Blobs, BlobsUnavailableError

Moment = Literal["before", "after"]


class DiedError(BaseException):
    """The end of the process: only the interpreter may still run."""


@dataclass
class FailingBlobs(Blobs):
    """A store whose put or delete number `fatal` (from 1) raises `error`.

    `moment` is before or after the effect. `pause` is awaited before each of these calls, and `before_get`
    before each get.
    """

    inner: Blobs
    fatal: int = 0
    moment: Moment = "before"
    error: BaseException = field(default_factory=DiedError)
    pause: Callable[[], Awaitable[object]] | None = None
    before_get: Callable[[], Awaitable[object]] | None = None
    calls: int = 0

    def __post_init__(self) -> None:
        self.location = self.inner.location

    @property
    def links(self) -> BlobLinks | None:
        return self.inner.links

    async def put(self, key: str, content: bytes) -> None:
        await self._call(lambda: self.inner.put(key, content))

    async def get(self, key: str) -> bytes:
        if self.before_get:
            await self.before_get()
        return await self.inner.get(key)

    async def delete(self, key: str) -> None:
        await self._call(lambda: self.inner.delete(key))

    async def list_old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        return await self.inner.list_old(folder, age, cursor)

    async def remove(self, key: str, age: timedelta) -> bool:
        return await self.inner.remove(key, age)

    async def _call(self, work: Callable[[], Awaitable[None]]) -> None:
        self.calls += 1
        is_fatal = self.calls == self.fatal
        if self.pause:
            await self.pause()
        if is_fatal and self.moment == "before":
            raise self.error
        await work()
        if is_fatal:
            raise self.error


def away() -> BlobsUnavailableError:
    """Return the error of a store with a short outage."""
    return BlobsUnavailableError("the blob store", "away")
