"""Resources of a process: file descriptors, memory, connections, and the asyncio tasks of its main loop."""

import asyncio
import json
import os
import signal
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import CoroutineType, FrameType
from typing import cast

import psutil

FOLDER = "CHAOS_CENSUS"
"""Environment variable: the directory to which processes write their asyncio tasks on request."""

ANSWER_TIMEOUT = 20.0
"""Seconds that a process may take to answer."""

SPARE = {"descriptors": 80, "megabytes": 250, "asyncio tasks": 10}
"""Growth that a process may have since its start when it is idle.

Of descriptors: a pool of 50 connections to Redis, open files of blobs, and connections that clients keep; of
memory: the tasks that a worker caches between their steps.
"""


@dataclass(frozen=True)
class Census:
    """Resources of one process."""

    descriptors: int
    megabytes: int
    tasks: Counter[str]

    def beyond(self, before: "Census") -> list[str]:
        """Return the excess over the start of the process."""
        grown = {
            "descriptors": self.descriptors - before.descriptors,
            "megabytes": self.megabytes - before.megabytes,
            "asyncio tasks": self.tasks.total() - before.tasks.total(),
        }
        more = {name: by for name, by in grown.items() if by > SPARE[name]}
        said = [f"{by} more {name} than at the start" for name, by in more.items()]
        return [*said, f"more tasks: {dict(self.tasks - before.tasks)}"] if "asyncio tasks" in more else said


def answer_on_signal() -> None:
    """Write this process's asyncio tasks with their stacks at SIGUSR2, if the environment says where."""
    if folder := os.environ.get(FOLDER):

        def write(_number: int, _frame: FrameType | None) -> None:
            tasks = asyncio.all_tasks()
            with Path(folder, f"{os.getpid()}.stacks").open("a", encoding="utf-8") as stacks:
                stacks.writelines(f"{datetime.now(UTC)} {task!r}\n{_stack(task)}\n" for task in tasks)
            names = [getattr(task.get_coro(), "__qualname__", "?") for task in tasks]
            file = Path(folder, f"{os.getpid()}.json")
            draft = file.with_suffix(".draft")
            draft.write_text(json.dumps(Counter(names)), encoding="utf-8")
            draft.replace(file)

        signal.signal(signal.SIGUSR2, write)


def _stack(task: asyncio.Task[object]) -> str:
    """Return the stack of a task.

    Its coroutines from the outermost to the innermost, and the awaited object.
    """
    lines, waits = list[str](), task.get_coro()
    while isinstance(waits, CoroutineType) and (frame := waits.cr_frame):
        lines.append(f"    {frame.f_code.co_qualname}, {frame.f_code.co_filename}:{frame.f_lineno}")
        waits = waits.cr_await
    return "\n".join([*lines, f"    {waits!r}"])


async def take_census(pid: int, folder: Path) -> Census:
    """Count the resources of a process.

    Raises: TimeoutError: it does not answer. psutil.NoSuchProcess: it has ended.
    """
    file = folder / f"{pid}.json"
    file.unlink(missing_ok=True)
    process = psutil.Process(pid)
    process.send_signal(signal.SIGUSR2)
    async with asyncio.timeout(ANSWER_TIMEOUT):
        while not file.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.05)
    tasks = cast("dict[str, int]", json.loads(file.read_text(encoding="utf-8")))
    megabytes = process.memory_info().rss >> 20
    return Census(process.num_fds(), megabytes, Counter(tasks))
