"""Reduce memory: import libraries without optional dependencies that they would load if installed.

Processes import this module first. Each line names the purpose of the skipped dependencies; later
imports of these work as usual.
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


def load(library: str, *unneeded: str) -> None:
    """Import a library while optional dependencies that are not loaded yet count as not installed."""
    hidden = [module for module in unneeded if module not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # pyright: ignore[reportArgumentType, reportCallIssue] -- None: no module
    try:
        import_module(library)
    finally:
        for module in hidden:
            del sys.modules[module]


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


sys.modules.setdefault("httpx._main", None)  # pyright: ignore[reportArgumentType] -- None: no module; its command line, with rich
load("structlog", "rich", "greenlet")  # tracebacks in colours, and locals of greenlets (4 MiB)
load("temporalio.client", "grpc")  # stubs of Temporal's API, beside the native client that is used (9 MiB)
load("redis.asyncio", "opentelemetry.sdk")  # metrics of its own
