"""A Python process that imports its modules in advance, so that it starts at once.

Run it as `python -m everloop.local.preloaded MODULE`. Imports take a second, most of the start of a
worker or a gateway. After them the process waits for a line on its standard input, and ends with it;
then it behaves like `python -m MODULE`.
"""

import os
import socket
import sys
from importlib import import_module

LISTENER = "--listener"
"""Option before the number of an inherited file: the socket that listens for the process."""


def main(arguments: list[str]) -> int:
    """Load the module, wait, and run its `main`. Returns the exit code."""
    module = import_module(arguments[0])
    options = {}
    if arguments[1:2] == [LISTENER]:
        options["listener"] = socket.socket(fileno=int(arguments[2]))
    if not sys.stdin.buffer.readline():  # it is no longer needed
        return 0
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    return module.main(**options)


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter during its shutdown (exit code 134).
    os._exit(exit_code)
