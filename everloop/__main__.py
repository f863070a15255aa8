"""The command `everloop`, from its first moment: Ctrl-C ends it without a trace also while it is imported.

What stands at the head of this module is loaded in no time: until `main` begins, Ctrl-C still shows one.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

_FAILED, _INTERRUPTED = 1, 130


def main() -> None:
    """Run the command of this process's arguments, and end the process."""
    was_interrupted = _watch_interrupts()
    try:
        from everloop.cli.app import run  # noqa: PLC0415 -- it takes half a second

        code = run(sys.argv[1:], was_interrupted)
    except BaseException as error:
        if not (isinstance(error, KeyboardInterrupt) or was_interrupted()):
            raise
        _end_interrupted()
    _end(code)


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
