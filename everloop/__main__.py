"""The command `everloop`, from its first moment: Ctrl-C ends it without a trace also while it is imported.

What stands at the head of this module is loaded in no time: until `main` begins, Ctrl-C still shows one.
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
    """Run the command of this process's arguments, and end the process."""
    _open_streams()
    was_interrupted = _watch_interrupts()
    try:
        from everloop.cli.app import run  # noqa: PLC0415 -- it takes half a second

        code = run(_arguments(), was_interrupted)
    except BaseException as error:
        if not (isinstance(error, KeyboardInterrupt) or was_interrupted()):
            raise
        _end_interrupted()
    _end(code)


def _open_streams() -> None:
    """Open what is closed, or the next file would be our output; write any letter, in whatever encoding."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _arguments() -> list[str]:
    """Return the arguments, in UTF-8 also where the locale says something else, or nothing.

    What is in another encoding keeps what Python puts in the place of its bytes.
    """
    with suppress(UnicodeDecodeError):
        return [os.fsencode(each).decode() for each in sys.argv[1:]]
    return sys.argv[1:]


def _watch_interrupts() -> Callable[[], bool]:
    """Return what tells whether Ctrl-C came since it was last asked.

    Its exception may be lost: pydantic makes a SchemaError of what is raised while it builds one, and what
    is raised where an object is deleted (an import does that, too) is ignored. A handler would not lose it,
    but asyncio ends its work in order only where there is none.
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
        except OSError:  # whoever read it went away
            code = code or _FAILED
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(code)


if __name__ == "__main__":
    main()
