"""Reduce the memory of processes and the time of their collections of garbage.

Processes import this module first: it imports libraries without optional dependencies that they would
load if installed, 16 MiB in all. Later imports of these work as usual.
"""

import ctypes
import gc
import sys
from importlib import import_module

if sys.flags.optimize > 1:
    sys.exit(
        "everloop: Python runs with -OO (PYTHONOPTIMIZE=2), which removes the docstrings of tools, and "
        "models read these; start it with -O, or without"
    )

_THRESHOLDS = gc.get_threshold()
gc.set_threshold(10_000, 50, 100)  # till a process has started: what it loads is no garbage

_NEW_OBJECTS = 5000
"""Number of new objects that starts a collection of the youngest generation."""


def _load(library: str, unneeded: str) -> None:
    """Import a library while an optional dependency counts as not installed, unless it is loaded."""
    if unneeded not in sys.modules:
        sys.modules[unneeded] = None  # pyright: ignore[reportArgumentType] -- None: no module
    try:
        import_module(library)
    finally:
        if sys.modules[unneeded] is None:  # pyright: ignore[reportUnnecessaryComparison] -- as above
            del sys.modules[unneeded]


def freeze_startup() -> None:
    """Exempt all present objects from garbage collection; call it when the process has started.

    A full collection took 30 to 50 ms of each process, in which no token was passed on. Collections of
    the youngest generation after each 700 objects, Python's default, took 4 % of the time of a call.
    Memory that was freed during the start is returned to the system, 1 to 10 MiB, if the C library
    supports it (glibc).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *_THRESHOLDS[1:])
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


_load("structlog", "rich")  # tracebacks in colours: 4 MiB
_load("temporalio.client", "grpc")  # stubs of Temporal's API, beside the native client that is used: 9 MiB
_load("redis.asyncio", "opentelemetry.sdk")  # metrics of its own: 2 MiB
