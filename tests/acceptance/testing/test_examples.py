"""The examples of docs/agents/testing.md are a project of its own, whose tests pass, side by side."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.servers.processes import ROOT, until

PAGE = ROOT / "docs/agents/testing.md"
FILES = re.findall(
    r"^```(?:python|toml)\n# ([\w.]+)\n(.+?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
TESTS = 9

NOTES_SERVERS = """
import os
from pathlib import Path

def pytest_sessionfinish():
    from everloop.testing import shared_servers as servers
    if servers._joined_by:
        Path(f"servers-of-{os.getpid()}").write_text(servers._joined_by[2].temporal)
"""

HANGS = """
from everloop.testing import Script, call, running
from shop import agent

async def test_that_never_ends(tmp_path):
    script = Script(call("send_mail"))
    async with running(agent, model=script, worker="process", settings={"LEDGER": "ledger"}) as app:
        await app.ask("Sell it")
"""


@pytest.mark.slow
async def test_the_examples_pass_and_share_servers(tmp_path: Path) -> None:
    """Also in two processes with one set of servers; nothing of it is left behind."""
    _write_project(tmp_path)
    (tmp_path / "conftest.py").write_text(NOTES_SERVERS, encoding="utf-8")

    process = await _start(tmp_path, "-m", "pytest", "-q", "-n", "2", "-W", "error")
    output, _ = await process.communicate()
    assert (process.returncode, f"{TESTS} passed" in output.decode()) == (0, True), output.decode()
    noted = [file.read_text(encoding="utf-8") for file in tmp_path.glob("servers-of-*")]
    assert (len(noted), len(set(noted))) == (2, 1)

    process = await _start(tmp_path, "script.py")
    output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"Sunny.\n")
    await until(lambda: not [*(tmp_path / "tmp").glob("everloop-testing-*/[!l]*")])


async def test_pytest_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    """Neither the servers nor a worker of its own, at any point of the test."""
    _write_project(tmp_path)
    (tmp_path / "test_hangs.py").write_text(HANGS, encoding="utf-8")
    process = await _start(tmp_path, "-m", "pytest", "-q", "-k", "never_ends")
    await until((tmp_path / "ledger").exists)
    all_of_it = [each for each in psutil.process_iter() if _is_of(each, tmp_path)]
    assert len(all_of_it) == 5  # pytest, its worker, Temporal, Valkey, and their supervisor

    process.send_signal(signal.SIGKILL)

    await until(lambda: not [each for each in all_of_it if _is_of(each, tmp_path)])
    await process.communicate()


def _write_project(directory: Path) -> None:
    for name, text in FILES:
        (directory / name).write_text(text, encoding="utf-8")


def _is_of(process: psutil.Process, directory: Path) -> bool:
    """True if a process runs in a directory."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(directory)
    except (psutil.Error, OSError):
        return False


async def _start(directory: Path, *arguments: str) -> asyncio.subprocess.Process:
    (directory / "tmp").mkdir(exist_ok=True)
    ours = {
        "TMPDIR": str(directory / "tmp"),
        "EVERLOOP_REDIS_URL": "redis://of-somebody-else",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=directory,
        env={**os.environ, **ours},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
