"""What only a directory of blobs has to promise: it survives its process, a full disk and a lost mount."""

import contextlib
import resource
from collections.abc import Generator
from pathlib import Path

import pytest

from stores.blobs import PROBE_KEY, BlobsUnavailableError, check_blobs
from stores.local_blobs import LocalBlobs

CONTENT = bytes(range(256)) * 4000
KEY = "payloads/task/content"


async def test_local_blobs_survive_their_process(tmp_path: Path) -> None:
    """Another process that is given the same directory finds the blobs, and mends a damaged one by a put."""
    await LocalBlobs(tmp_path).put(KEY, CONTENT)
    assert await LocalBlobs(tmp_path).get(KEY) == CONTENT
    (tmp_path / KEY).write_bytes(b"short")
    await LocalBlobs(tmp_path).put(KEY, CONTENT)
    assert await LocalBlobs(tmp_path).get(KEY) == CONTENT


async def test_full_disk_is_no_missing_blob_and_leaves_nothing(tmp_path: Path) -> None:
    """A put that cannot be written raises BlobsUnavailableError and leaves no part of a blob behind."""
    blobs = LocalBlobs(tmp_path)
    await check_blobs(blobs)
    with largest_file(100_000), pytest.raises(BlobsUnavailableError):
        await blobs.put(KEY, CONTENT)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / PROBE_KEY]


@contextlib.contextmanager
def largest_file(length: int) -> Generator[None]:
    """Let this process write no file longer than this, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_unmounted_directory_is_not_a_missing_blob(tmp_path: Path) -> None:
    """A directory without even the probe of its first check is a store that is away: tasks wait for it."""
    blobs = LocalBlobs(tmp_path / "blobs")
    await check_blobs(blobs)
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")
    with pytest.raises(BlobsUnavailableError, match="mount"):
        await blobs.get(KEY)
