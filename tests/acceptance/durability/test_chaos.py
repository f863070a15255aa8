"""All components are harmed while clients work: nothing is lost, nothing happens twice."""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.chaos.run import Settings, run_chaos
from tests.support.servers.processes import ROOT, until

SEED = int(os.environ.get("CHAOS_SEED") or 7)
"""The same for every change that is checked; set CHAOS_SEED for other faults."""

SECONDS = float(os.environ.get("CHAOS_SECONDS") or 40)

_log = logging.getLogger(__name__)


@pytest.mark.timeout(max(900, SECONDS * 3))
@pytest.mark.parametrize("seed", [SEED])
async def test_chaos(tmp_path: Path, seed: int, pytestconfig: pytest.Config) -> None:
    """Every task ends right, every effect happens once, every push is delivered, and nothing leaks.

    A call that is not idempotent happens at most once; if its end was lost, the model reads so.
    `tests.chaos.verdict` has the right end for each kind of task, `tests.chaos.plan` the faults.
    """
    cluster = bool(pytestconfig.getoption("--redis-cluster"))
    report = await run_chaos(Settings(seed, SECONDS, workers=2, cluster=cluster), tmp_path, _log.info)

    assert report.is_right, "\n".join(report.lines())
    assert len(report.outcomes) >= Settings.fewest
    assert report.asked_again + report.begun_again + report.unknown, "the chaos has harmed nothing"


@pytest.mark.slow
async def test_a_run_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    """The supervisors end before the processes that they would start again."""
    mark = f"run-{uuid4()}"

    def left() -> list[psutil.Process]:
        found = list[psutil.Process]()
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                found += [each] if each.environ().get("CHAOS_MARK") == mark else []
        return found

    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos", "--workers", "1", "--gateways", "1", "--seed", str(SEED)),
        cwd=ROOT,
        env={**os.environ, "CHAOS_MARK": mark, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert run.stdout
        while b" open " not in (line := await run.stdout.readline()):  # the first fault
            assert line, "it has ended by itself"
        run.send_signal(signal.SIGINT)
        await run.communicate()
        assert run.returncode == 130
        async with asyncio.timeout(30):
            await until(lambda: not left())
    finally:
        for each in left():
            each.kill()
