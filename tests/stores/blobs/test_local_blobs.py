"""Guarantees of a directory of blobs alone: it survives its process, a full disk and a lost mount."""

import asyncio
import contextlib
import os
import resource
import threading
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import pytest

from everloop.runtime.blobs import PROBE_KEY, BlobsUnavailableError
from everloop.stores.blobs.local_blobs import THREADS, UNFINISHED, LocalBlobs
from everloop.stores.retention.users import remove_folder

CONTENT = bytes(range(256)) * 4000
KEY = "payloads/task/content"


async def test_nobody_else_can_read_blobs(tmp_path: Path) -> None:
    """Files and folders are readable by their user alone, with any umask."""
    directory, mask = tmp_path / "a" / "blobs", os.umask(0)
    try:
        await LocalBlobs(directory).put(KEY, CONTENT)
    finally:
        os.umask(mask)

    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in (directory, *directory.rglob("*"))}
    assert modes == {True: 0o700, False: 0o600}


async def test_full_disk_is_no_missing_blob_and_leaves_nothing(tmp_path: Path) -> None:
    """A put on a full disk raises BlobsUnavailableError and leaves no part of a blob behind."""
    blobs = LocalBlobs(tmp_path)
    await blobs.put(PROBE_KEY, b"id")
    with largest_file(100_000), pytest.raises(BlobsUnavailableError):
        await blobs.put(KEY, CONTENT)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / PROBE_KEY]


@contextlib.contextmanager
def largest_file(length: int) -> Generator[None]:
    """Limit the length of files of this process, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("link", ["payloads", "payloads/task", KEY])
async def test_no_symbolic_link_leads_out_of_the_directory(tmp_path: Path, link: str) -> None:
    """A symbolic link anywhere in a path is refused: nothing outside is written, read or deleted."""
    blobs, elsewhere = LocalBlobs(tmp_path / "blobs"), tmp_path / "elsewhere"
    await LocalBlobs(elsewhere).put(KEY, CONTENT)
    path = tmp_path / "blobs" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(elsewhere / link)
    for call in (blobs.get(KEY), blobs.delete(KEY), blobs.put(KEY, b"other")):
        with pytest.raises(BlobsUnavailableError, match="link"):
            await call
    assert await LocalBlobs(elsewhere).get(KEY) == CONTENT


async def test_unmounted_directory_is_not_a_missing_blob(tmp_path: Path) -> None:
    """A directory without its id is an outage: tasks and deletions wait, and nothing is put."""
    blobs = LocalBlobs(tmp_path / "blobs")
    await blobs.put(PROBE_KEY, b"id")
    await blobs.get(PROBE_KEY)
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")
    with pytest.raises(BlobsUnavailableError, match="mount"):
        await blobs.get(KEY)
    with pytest.raises(BlobsUnavailableError, match="mount"):
        await blobs.put(KEY, CONTENT)
    with pytest.raises(BlobsUnavailableError, match="mount"):
        await blobs.delete(KEY)
    with pytest.raises(BlobsUnavailableError, match="mount"):
        await remove_folder(blobs, "payloads/task")
    assert not (tmp_path / "blobs").exists()


def test_volume_that_hangs_holds_up_nothing_else(tmp_path: Path) -> None:
    """While all threads of the store hang, other threads work, and the process's loop can end."""
    pipe = tmp_path / "payloads" / "task" / "content"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)  # any reader waits for a writer

    async def read_until_stopped() -> str:
        with contextlib.closing(LocalBlobs(tmp_path)) as blobs:
            reading.extend(asyncio.create_task(blobs.get(KEY)) for _ in range(THREADS * 2))
            return await asyncio.to_thread(lambda: "works")

    reading: list[asyncio.Task[bytes]] = []
    ended: list[str] = []
    others = set(threading.enumerate())
    process = threading.Thread(target=lambda: ended.append(asyncio.run(read_until_stopped())), daemon=True)
    process.start()
    process.join(timeout=10)
    for thread in set(threading.enumerate()) - others:
        while thread.is_alive():
            os.close(os.open(pipe, os.O_RDWR))  # unblocks the waiting readers
            thread.join(timeout=0.05)
    assert ended == ["works"]


async def test_what_dead_processes_left_half_written_is_removed(tmp_path: Path) -> None:
    """Incomplete files of dead processes are removed, and not those that may be in progress."""
    blobs = LocalBlobs(tmp_path)
    (tmp_path / UNFINISHED).mkdir()
    for name in ("old", "new"):
        (tmp_path / UNFINISHED / name).touch()
    os.utime(tmp_path / UNFINISHED / "old", (0, 0))

    assert await blobs.remove_unfinished(timedelta(hours=1)) == 1
    assert [path.name for path in (tmp_path / UNFINISHED).iterdir()] == ["new"]
