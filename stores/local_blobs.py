"""Blobs in a local directory: a file for each, its content followed by its sha256."""

import asyncio
import hashlib
import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, TypeVar

from everloop.stores.blobs import (
    PROBE_KEY,
    BlobCorruptError,
    BlobMissingError,
    Blobs,
    BlobStock,
    BlobsUnavailableError,
    check_key,
)
from everloop.stores.local_stock import UNFINISHED, LocalStock

THREADS = 16
"""How many files of one process are read and written at once."""

_TRIES = 3
_PIECE = 1 << 20
_DIGEST_BYTES = hashlib.sha256().digest_size

T = TypeVar("T")


class LocalBlobs(Blobs):
    """Files below `directory`, which is made when it is first needed. All processes must see the same one.

    A blob has reached the disk when `put` returns. No symbolic link below the directory leads out of it. A
    directory that lost even its id is taken for a volume that is not mounted, not for one whose blobs are
    missing; nor is anything put there once the id was seen. Its threads are its own, so that a volume that
    hangs holds up nothing else. Close it with `close`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._had_probe = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="blobs")

    @property
    def directory(self) -> Path:
        """Where the files are, as an absolute path."""
        return self._directory

    @property
    def place(self) -> str:
        return f"the blob directory {self._directory}"

    @property
    def stock(self) -> BlobStock:
        return LocalStock(self._directory, self._in_thread)

    def close(self) -> None:
        """Begin no more work, and wait for none that hangs."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def put(self, key: str, content: bytes) -> None:
        await self._in_thread(lambda: self._put(self._path(key), key, content))

    async def get(self, key: str) -> bytes:
        return await self._in_thread(lambda: self._get(self._path(key), key))

    async def delete(self, key: str) -> None:
        await self._in_thread(lambda: self._path(key).unlink(missing_ok=True))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            raise BlobsUnavailableError(self.place, error) from error

    def _path(self, key: str) -> Path:
        path = self._directory / check_key(key)
        if not path.resolve().is_relative_to(self._directory.resolve()):
            raise BlobsUnavailableError(self.place, f"a symbolic link leads {key} out of it; remove the link")
        return path

    def _put(self, path: Path, key: str, content: bytes) -> None:
        if self._had_probe:
            self._require_probe(key)
        digest = hashlib.sha256(content).digest()
        for _ in range(_TRIES):
            # Once touched it is new to the housekeeping, which may just have removed it all the same.
            if not (_touched(path) and _holds(path, content, digest)):
                self._write(path, content, digest)
            if self._synced(path):
                return
        raise FileNotFoundError(f"{key} was removed while it was put")

    def _make(self, folder: Path) -> None:
        """Make a folder below the directory, and that one; nobody else can look into them."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory
        for step in folder.relative_to(self._directory).parts:
            path /= step
            path.mkdir(mode=0o700, exist_ok=True)

    def _synced(self, path: Path) -> bool:
        """Make sure that the file outlives a power failure; return whether it is still there."""
        # Also where another process wrote the file: it may not have come as far as this.
        try:
            for folder in (path.parent, *path.parent.relative_to(self._directory).parents):
                _sync(self._directory / folder)
        except FileNotFoundError:
            return False
        return path.exists()

    def _write(self, path: Path, content: bytes, digest: bytes) -> None:
        unfinished = self._directory / UNFINISHED / uuid.uuid4().hex
        for folder in (unfinished.parent, path.parent):
            self._make(folder)
        try:
            with open(unfinished, "xb", opener=_for_us_alone) as file:
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
        if key != PROBE_KEY and not (self._directory / PROBE_KEY).exists():
            reason = f"it does not hold the file {PROBE_KEY} with its id; mount it, or restore it"
            raise BlobsUnavailableError(self.place, reason)


def _touched(path: Path) -> bool:
    """Let a file be one that was written just now, if it is there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _holds(path: Path, content: bytes, digest: bytes) -> bool:
    """Whether the file is there and whole; reading it is cheaper than writing it through to the disk."""
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
    """Make sure that the names in this folder outlive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
