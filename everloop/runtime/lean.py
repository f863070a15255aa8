"""Saves memory: imports libraries without optional dependencies that they would load if these are installed.

What runs as a process imports this first. Each line says what a library would take the others for; whoever
imports them behind it gets them as ever.
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
"""So many may be left over before a collection of the newest ones."""


def load(library: str, *unneeded: str) -> None:
    """Import a library while others that nobody has loaded yet count as not installed."""
    hidden = [module for module in unneeded if module not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # pyright: ignore[reportArgumentType, reportCallIssue] -- None: no module
    try:
        import_module(library)
    finally:
        for module in hidden:
            del sys.modules[module]


def freeze_startup() -> None:
    """Let no garbage collection look at what is there now; call it when the process has started.

    A full one took 30 to 50 ms of each process, in which no token went on. One of the newest objects comes
    once for several calls: after each 700 of them, as Python has it, they took 4 % of a call's time. What the
    start has freed goes back to the system, 1 to 10 MiB, where the C library can do that (glibc).
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
