"""The benchmark: `python -m bench [--quick] [--only NAME]`."""

import argparse
import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.machine import Machine, describe_machine, describe_versions
from bench.measures import artifacts, lists, open_tasks, processes, streams, work
from bench.orders import iterations_order
from bench.report import RESULTS, WIDTH, console, leave, print_table, write_results
from bench.rows import AIMS, Row
from bench.runs import send_message, time_to_first_event
from bench.stack import Stack, running_stack

QUIET_LOAD = 0.5
"""Load average up to which we call the machine quiet."""

LIMIT = 900.0
"""Seconds after which the whole run is given up."""

WARM_UPS = 5
LOG_LINES = 20

_console = console(WIDTH)


@dataclass(frozen=True)
class Measurement:
    """A measurement with its name for `--only`, and its repetitions."""

    measure: Callable[[Stack, int], Awaitable[list[Row]]]
    rounds: int
    quick_rounds: int


MEASUREMENTS = {
    "processes": Measurement(processes.processes, 3, 1),
    "iteration": Measurement(work.iteration, 7, 2),
    "throughput": Measurement(work.throughput, 4, 1),
    "history": Measurement(work.history, 3, 1),
    "redis": Measurement(work.redis_use, 1, 1),
    "tokens": Measurement(streams.tokens, 4, 1),
    "first-event": Measurement(streams.first_event, 5, 1),
    "artifacts": Measurement(artifacts.artifacts, 3, 1),
    "lists": Measurement(lists.lists, 5, 1),
    "open-tasks": Measurement(open_tasks.open_tasks, 1, 1),
    "answers": Measurement(open_tasks.answers, 3, 1),
}


def main() -> int:
    """Measure, print the table, write `bench-results.json`; return the exit code."""
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments.add_argument("--only", choices=MEASUREMENTS, nargs="+", help="some measurements instead of all")
    chosen = arguments.parse_args()
    names = chosen.only or list(MEASUREMENTS)
    try:
        asyncio.run(_run(names, quick=chosen.quick))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _console.print("stopped")
        return 130
    return 0


async def _run(names: Sequence[str], *, quick: bool) -> None:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    begin = time.monotonic()
    with TemporaryDirectory(prefix="everloop-bench-") as name:
        directory = Path(name)
        machine = describe_machine(directory)
        _warn(machine)
        rows: list[Row] = []
        try:
            async with asyncio.timeout(LIMIT), running_stack(directory, _say) as stack:
                await _measure_all(stack, names, rows, quick=quick)
        except Exception:
            _show_logs(directory)
            raise
        finally:
            print_table(_console, rows)
    seconds = time.monotonic() - begin
    write_results(rows, machine, describe_versions(), seconds)
    _say(f"{seconds:.0f} s; all samples are in {RESULTS}")


async def _measure_all(stack: Stack, names: Sequence[str], rows: list[Row], *, quick: bool) -> None:
    _say("warming up")
    await _warm_up(stack)
    for number, name in enumerate(names, start=1):
        _say(f"{number}/{len(names)} {name}")
        measurement = MEASUREMENTS[name]
        rows += await measurement.measure(stack, measurement.quick_rounds if quick else measurement.rounds)
    unknown = AIMS.keys() - {row.measure for row in rows}
    if unknown and len(names) == len(MEASUREMENTS):
        _say(f"no row for the aims of {sorted(unknown)}")


async def _warm_up(stack: Stack) -> None:
    """Run everything a few times: imports, caches and connections are not measured."""
    for _ in range(WARM_UPS):
        for side in stack.sides:
            await side.run(1)
        await send_message(stack, iterations_order(1))
        await time_to_first_event(stack)


def _say(line: str) -> None:
    _console.print(line, highlight=False)


def _warn(machine: Machine) -> None:
    if machine.load > QUIET_LOAD:
        _say(f"[yellow]other work runs here (load {machine.load:.1f}): read ratios, not numbers[/]")


def _show_logs(directory: Path) -> None:
    for log in sorted(directory.rglob("*.log")):
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        _console.print(f"--- end of {log.name}", *lines, sep="\n", markup=False, highlight=False)


if __name__ == "__main__":
    leave(main())
