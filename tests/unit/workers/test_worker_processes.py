"""Several processes under one parent: all end with it, and one that dies is restarted."""

import asyncio
import signal
import sys
from pathlib import Path

import psutil

from tests.support.servers.processes import ROOT

PARENT = """
import sys, uvloop
from everloop.workers.processes import WorkerProcesses
from everloop.runtime.telemetry.telemetry_settings import Address
address = Address.parse(sys.argv[3]) if sys.argv[3] else None
sys.exit(uvloop.run(WorkerProcesses([sys.executable, sys.argv[1], sys.argv[2]], 3, address).run()))
"""

CHILD = """
import os, pathlib, signal, sys, time
def stop(*_):
    (home / f"{os.getpid()}.stopped").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
home = pathlib.Path(sys.argv[1])
draft = home / f"{os.getpid()}.draft"
draft.write_text(os.environ.get("EVERLOOP_METRICS_ADDRESS", ""))
draft.rename(draft.with_suffix(".started"))
while True:
    time.sleep(60)
"""


async def _parent(home: Path, child: str = CHILD, address: str = "") -> asyncio.subprocess.Process:
    script = home / "child.py"
    script.write_text(child)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(script), str(home), address), cwd=ROOT
    )


async def _started(home: Path, count: int) -> list[int]:
    while len(found := list(home.glob("*.started"))) < count:  # noqa: ASYNC110 -- files of other processes
        await asyncio.sleep(0.02)
    return sorted(int(file.stem) for file in found)


async def _gone(pids: list[int]) -> None:
    while any(map(_lives, pids)):  # noqa: ASYNC110 -- they are no children of this process
        await asyncio.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """No orphan is left."""
    parent = await _parent(tmp_path)
    pids = await _started(tmp_path, 3)

    parent.kill()

    await parent.wait()
    await _gone(pids)


async def test_processes_that_are_set_up_wrongly_end_all(tmp_path: Path) -> None:
    """The error has been printed by then; a restart would repeat it for ever."""
    parent = await _parent(tmp_path, "import sys; sys.exit('worker: wrong setting')")

    assert await parent.wait() == 1


async def test_each_process_has_a_metrics_address_of_its_own(tmp_path: Path) -> None:
    """Two processes cannot listen on one port: each next process has the next port."""
    parent = await _parent(tmp_path, address="127.0.0.1:9464")
    await _started(tmp_path, 3)
    addresses = {file.read_text() for file in tmp_path.glob("*.started")}
    parent.send_signal(signal.SIGTERM)
    await parent.wait()

    assert addresses == {"127.0.0.1:9464", "127.0.0.1:9465", "127.0.0.1:9466"}
