"""Use of Redis and of the blob store by tasks."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis

from everloop.stores.lifetimes import RetentionSettings

OURS = {"info", "keys", "memory", "pttl", "hello", "client", "ping", "select", "config", "command"}
"""Commands that do not belong to a task."""

SCRIPTS = {"eval", "evalsha"}

KIND = re.compile(r"everloop:(?:task:\{[^}]*\}[^:]*:)?([a-z-]+)")
"""Kind of a key: the word behind the prefix, or behind the id of the task."""

DAY_MS = 86_400_000

UNLIMITED_DAYS = RetentionSettings().task_ttl_days
"""Days that an entry stays in keys without expiry: lists of tasks, whose entries go with the task's view."""


@dataclass(frozen=True)
class StoreUse:
    """Sums, or the increase per task.

    `commands` count those of scripts as well. `redis_ms` is processor time. `byte_days` are the bytes
    of each key times its remaining days.
    """

    commands: float
    scripts: float
    redis_ms: float
    keys: float
    redis_bytes: float
    blobs: float
    blob_bytes: float
    byte_days: float = 0
    kinds: Mapping[str, float] = field(default_factory=Counter[str])
    kinds_byte_days: Mapping[str, float] = field(default_factory=Counter[str])

    def since(self, before: "StoreUse", tasks: int) -> "StoreUse":
        """Return the increase per task since an earlier measurement."""
        by_kind = [each.name for each in fields(self) if each.name.startswith("kinds")]
        sums = [each.name for each in fields(self) if each.name not in by_kind]
        added = {name: (getattr(self, name) - getattr(before, name)) / tasks for name in sums}
        kinds: dict[str, Any] = {
            name: {
                kind: (size - getattr(before, name).get(kind, 0)) / tasks
                for kind, size in getattr(self, name).items()
            }
            for name in by_kind
        }
        return StoreUse(**added, **kinds)


@dataclass(frozen=True)
class Stores:
    """A Redis and a directory of blobs without other users."""

    redis: Redis
    blobs: Path

    async def use(self) -> StoreUse:
        """Return the use until now."""
        told = cast("dict[str, object]", await self.redis.info("commandstats", "cpu"))
        calls = {
            name.removeprefix("cmdstat_"): cast("Mapping[str, int]", of)["calls"]
            for name, of in told.items()
            if name.startswith("cmdstat_")
        }
        counted = {name: count for name, count in calls.items() if name.partition("|")[0] not in OURS}
        seconds = cast("float", told["used_cpu_user"]) + cast("float", told["used_cpu_sys"])
        keys = cast("list[bytes]", await self.redis.keys())
        kinds, kinds_byte_days = Counter[str](), Counter[str]()
        for key in keys:
            size, left = await self._size_and_days(key)
            found = KIND.match(key.decode())
            kind = found[1] if found else "other"
            kinds[kind] += size
            kinds_byte_days[kind] += round(size * left)
        files = [path for path in self.blobs.rglob("*") if path.is_file()]
        return StoreUse(
            commands=sum(counted.values()),
            scripts=sum(count for name, count in counted.items() if name in SCRIPTS),
            redis_ms=seconds * 1000,
            keys=len(keys),
            redis_bytes=kinds.total(),
            blobs=len(files),
            blob_bytes=sum(path.stat().st_size for path in files),
            byte_days=kinds_byte_days.total(),
            kinds=kinds,
            kinds_byte_days=kinds_byte_days,
        )

    async def _size_and_days(self, key: bytes) -> tuple[int, float]:
        async with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.memory_usage(key, samples=0)
            pipeline.pttl(key)
            size, left = cast("tuple[int | None, int]", tuple(await pipeline.execute()))
        return size or 0, left / DAY_MS if left >= 0 else UNLIMITED_DAYS
