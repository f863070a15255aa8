"""Entry point of the command `everloop`: Ctrl-C ends it without a traceback even during imports.

The imports at the head of this module are fast: until `main` begins, Ctrl-C still shows a traceback.
"""

import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

_FAILED, _INTERRUPTED = 1, 130


def main() -> None:
    """Run the command with the arguments of this process, and end the process."""
    _open_streams()
    was_interrupted = _watch_interrupts()
    try:
        from everloop.cli.commands import run  # noqa: PLC0415 -- it takes half a second

        code = run(_arguments(), was_interrupted)
    except BaseException as error:
        if not (isinstance(error, KeyboardInterrupt) or was_interrupted()):
            raise
        _end_interrupted()
    _end(code)


def _open_streams() -> None:
    """Open closed streams, or the next file would become our output; write any character in any encoding."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _arguments() -> list[str]:
    """Return the arguments as UTF-8, also in another locale or without one.

    Undecodable bytes stay as Python's surrogates.
    """
    with suppress(UnicodeDecodeError):
        return [os.fsencode(each).decode() for each in sys.argv[1:]]
    return sys.argv[1:]


def _watch_interrupts() -> Callable[[], bool]:
    """Return a function that reports whether Ctrl-C came since its last call.

    The exception may be lost: pydantic makes a SchemaError of an exception that is raised while it
    builds one, and exceptions in destructors (an import has some, too) are ignored. A handler would not
    lose it, but asyncio ends its work in order only without one.
    """
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def end_if_interrupted(ignored: "sys.UnraisableHookArgs") -> None:
        if ignored.exc_type is KeyboardInterrupt:
            _end_interrupted()
        sys.__unraisablehook__(ignored)

    sys.unraisablehook = end_if_interrupted

    def was_interrupted() -> bool:
        try:
            return signal.SIGINT in os.read(reader, 4096)
        except BlockingIOError:
            return False

    return was_interrupted


def _end_interrupted() -> NoReturn:
    sys.stderr.write("everloop: interrupted\n")
    _end(_INTERRUPTED)


def _end(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader closed it
            code = code or _FAILED
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(code)


if __name__ == "__main__":
    main()
