"""A Redis that is set back to an earlier state, as after a failover to a replica that lagged."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Self, cast

from redis.client import NEVER_DECODE

from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis

_DUMP = """
local dumped = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
  dumped[#dumped + 1] = {name, redis.call('DUMP', name), math.max(0, redis.call('PTTL', name))}
end
return dumped
"""


@dataclass(frozen=True)
class RedisCopy:
    """The keys of a server that match a pattern at a moment, without those with the prefixes `spared`."""

    url: str
    pattern: str
    spared: tuple[str, ...]
    keys: tuple[tuple[str, bytes, int], ...]
    """Name, value, and milliseconds to live (0: for ever)."""

    @classmethod
    async def take(cls, url: str, pattern: str = "*", spared: Sequence[str] = ()) -> Self:
        """Copy the present keys."""
        spared = ("everloop:reader:", *spared)
        async with connect_redis(url, NO_CIPHER) as redis:
            run = cast("Callable[..., Awaitable[list[tuple[bytes, bytes, int]]]]", redis.execute_command)
            dumped = await run("EVAL", _DUMP, 0, pattern, **{NEVER_DECODE: True})
        keys = ((name.decode(), content, life) for name, content, life in dumped)
        return cls(url, pattern, spared, tuple(key for key in keys if not key[0].startswith(spared)))

    async def bring_back(self) -> None:
        """Restore the copy in one step, and break all connections: later data is gone."""
        async with connect_redis(self.url, NO_CIPHER) as redis:
            names = cast("list[str]", await redis.keys(self.pattern))
            gone = [name for name in names if not name.startswith(self.spared)]
            async with redis.pipeline(transaction=True) as pipeline:
                if gone:
                    pipeline.delete(*gone)
                for name, content, life in self.keys:
                    pipeline.restore(name, life, content, replace=True)
                pipeline.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes")
                await pipeline.execute()
