"""What a worker is told at start, and how `worker.py` reads it; `everloop worker` reads it by itself."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass

from everloop.workflows.contract.names import WORKER_QUEUES

MOST_PROCESSES = 256


@dataclass(frozen=True)
class WorkerArguments:
    """What a worker takes on (kinds of work, or names of queues), and in how many processes.

    `is_child`: another worker process has started this one, and has told what all of them would tell.
    """

    queues: tuple[str, ...]
    processes: int
    is_child: bool = False


def parse_arguments(arguments: Sequence[str]) -> WorkerArguments:
    """Read the command line; what is wrong with it ends the process, with a usage line (exit code 2)."""
    kinds = ", ".join(WORKER_QUEUES)
    parser = ArgumentParser(prog="worker.py", description="Work on tasks, or on a part of what they need.")
    parser.add_argument(
        "--queues",
        type=_queues,
        default=WORKER_QUEUES,
        metavar="NAME[,NAME...]",
        help=f"what to take on: {kinds} (default: all of these), or the task_queue of agents or tools",
    )
    parser.add_argument(
        "--processes", type=_count, default=1, metavar="N", help="how many processes; one a core is best"
    )
    parser.add_argument("--child", action="store_true", help=SUPPRESS)
    given = parser.parse_args(arguments)
    return WorkerArguments(given.queues, given.processes, given.child)


def read_queues(given: str) -> tuple[str, ...]:
    """Return the names in a text that separates them by commas.

    Raises:
        ValueError: one is empty.
    """
    queues = tuple(dict.fromkeys(queue.strip() for queue in given.split(",")))
    if not all(queues):
        raise ValueError(f"{given!r} has an empty name; give names separated by commas")
    return queues


def _queues(given: str) -> tuple[str, ...]:
    try:
        return read_queues(given)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _count(given: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= MOST_PROCESSES:
        raise ArgumentTypeError(f"{given!r} is not a number from 1 to {MOST_PROCESSES}")
    return int(given)
