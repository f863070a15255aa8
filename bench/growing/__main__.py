"""Growth of all figures with the number of tasks: `python -m bench.growing`.

It draws `docs/development/at-once.svg` and `docs/development/open-tasks.svg`.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.growing.at_once import at_once, cluster
from bench.growing.open_tasks import open_tasks
from bench.growing.plots import plot
from bench.report import leave
from bench.stack import running_stack

NUMBERS = (1, 10, 100, 1_000, 10_000, 100_000)
PLOTS = Path("docs/development")
MOST = 3_600.0
"""Seconds after which the run is aborted."""


async def _run(primaries: int, tasks: int, parked: int, seconds: float) -> None:
    with TemporaryDirectory(prefix="everloop-growing-") as name:
        async with asyncio.timeout(MOST), running_stack(Path(name), _say) as stack:
            for side in stack.sides:
                await side.run(1)
            for number in range(1, primaries + 1):
                await cluster(Path(name), stack.model_url, number, _say)
            if tasks:
                numbers = [number for number in NUMBERS if number <= tasks]
                plot(await at_once(stack, numbers, _say), PLOTS / "at-once.svg")
            if parked:
                numbers = [number for number in NUMBERS if 100 <= number <= parked]
                plot(await open_tasks(stack, numbers, seconds, _say), PLOTS / "open-tasks.svg")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Measure, draw, return the exit code."""
    arguments = argparse.ArgumentParser(prog="python -m bench.growing", description=__doc__)
    arguments.add_argument("--primaries", type=int, default=3, help="of a cluster, at most; 0: no cluster")
    arguments.add_argument(
        "--at-once", type=int, default=1_000, help="at most (default %(default)s); 0: none"
    )
    arguments.add_argument("--open", type=int, default=10_000, help="the same of open tasks")
    arguments.add_argument("--seconds", type=float, default=1_500, help="for opening tasks, at most")
    chosen = arguments.parse_args()
    asyncio.run(_run(chosen.primaries, chosen.at_once, chosen.open, chosen.seconds))
    return 0


if __name__ == "__main__":
    leave(main())
