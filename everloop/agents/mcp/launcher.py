"""Runs an MCP server so that it ends with the worker: `python launcher.py WORKER_PID COMMAND …`.

A killed worker cannot end the processes that it has started. Most servers end when their input does,
but not one that is stuck in a tool, or one that never reads it. Linux ends this process with its
parent, also after exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2)."""


def main() -> None:
    """Request from the kernel that this process ends with its parent, and execute the command."""
    worker, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != worker:
        raise SystemExit(1)
    os.execvp(command[0], command)  # noqa: S606 -- the command is the agent author's


if __name__ == "__main__":
    main()
