"""A Python process that imports its modules before it is told what to run, so that it starts at once.

Run it as `python -m everloop.local.prepared MODULE`. Loading takes a second, most of the time that a
worker or a gateway needs to start. A process that has done it waits for a line on its standard input, or ends
with it; then it is what `python -m MODULE` would be.
"""

import os
import socket
import sys
from importlib import import_module

LISTENER = "--listener"
"""Before the number of an inherited file: the socket that listens for the process."""


def main(arguments: list[str]) -> int:
    """Load the module, wait, and run its `main`. Returns the exit code."""
    module = import_module(arguments[0])
    options = {}
    if arguments[1:2] == [LISTENER]:
        options["listener"] = socket.socket(fileno=int(arguments[2]))
    if not sys.stdin.buffer.readline():  # nobody wants it any more
        return 0
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    return module.main(**options)


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(exit_code)
