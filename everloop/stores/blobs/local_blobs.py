"""Blobs in a local directory: a file for each, its content followed by its sha256."""

import asyncio
import contextlib
import errno
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, TypeVar

from everloop.runtime.blobs import (
    PROBE_KEY,
    BlobCorruptError,
    BlobMissingError,
    BlobPage,
    Blobs,
    BlobsUnavailableError,
    check_key,
    is_key,
)

# The files of a local directory of blobs.

UNFINISHED = ".unfinished"
"""Folder of files that are being written. No key begins with a dot. The housekeeping removes leftovers of
killed processes."""

PAGE = 1000
"""Blobs on a page."""

LOOKED_AT = 20_000
"""Limit of the files that are examined for one page."""

T = TypeVar("T")


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """Return names, in order, and whether they are folders. Symbolic links are not followed."""
    try:
        with os.scandir(folder) as found:
            entries = [
                (entry.name, entry.is_dir(follow_symlinks=False)) for entry in found if not entry.is_symlink()
            ]
    except FileNotFoundError:
        return []
    return sorted(entries)


def _order(path: str) -> list[str]:
    """Return the sort key of a path in the order of a tree walk: / before all other characters."""
    return path.split("/") if path else []


def _may_hold(folder: str, after: str) -> bool:
    """True if a folder may contain a path that sorts after this one."""
    words = _order(folder)
    return words >= _order(after)[: len(words)]


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # another process removed it
        return float("inf")


def _is_unlinked(path: Path, before: float) -> bool:
    if _changed_at(path) > before:
        return False
    path.unlink(missing_ok=True)
    return True


def _is_removed(path: Path, before: float) -> bool:
    if not _is_unlinked(path, before):
        return False
    with contextlib.suppress(OSError):  # another blob is in it
        path.parent.rmdir()
    return True


THREADS = 16
"""Limit of concurrent reads and writes of files in one process."""

_REASONS = {
    errno.EACCES: "this process may not read and write there; give the directory to its user",
    errno.EROFS: "its file system is read-only; mount it for writing",
    errno.ENOSPC: "it is full; make room",
}
_TRIES = 3
_PIECE = 1 << 20
_DIGEST_BYTES = hashlib.sha256().digest_size


class LocalBlobs(Blobs):
    """Files below `directory`, which is created on first use. All processes must share it.

    `put` returns once the blob is on the disk. Symbolic links below the directory that lead out of it are
    refused. A directory without its id is treated as an unmounted volume, not as one with missing blobs: once
    the id was read, nothing is put there, and nothing counts as deleted. It has threads of its own, so that a
    hanging volume blocks nothing else. Close it with `close`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.location = f"the blob directory {self.directory}"
        self._had_probe = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="blobs")

    def close(self) -> None:
        """Start no more work. Hanging work is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def put(self, key: str, content: bytes) -> None:
        await self._in_thread(lambda: self._put(self._path(key), key, content))

    async def get(self, key: str) -> bytes:
        return await self._in_thread(lambda: self._get(self._path(key), key))

    async def delete(self, key: str) -> None:
        await self._in_thread(lambda: self._delete(self._path(key), key))

    async def list_old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        return await self._in_thread(
            lambda: self._list_old(check_key(folder), time.time() - age.total_seconds(), cursor)
        )

    async def remove(self, key: str, age: timedelta) -> bool:
        path = self.directory / check_key(key)
        return await self._in_thread(lambda: _is_removed(path, time.time() - age.total_seconds()))

    async def remove_unfinished(self, age: timedelta) -> int:
        return await self._in_thread(lambda: self._remove_unfinished(time.time() - age.total_seconds()))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            raise BlobsUnavailableError(self.location, _REASONS.get(error.errno or 0, error)) from error

    def _delete(self, path: Path, key: str) -> None:
        if self._had_probe:
            self._require_probe(key)
        path.unlink(missing_ok=True)

    def _list_old(self, folder: str, before: float, cursor: str) -> BlobPage:
        if self._had_probe:
            self._require_probe(folder)
        keys: list[str] = []
        for number, key in enumerate(self._files(folder, cursor), start=1):
            if is_key(key) and _changed_at(self.directory / key) <= before:
                keys.append(key)
            if number == LOOKED_AT or len(keys) == PAGE:
                return BlobPage(tuple(keys), key)
        return BlobPage(tuple(keys))

    def _files(self, folder: str, after: str) -> Iterator[str]:
        """Yield the keys of all files below a folder whose paths sort after this one, in order."""
        for name, is_folder in _entries(self.directory / folder):
            path = f"{folder}/{name}"
            if is_folder and _may_hold(path, after):
                yield from self._files(path, after)
            elif not is_folder and _order(path) > _order(after):
                yield path

    def _remove_unfinished(self, before: float) -> int:
        names = [name for name, _ in _entries(self.directory / UNFINISHED)]
        return sum(_is_unlinked(self.directory / UNFINISHED / name, before) for name in names)

    def _path(self, key: str) -> Path:
        path = self.directory / check_key(key)
        if not path.resolve().is_relative_to(self.directory.resolve()):
            raise BlobsUnavailableError(
                self.location, f"a symbolic link leads {key} out of it; remove the link"
            )
        return path

    def _put(self, path: Path, key: str, content: bytes) -> None:
        if self._had_probe:
            self._require_probe(key)
        digest = hashlib.sha256(content).digest()
        for _ in range(_TRIES):
            # Now it is new to the housekeeping, which may still have removed it just before.
            if not (_touched(path) and _holds(path, content, digest)):
                self._write(path, content, digest)
            if self._synced(path):
                return
        raise FileNotFoundError(f"{key} was removed while it was put")

    def _make(self, folder: Path) -> None:
        """Create a folder below the directory, with its parents, readable for this user alone."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.directory
        for step in folder.relative_to(self.directory).parts:
            path /= step
            path.mkdir(mode=0o700, exist_ok=True)

    def _synced(self, path: Path) -> bool:
        """Write the file through to the disk; return whether it still exists."""
        # Also if another process wrote the file: it may not have synced it yet.
        try:
            for folder in (path.parent, *path.parent.relative_to(self.directory).parents):
                _sync(self.directory / folder)
        except FileNotFoundError:
            return False
        return path.exists()

    def _write(self, path: Path, content: bytes, digest: bytes) -> None:
        unfinished = self.directory / UNFINISHED / uuid.uuid4().hex
        for folder in (unfinished.parent, path.parent):
            self._make(folder)
        try:
            with open(unfinished, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(content)
                file.write(digest)
                file.flush()
                os.fsync(file.fileno())
            self._make(path.parent)  # the housekeeping removes folders that are empty
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

    def _get(self, path: Path, key: str) -> bytes:
        try:
            with path.open("rb") as file:
                content = file.read(_content_bytes(file))
                digest = file.read(_DIGEST_BYTES)
        except FileNotFoundError:
            self._require_probe(key)
            raise BlobMissingError(key) from None
        self._had_probe = self._had_probe or key == PROBE_KEY
        if hashlib.sha256(content).digest() != digest:
            raise BlobCorruptError(key)
        return content

    def _require_probe(self, key: str) -> None:
        if key != PROBE_KEY and not (self.directory / PROBE_KEY).exists():
            reason = f"it does not hold the file {PROBE_KEY} with its id; mount it, or restore it"
            raise BlobsUnavailableError(self.location, reason)


def _touched(path: Path) -> bool:
    """Set the time of a file to now; return whether it exists."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _holds(path: Path, content: bytes, digest: bytes) -> bool:
    """True if the file exists and is complete. Reading is cheaper than writing it through to the disk."""
    length = len(content)
    starts = range(0, length, _PIECE)
    try:
        with path.open("rb") as file:
            return (
                _content_bytes(file) == length
                and all(content.startswith(file.read(min(_PIECE, length - at)), at) for at in starts)
                and file.read() == digest
            )
    except FileNotFoundError:
        return False


def _content_bytes(file: BinaryIO) -> int:
    return max(os.fstat(file.fileno()).st_size - _DIGEST_BYTES, 0)


def _sync(folder: Path) -> None:
    """Write the names in this folder through to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
