"""Inject faults for a while, then report: `python -m tests.chaos --seconds N --seed N`."""

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from random import SystemRandom
from tempfile import mkdtemp

from rich.console import Console

from tests.chaos.run import Settings, run_chaos

_console = Console(soft_wrap=True)


def main() -> int:
    """Run once and print the report; return the exit code: 0 if all was right."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long tasks begin (default 600)")
    parser.add_argument("--seed", type=int, help="repeats the harm of another run (default: a new one)")
    parser.add_argument(
        "--rate", type=float, default=Settings.rate, help="tasks a second (default %(default)s)"
    )
    parser.add_argument("--workers", type=int, default=Settings.workers, help="(default %(default)s)")
    parser.add_argument("--gateways", type=int, default=Settings.gateways, help="(default %(default)s)")
    parser.add_argument("--cluster", action="store_true", help="run Redis as a cluster of six servers")
    parser.add_argument("--keep", action="store_true", help="keep logs and data even if all is right")
    given = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if given.seed is None else given.seed
    # The model cuts streams on purpose, which its server logs as a defect.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    directory = Path(mkdtemp(prefix="everloop-chaos-"))
    settings = Settings(
        seed,
        given.seconds,
        rate=given.rate,
        workers=given.workers,
        gateways=given.gateways,
        cluster=given.cluster,
    )
    try:
        is_right = asyncio.run(_run(settings, directory))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _say("stopped")
        return 130
    if is_right and not given.keep:
        shutil.rmtree(directory)
    else:
        _say(f"logs and data are in {directory}")
    return 0 if is_right else 1


async def _run(settings: Settings, directory: Path) -> bool:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    begin = time.monotonic()
    report = await run_chaos(settings, directory, _say)
    for line in report.lines():
        _say(line)
    _say(f"{time.monotonic() - begin:.0f} s in all")
    return report.is_right


def _say(line: str) -> None:
    _console.print(line, markup=False, highlight=False)


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    # Temporal's native threads may abort an interpreter at its shutdown.
    os._exit(exit_code)
