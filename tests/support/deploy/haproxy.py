"""HAProxy from Debian, installed or only unpacked."""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

_PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
"""The program, and those of its libraries that some machines lack."""


@cache
def require_haproxy() -> tuple[str, dict[str, str]]:
    """Return the path of haproxy and its environment; without one the test is skipped."""
    if found := shutil.which("haproxy"):
        return found, dict(os.environ)
    unpacked = Path(tempfile.gettempdir(), f"everloop-haproxy-{os.getuid()}")
    try:
        if not unpacked.exists():
            _unpack(unpacked)
        libraries = {str(library.parent) for library in unpacked.rglob("*.so*")}
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))}
        binary = str(unpacked / "usr/sbin/haproxy")
        subprocess.run([binary, "-v"], check=True, capture_output=True, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"haproxy is neither installed nor to be had with apt-get ({error})")
    return binary, environment


def _unpack(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        download = ["apt-get", "download", *_PACKAGES]
        subprocess.run(download, cwd=folder, check=True, capture_output=True, timeout=60)
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, f"{folder}/unpacked"], check=True, capture_output=True)
        if not target.exists():
            Path(folder, "unpacked").rename(target)
