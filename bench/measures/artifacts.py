"""Large artifacts beside the disk and a bare server: megabytes per second, and memory."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.agent import MIB, megabytes
from bench.rows import Row, Samples, in_turn
from bench.runs import ask_for_artifact
from bench.stack import Stack

SIZE = 200
"""Megabytes of the artifact."""

PIECE = 5 * MIB
"""The floor writes through to the disk and hashes as often as the store."""

WATCH_PAUSE = 0.02


async def artifacts(stack: Stack, rounds: int) -> list[Row]:
    """Measure the speed of a tool's write and of a download, and the memory of both."""
    growth: dict[str, Samples] = {"worker": [], "gateway": []}
    disk, written, bare, downloaded = await in_turn(
        rounds,
        _write_to_disk,
        partial(_write, stack, growth["worker"]),
        partial(_download, stack, f"{stack.echo_url}/bytes?megabytes={SIZE}"),
        partial(_download_artifact, stack, growth["gateway"]),
    )
    return [
        _rate(f"artifact of {SIZE} MiB, written by a tool", written, disk),
        _rate(f"artifact of {SIZE} MiB, downloaded", downloaded, bare),
        *(
            Row(f"artifact of {SIZE} MiB, memory of the {name}", "MiB", max(samples))
            for name, samples in growth.items()
        ),
    ]


def _rate(measure: str, ours: Samples, floor: Samples) -> Row:
    samples = {"everloop": ours, "floor": floor}
    return Row(measure, "MiB/s", median(ours), median(floor), samples=samples)


async def _write_to_disk() -> Samples:
    def write() -> None:
        with TemporaryDirectory() as directory:
            whole = b"".join(megabytes(PIECE // MIB))
            for number in range(SIZE * MIB // PIECE):
                with (Path(directory) / str(number)).open("wb") as file:
                    file.write(whole + hashlib.sha256(whole).digest())
                    file.flush()
                    os.fsync(file.fileno())

    begin = time.perf_counter()
    await asyncio.to_thread(write)
    return [SIZE / (time.perf_counter() - begin)]


async def _write(stack: Stack, growth: Samples) -> Samples:
    begin = time.perf_counter()
    async with _watched(stack, "worker", growth):
        await ask_for_artifact(stack, SIZE)
    return [SIZE / (time.perf_counter() - begin)]


async def _download_artifact(stack: Stack, growth: Samples) -> Samples:
    url = await ask_for_artifact(stack, SIZE)
    async with _watched(stack, "gateway", growth):
        return await _download(stack, url)


async def _download(stack: Stack, url: str) -> Samples:
    begin, size = time.perf_counter(), 0
    async with stack.http.stream("GET", url) as response:
        async for chunk in response.aiter_bytes():
            size += len(chunk)
    assert size == SIZE * MIB, f"{size} bytes of {url} arrived"
    return [SIZE / (time.perf_counter() - begin)]


@asynccontextmanager
async def _watched(stack: Stack, process: str, growth: Samples) -> AsyncGenerator[None]:
    """Record the greatest growth of a process over its initial size."""
    before, peak = stack.memory()[process], 0.0

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, stack.memory()[process] - before)
            await asyncio.sleep(WATCH_PAUSE)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
    growth.append(peak)
