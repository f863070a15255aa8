"""OpenStack Swift as an S3 server: a real one, which checks signatures and checksums and keeps everything.

A process for each of its four servers, all on the loopback interface, with their files in one directory. It
has to take extended attributes: ext4, xfs and overlayfs do, and tmpfs since Linux 6.6.
"""

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everloop.deploy.local.servers import LOOPBACK, free_port
from tests.support.servers.processes import ROOT, ServerProcess, wait_until_answers

ACCESS_KEY = "test:tester"
SECRET = "testing"

DEVICE = "disk"
"""The folder that holds what is stored."""

_STORAGE = ("account", "container", "object")

_COMMON = """\
[swift-hash]
swift_hash_path_prefix = everloop
[storage-policy:0]
name = single
default = yes
"""

# Without `workers` a server is one process; `no-syslog` is not there, so that it logs to its output alone.
_SERVER = """\
[DEFAULT]
bind_ip = {host}
bind_port = {port}
workers = 0
user = {user}
swift_dir = {directory}
devices = {directory}
mount_check = false
disable_fallocate = true
log_address = {directory}/no-syslog
"""

_STORAGE_SERVER = """\
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""

_FILTERS = {
    "catch_errors": "",
    "gatekeeper": "",
    "listing_formats": "",
    "s3api": "location = us-east-1\n",
    "tempauth": f"user_{ACCESS_KEY.replace(':', '_')} = {SECRET} .admin\n",
    "slo": "",
}
"""What a request goes through, in this order, with the settings of each."""

_PROXY_SERVER = f"""\
[pipeline:main]
pipeline = {" ".join(_FILTERS)} proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
error_suppression_interval = 0
""" + "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n{settings}" for name, settings in _FILTERS.items())


class SwiftServer:
    """The processes of one Swift; it can be stopped and started again with what it holds."""

    def __init__(self, directory: Path) -> None:
        self._ports = {kind: free_port() for kind in (*_STORAGE, "proxy")}
        self.endpoint = f"http://{LOOPBACK}:{self._ports['proxy']}"
        self._processes = {
            kind: ServerProcess(command, directory / f"{kind}.log")
            for kind, command in swift_commands(directory, self._ports).items()
        }

    async def start(self) -> None:
        """Start all processes; return when they listen."""
        for process in self._processes.values():
            process.start()
        for kind, process in self._processes.items():
            port = self._ports[kind]

            async def listens(port: int = port) -> bool:
                return _listens(port)

            await wait_until_answers(process, listens, f"swift's {kind} server")

    def stop(self) -> None:
        """End all processes that run."""
        for process in self._processes.values():
            if process.is_running():
                process.kill()


@asynccontextmanager
async def running_swift(directory: Path) -> AsyncGenerator[SwiftServer]:
    """Yield a Swift that answers at its `endpoint`; what it holds lies in the directory.

    Where it cannot work, the test that asks for it is skipped.
    """
    require_extended_attributes(directory)
    server = SwiftServer(directory)
    try:
        await server.start()
        yield server
    finally:
        server.stop()


def swift_commands(directory: Path, ports: dict[str, int], host: str = LOOPBACK) -> dict[str, list[str]]:
    """Return the command of each server of a Swift whose files are in the directory; `host`: of its proxy."""
    _prepare(directory, ports, host)
    binaries = Path(sys.executable).parent
    return {kind: [str(binaries / f"swift-{kind}-server"), str(directory / f"{kind}.conf")] for kind in ports}


def _prepare(directory: Path, ports: dict[str, int], host: str) -> None:
    """Write the settings of each server, and the rings, which say which of them holds what."""
    (directory / DEVICE).mkdir()
    (directory / "swift.conf").write_text(_COMMON)
    user = pwd.getpwuid(os.getuid()).pw_name
    for kind, port in ports.items():
        bound = host if kind == "proxy" else LOOPBACK
        server = _SERVER.format(host=bound, port=port, user=user, directory=directory)
        app = _PROXY_SERVER if kind == "proxy" else _STORAGE_SERVER.format(kind=kind)
        (directory / f"{kind}.conf").write_text(server + app)
    rings = [f"{kind}={ports[kind]}" for kind in _STORAGE]
    subprocess.run(
        [sys.executable, "-m", "tests.support.servers.swift_rings", directory, DEVICE, *rings],
        cwd=ROOT,
        check=True,
    )


def require_extended_attributes(directory: Path) -> None:
    """Skip the test where Swift cannot keep files in this directory."""
    if sys.platform != "linux":
        pytest.skip("swift is installed on Linux only")
    try:
        os.setxattr(directory, "user.everloop", b"1")
    except OSError as error:
        pytest.skip(f"swift needs extended attributes, which {directory} does not take: {error.strerror}")


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
