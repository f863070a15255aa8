"""Backups of running servers, as docs/operation/backup.md describes them, and their restoration."""

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from redis.asyncio import Redis

from everloop.local.servers import valkey_command
from tests.support.rigs.deployment import Deployment
from tests.support.servers.processes import (
    ROOT,
    ServerProcess,
    redis_answers,
    temporal_answers,
    wait_until_answers,
)

_DELETED_KEYS = re.compile(r"^ +forget '([^']+)'$", re.MULTILINE)


def deleted_patterns() -> list[str]:
    """Return the patterns of keys that docs/operation/backup.md deletes from a restored Redis."""
    return _DELETED_KEYS.findall((ROOT / "docs" / "operation/backup.md").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Backup:
    """Copies in `directory`: of Temporal's database, of Redis, of the blobs."""

    everloop: Deployment
    directory: Path

    async def copy_temporal(self) -> None:
        """Copy the database of the dev server at one moment."""
        await asyncio.to_thread(_copy_database, self._database, self.directory / "temporal.db")

    async def copy_redis(self) -> None:
        """Write Valkey's present data into one file, and copy it."""
        async with Redis.from_url(self.everloop.redis_url) as redis:
            await redis.bgsave()
            await _until(redis, lambda now: not now["rdb_bgsave_in_progress"])
        shutil.copy2(self._valkey / "dump.rdb", self.directory / "dump.rdb")

    async def copy_blobs(self) -> None:
        """Copy the directory of the blobs."""
        await asyncio.to_thread(shutil.copytree, self._blobs, self.directory / "blobs")

    def lose_everything(self) -> None:
        """Kill all processes, and delete their data."""
        everloop = self.everloop
        for process in (*everloop.started, everloop.valkey, everloop.temporal):
            process.kill()
        for kept in (self._database.parent, self._valkey, self._blobs):
            shutil.rmtree(kept)
        self._database.parent.mkdir()

    async def restore_temporal(self) -> None:
        """Start Temporal with the copy of its database."""
        shutil.copy2(self.directory / "temporal.db", self._database)
        self.everloop.temporal.start()
        address = self.everloop.temporal_address
        await wait_until_answers(self.everloop.temporal, lambda: temporal_answers(address), "temporal")

    def restore_blobs(self) -> None:
        """Restore the blobs."""
        shutil.copytree(self.directory / "blobs", self._blobs)

    async def restore_redis(self) -> None:
        """Start Valkey with the copy and delete the keys that Temporal restores.

        The copy is converted to an append-only file.
        """
        shutil.rmtree(self._valkey, ignore_errors=True)
        self._valkey.mkdir()
        shutil.copy2(self.directory / "dump.rdb", self._valkey / "dump.rdb")
        url = self.everloop.redis_url
        port = int(url.rpartition(":")[2].partition("/")[0])
        reading = ServerProcess(
            [*valkey_command(port, self._valkey), "--appendonly", "no"], self.directory / "restored.log"
        )
        reading.start()
        try:
            await wait_until_answers(reading, lambda: redis_answers(url), "valkey")
            async with Redis.from_url(url) as redis:
                await _delete_views(redis)
                await redis.config_set("appendonly", "yes")
                await _until(redis, lambda now: now["aof_enabled"] and not _is_rewriting(now))
        finally:
            reading.stop()
        self.everloop.valkey.start()
        await wait_until_answers(self.everloop.valkey, lambda: redis_answers(url), "valkey")

    @property
    def _database(self) -> Path:
        return self.everloop.directory / "temporal" / "temporal.db"

    @property
    def _valkey(self) -> Path:
        return self.everloop.directory / "valkey"

    @property
    def _blobs(self) -> Path:
        return Path(self.everloop.environment["EVERLOOP_BLOB_DIRECTORY"])


def _copy_database(source: Path, target: Path) -> None:
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as running,
        closing(sqlite3.connect(target)) as copy,
    ):
        running.backup(copy)


async def _delete_views(redis: Redis) -> None:
    for pattern in deleted_patterns():
        if keys := cast("list[bytes]", await redis.keys(pattern)):
            await redis.unlink(*keys)


def _is_rewriting(persistence: dict[str, int]) -> bool:
    return bool(persistence["aof_rewrite_in_progress"] or persistence["aof_rewrite_scheduled"])


async def _until(redis: Redis, is_so: Callable[[dict[str, int]], bool | int]) -> None:
    while not is_so(await redis.info("persistence")):  # noqa: ASYNC110 -- another process's doing
        await asyncio.sleep(0.02)
