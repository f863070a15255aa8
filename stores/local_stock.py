"""What a local directory of blobs holds."""

import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from everloop.stores.blobs import BlobPage, BlobStock, check_key, is_key

UNFINISHED = ".unfinished"
"""Folder of files that are being written. No key begins with a dot. The housekeeping removes what killed
processes left there."""

PAGE = 1000
"""Blobs on a page."""

LOOKED_AT = 20_000
"""Files that are looked at for one page."""

T = TypeVar("T")


class LocalStock(BlobStock):
    """Files by the time of their last change; `in_thread` does what waits."""

    def __init__(
        self, directory: Path, in_thread: Callable[[Callable[[], object]], Awaitable[object]]
    ) -> None:
        self._directory = directory
        self._in_thread = in_thread

    @property
    def expires(self) -> bool:
        return False

    async def old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        return await self._do(lambda: self._old(check_key(folder), time.time() - age.total_seconds(), cursor))

    async def remove(self, key: str, age: timedelta) -> bool:
        path = self._directory / check_key(key)
        return await self._do(lambda: _is_removed(path, time.time() - age.total_seconds()))

    async def renew(self, key: str) -> None:
        """Do nothing: there is no time to live."""

    async def remove_unfinished(self, age: timedelta) -> int:
        return await self._do(lambda: self._remove_unfinished(time.time() - age.total_seconds()))

    async def _do(self, work: Callable[[], T]) -> T:
        done: list[T] = []
        await self._in_thread(lambda: done.append(work()))
        return done[0]

    def _old(self, folder: str, before: float, cursor: str) -> BlobPage:
        keys: list[str] = []
        for number, key in enumerate(self._files(folder, cursor), start=1):
            if is_key(key) and _changed_at(self._directory / key) <= before:
                keys.append(key)
            if number == LOOKED_AT or len(keys) == PAGE:
                return BlobPage(tuple(keys), key)
        return BlobPage(tuple(keys))

    def _files(self, folder: str, after: str) -> Iterator[str]:
        """Yield the keys of all files below a folder whose paths come after this one, in order."""
        for name, is_folder in _entries(self._directory / folder):
            path = f"{folder}/{name}"
            if is_folder and _may_hold(path, after):
                yield from self._files(path, after)
            elif not is_folder and _order(path) > _order(after):
                yield path

    def _remove_unfinished(self, before: float) -> int:
        names = [name for name, _ in _entries(self._directory / UNFINISHED)]
        return sum(_is_unlinked(self._directory / UNFINISHED / name, before) for name in names)


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """Return names, in order, and whether they are folders; symbolic links are followed by nobody."""
    try:
        with os.scandir(folder) as found:
            entries = [
                (entry.name, entry.is_dir(follow_symlinks=False)) for entry in found if not entry.is_symlink()
            ]
    except FileNotFoundError:
        return []
    return sorted(entries)


def _order(path: str) -> list[str]:
    """Return what sorts paths as folders are gone through: / before all other signs."""
    return path.split("/") if path else []


def _may_hold(folder: str, after: str) -> bool:
    """Whether a folder may hold a path that comes after this one."""
    words = _order(folder)
    return words >= _order(after)[: len(words)]


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # somebody else removed it
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
