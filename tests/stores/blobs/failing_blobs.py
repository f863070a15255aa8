"""A blob store that fails, or takes the process along, at a chosen call."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from everloop.runtime.blobs import BlobLinks, BlobPage, Blobs, BlobsUnavailableError

Moment = Literal["before", "after"]


class DiedError(BaseException):
    """The process ends here: nothing of it may run any more but what the interpreter does."""


@dataclass
class FailingBlobs(Blobs):
    """Another store, whose put and delete fail: call number `fatal` of them (from 1) ends in `error`.

    `moment` is before or after it is done. `pause` is awaited before each of these calls, and
    `before_get` before each get.
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
    """The error of a store that is away for a moment."""
    return BlobsUnavailableError("the blob store", "away")
