"""What keeps other processes of the same machine from what this one knows."""

import ctypes
import stat
import sys
from pathlib import Path

import structlog

_PR_SET_DUMPABLE = 4
"""prctl(2)."""

_log = structlog.get_logger()


def hide_environment() -> None:
    """Keep other processes of this user from reading the environment and the memory of this one.

    On Linux alone; core dumps are off by that too. Root reads them all the same.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def warn_of_readers(path: Path) -> None:
    """Log a warning if a file of secrets can be read by everybody on this machine."""
    if path.stat().st_mode & stat.S_IROTH:
        _log.warning("everybody on this machine can read a file of secrets", file=str(path))
