"""nginx from Debian, installed or only unpacked, before several gateways."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

_CONFIGURATION = """\
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/bodies;
    proxy_temp_path {directory}/answers;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_max_body_size 16m;
    upstream gateways {{
{servers}
    }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://gateways;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_buffering off;
            proxy_connect_timeout 2s;
            proxy_read_timeout 620s;
            proxy_next_upstream error timeout http_502 http_503 http_504 non_idempotent;
        }}
    }}
}}
"""


@cache
def require_nginx() -> str:
    """Return the path of nginx.

    If it is not in PATH it is downloaded from Debian and unpacked, not installed.
    """
    if found := shutil.which("nginx"):
        return found
    unpacked = Path(tempfile.gettempdir(), f"everloop-nginx-{os.getuid()}")
    binary = unpacked / "usr/sbin/nginx"
    try:
        if not binary.exists():
            _unpack(unpacked)
        subprocess.run([binary, "-v"], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"nginx is neither installed nor to be had with apt-get ({error})")
    return str(binary)


def _unpack(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        _fetch(Path(folder))
        package = next(Path(folder).glob("nginx_*.deb"))
        subprocess.run(["dpkg", "-x", package, f"{folder}/unpacked"], check=True, capture_output=True)
        if not target.exists():
            Path(folder, "unpacked").rename(target)


def _fetch(folder: Path) -> None:
    """Download the package; the lists of packages are downloaded only if they are missing or old."""
    download = ["apt-get", "download", "nginx"]
    if subprocess.run(download, cwd=folder, check=False, capture_output=True, timeout=60).returncode:
        subprocess.run(["apt-get", "update"], check=True, capture_output=True, timeout=120)
        subprocess.run(download, cwd=folder, check=True, capture_output=True, timeout=60)


def nginx_command(binary: str, directory: Path, listen: str, gateways: Sequence[str]) -> list[str]:
    """Return the command of a proxy that listens on `host:port` for these gateways, each `host:port`."""
    directory.mkdir()
    servers = "\n".join(f"        server {one} max_fails=1 fail_timeout=5s;" for one in gateways)
    text = _CONFIGURATION.format(directory=directory, listen=listen, servers=servers)
    configuration = directory / "nginx.conf"
    configuration.write_text(text)
    return [binary, "-p", str(directory), "-c", str(configuration), "-e", "stderr"]
