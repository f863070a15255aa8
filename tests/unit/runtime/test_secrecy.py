"""Protection of our secrets from other processes of the same machine."""

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from everloop.runtime.environment import warn_of_readers

ROOT = Path(__file__).parents[3]
PARENT = f"""
import ctypes, os, sys
sys.path.insert(0, {str(ROOT)!r})
from everloop.runtime.environment import hide_environment
if os.getuid() == 0:  # who may read everything
    os.setgid(65534)
    os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as after execve
if sys.argv[1:]:
    hide_environment()
parent, child = os.getpid(), os.fork()
if not child:
    try:
        found = b"s3cret" in open(f"/proc/{{parent}}/environ", "rb").read()
    except PermissionError:
        found = False
    os._exit(found)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc")
@pytest.mark.parametrize("hides", [True, False])
def test_a_child_cannot_read_the_environment_of_a_worker(*, hides: bool) -> None:
    """For example MCP servers, which are processes of the same user. Root still could."""
    command = [sys.executable, "-B", "-c", PARENT, *(["hide"] if hides else [])]

    parent = subprocess.run(command, env={"OPENAI_API_KEY": "s3cret"}, check=False)

    assert parent.returncode == (0 if hides else 1)


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_of_secrets_that_everybody_can_read_is_told(tmp_path: Path, mode: int, *, warns: bool) -> None:
    """By its name."""
    path = tmp_path / "keys"
    path.touch()
    path.chmod(mode)

    with capture_logs() as logs:
        warn_of_readers(path)

    assert [line["file"] for line in logs] == [str(path)] * warns
