"""One stack per directory."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from everloop.deploy.local.errors import AlreadyRunningError


@contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the directory, which is made if needed; the kernel gives it back when this process dies.

    Raises:
        AlreadyRunningError: another process holds it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)  # it holds what tasks said, and logs
    with (directory / "lock").open("a+", encoding="utf-8") as file:
        file.seek(0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(
                f"a stack runs in {directory} already (process {file.read().strip() or 'unknown'}); "
                "stop it first, or keep another one elsewhere: everloop up --directory PATH"
            ) from None
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
