"""Everything is harmed while clients work: nothing is lost, nothing happens twice."""

import logging
import os
from pathlib import Path

import pytest

from tests.chaos.run import Settings, run_chaos

SEED = int(os.environ.get("CHAOS_SEED") or 629844)
"""The same for every change that is checked; set CHAOS_SEED to do other harm."""

SECONDS = float(os.environ.get("CHAOS_SECONDS") or 40)

_log = logging.getLogger(__name__)


@pytest.mark.timeout(max(900, SECONDS * 3))
@pytest.mark.parametrize("seed", [SEED])
async def test_chaos(tmp_path: Path, seed: int, pytestconfig: pytest.Config) -> None:
    """Every task ends right, every effect happens once, every push is delivered, and nothing leaks.

    A call that is not idempotent happens at most once; where its end was lost, the model is told so. What is
    right for each kind of task stands in `tests.chaos.verdict`, the faults in `tests.chaos.plan`.
    """
    cluster = bool(pytestconfig.getoption("--redis-cluster"))
    report = await run_chaos(Settings(seed, SECONDS, workers=2, cluster=cluster), tmp_path, _log.info)

    assert report.is_right, "\n".join(report.lines())
    assert len(report.outcomes) >= Settings.fewest
    assert report.asked_again + report.begun_again + report.unknown, "the chaos has harmed nothing"
