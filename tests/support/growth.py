"""Growth of work with the size of its input, counted instead of timed."""

import os
import pickle
import sys
import traceback
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Work:
    """The work of a call. `steps`: bytecodes of Python. `copied`: bytes that were allocated, freed or not.

    Together they show nested loops and texts that are copied repeatedly, but not the work inside a regular
    expression.
    """

    steps: int = 0
    copied: int = 0


def work_of(call: Callable[[], object]) -> Work:
    """Run a function in a copy of this process, and return its work.

    The copy has no other threads: one of Temporal's that starts while tracemalloc stops can end the
    interpreter (CPython issue 128679).

    Raises:
        RuntimeError: It failed; the traceback is in the output of the test.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, pickle.dumps(_measured(call)))
        except BaseException:  # noqa: BLE001 -- the copy must not go on with the tests
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        work = told.read()
    os.waitpid(child, 0)
    if not work:
        raise RuntimeError("what was to be measured failed")
    return pickle.loads(work)  # noqa: S301 -- our own


def _measured(call: Callable[[], object]) -> Work:
    work, allocated = Work(), 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:  # noqa: ANN401 -- as settrace has it
        nonlocal allocated
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        now, before = tracemalloc.get_traced_memory()[0], allocated
        work.steps += event == "opcode"
        work.copied += max(0, now - before)
        allocated = now
        return trace

    others = sys.gettrace()
    tracemalloc.start()
    allocated = tracemalloc.get_traced_memory()[0]
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(others)
        tracemalloc.stop()
    return work


def assert_grows_no_faster(work: Callable[[int], Callable[[], object]], size: int) -> None:
    """Check that four times the size takes no more than about four times the work."""
    work(size)()  # work done once, such as filling caches, is not counted
    small, large = work_of(work(size)), work_of(work(4 * size))
    assert large.steps < 5 * small.steps + 1_000, (small, large)
    assert large.copied < 5 * small.copied + 100_000, (small, large)
