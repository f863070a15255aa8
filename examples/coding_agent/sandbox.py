"""A shell that sees one directory, cannot write to it, and has no network: bubblewrap, with limits.

It isolates from the rest of the disk except programs (/usr and the folders linked into it), other
processes, the network, the worker's environment with its keys, and privileges. It does not isolate from
the host's kernel, whose vulnerabilities are a way out; programs may use as much of the machine as the
limits below permit. For untrusted code use a virtual machine.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

SECONDS = 20
"""Time limit of a command."""

LIMITS = {
    "--cpu": 20,  # seconds of each process
    "--as": 2_000_000_000,  # bytes of memory of each process
    "--nproc": 256,
    "--fsize": 50_000_000,  # bytes of a file
    "--core": 0,
}
SHOWN = 20_000
"""Bytes of the output that are kept, its beginning and its end."""

SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/sbin")


class NoSandboxError(Exception):
    """The sandbox is unavailable, so no command is run."""


def command_line(directory: Path, command: str) -> list[str]:
    """Return the command line that runs a command of bash in the sandbox.

    Raises:
        NoSandboxError: bubblewrap or prlimit is not installed.
    """
    bubblewrap, prlimit = shutil.which("bwrap"), shutil.which("prlimit")
    if not bubblewrap or not prlimit:
        raise NoSandboxError(
            "no command is run without a sandbox: install bubblewrap (apt install bubblewrap) on Linux; "
            "other systems have none"
        )
    return [
        prlimit,
        *(f"{name}={limit}" for name, limit in LIMITS.items()),
        bubblewrap,
        *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--ro-bind", "/usr", "/usr"),
        *_system(),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 -- its own, inside
        *("--ro-bind", str(directory), "/work", "--chdir", "/work"),
        *("--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME", "/tmp"),  # noqa: S108 -- as above
        *("--", "bash", "-c", command),
    ]


def _system() -> Iterator[str]:
    """Yield the options for the folders of programs that are links into /usr, or folders of their own."""
    for folder in map(Path, SYSTEM):
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.exists():
            yield from ("--ro-bind", str(folder), str(folder))


async def run(directory: Path, command: str) -> tuple[int | None, str]:
    """Run a command of bash; return its exit code (None: it timed out) and its output.

    Raises:
        NoSandboxError: the sandbox is not installed, or the kernel does not permit it.
    """
    process = await asyncio.create_subprocess_exec(
        *command_line(directory, command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env={},  # bubblewrap's own process can be looked at from inside
    )
    written = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            await _read(process, written)
            code = await process.wait()
    except TimeoutError:
        code = None
    finally:  # also when the call is cancelled
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # ends all processes in bubblewrap, too
        await process.communicate()  # asyncio waits for the end of the output, too
    text = written.decode(errors="replace")
    if text.startswith("bwrap: "):
        raise NoSandboxError(f"no command is run without a sandbox, and none works here: {text.strip()}")
    return code, text


async def _read(process: asyncio.subprocess.Process, written: bytearray) -> None:
    """Keep the beginning and the end of a process's output."""
    assert process.stdout  # noqa: S101 -- it is a pipe
    while piece := await process.stdout.read(65_536):
        written += piece
        if len(written) > SHOWN:
            half = SHOWN // 2
            written[:] = written[:half] + b"\n[...]\n" + written[-half:]
