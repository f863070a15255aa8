"""A Redis that is set back to what it was some time ago, as after a failover to a replica that lagged."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self, cast

from redis.asyncio import Redis
from redis.client import NEVER_DECODE

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis

_Key = tuple[str, bytes, int]
"""A name, what it holds, and milliseconds that it lives (0: for ever)."""


@dataclass(frozen=True)
class RedisCopy:
    """All that one server held, or what of it had names of a pattern."""

    url: str
    pattern: str
    keys: tuple[_Key, ...]

    @classmethod
    async def take(cls, url: str, pattern: str = "*") -> Self:
        """Copy what is there now."""
        async with connect_redis(url, NO_CIPHER) as redis:
            names = cast("list[str]", await redis.keys(pattern))
            return cls(url, pattern, tuple([key for name in names if (key := await _dumped(redis, name))]))

    async def bring_back(self) -> None:
        """Put it back in one step; what has come since is gone, but for who reads."""
        async with connect_redis(self.url, NO_CIPHER) as redis:
            names = cast("list[str]", await redis.keys(self.pattern))
            gone = [name for name in names if ":reader:" not in name]
            async with redis.pipeline(transaction=True) as pipeline:
                if gone:
                    pipeline.delete(*gone)
                for name, content, life in self.keys:
                    pipeline.restore(name, life, content, replace=True)
                await pipeline.execute()


async def _dumped(redis: Redis, name: str) -> _Key | None:
    dump = cast("Callable[..., Awaitable[bytes | None]]", redis.execute_command)
    content = await dump("DUMP", name, **{NEVER_DECODE: True})
    return None if content is None or ":reader:" in name else (name, content, max(0, await redis.pttl(name)))
