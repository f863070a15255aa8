"""Runs an MCP server so that it ends with the worker: `python launcher.py WORKER_PID COMMAND …`.

A killed worker cannot end what it has started. Most servers end when their input does, not one that is
stuck in a tool, or one that never looks. Linux ends this process with its parent, whatever it has become.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2)."""


def main() -> None:
    """Have the kernel end this process with its parent, and become the command."""
    worker, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != worker:
        raise SystemExit(1)
    os.execvp(command[0], command)  # noqa: S606 -- the command is the agent author's


if __name__ == "__main__":
    main()
