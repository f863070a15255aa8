"""What tasks use of Redis and of the blob store."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import cast

from redis.asyncio import Redis

OURS = {"info", "keys", "memory", "hello", "client", "ping", "select", "config", "command"}
"""Commands that are no task's."""

SCRIPTS = {"eval", "evalsha"}

KINDS = re.compile(r"everloop:(?:task:.*:)?(view|history|events|transcript|tool|artifact|conversation|owner)")
"""What the key of something that grows is called."""


@dataclass(frozen=True)
class StoreUse:
    """Sums, or what one task has added.

    `commands` count those that scripts call as well. `redis_ms` is processor time.
    """

    commands: float
    scripts: float
    redis_ms: float
    keys: float
    redis_bytes: float
    blobs: float
    blob_bytes: float
    kinds: Mapping[str, float] = field(default_factory=Counter[str])

    def since(self, before: "StoreUse", tasks: int) -> "StoreUse":
        """Return what each of so many tasks has added since."""
        sums = [each.name for each in fields(self) if each.name != "kinds"]
        added = {name: (getattr(self, name) - getattr(before, name)) / tasks for name in sums}
        kinds = {kind: (size - before.kinds.get(kind, 0)) / tasks for kind, size in self.kinds.items()}
        return StoreUse(**added, kinds=kinds)


@dataclass(frozen=True)
class Stores:
    """A Redis and a directory of blobs that nobody else uses."""

    redis: Redis
    blobs: Path

    async def use(self) -> StoreUse:
        """Return what has been used until now."""
        told = cast("dict[str, object]", await self.redis.info("commandstats", "cpu"))
        calls = {
            name.removeprefix("cmdstat_"): cast("Mapping[str, int]", of)["calls"]
            for name, of in told.items()
            if name.startswith("cmdstat_")
        }
        counted = {name: count for name, count in calls.items() if name.partition("|")[0] not in OURS}
        seconds = cast("float", told["used_cpu_user"]) + cast("float", told["used_cpu_sys"])
        keys = cast("list[bytes]", await self.redis.keys())
        sizes = {key: await self.redis.memory_usage(key, samples=0) or 0 for key in keys}
        kinds = Counter[str]()
        for key, size in sizes.items():
            found = KINDS.match(key.decode())
            kinds[found[1] if found else "other"] += size
        files = [path for path in self.blobs.rglob("*") if path.is_file()]
        return StoreUse(
            commands=sum(counted.values()),
            scripts=sum(count for name, count in counted.items() if name in SCRIPTS),
            redis_ms=seconds * 1000,
            keys=len(keys),
            redis_bytes=sum(sizes.values()),
            blobs=len(files),
            blob_bytes=sum(path.stat().st_size for path in files),
            kinds=kinds,
        )
