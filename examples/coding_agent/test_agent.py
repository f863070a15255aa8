"""The abilities and limits of the agent, on real servers; a script takes the place of the model."""

import socket
import subprocess
from pathlib import Path

import pytest
import sandbox
from agent import agent
from workspace import Workspace

from everloop.testing import Script, StartApp, call

ADDS = "def add(a, b):\n    return a - b\n"
TRIES = 'python3 -c "from sums import add; assert add(2, 2) == 4"'
FIXES = call("edit_file", path="sums.py", old="a - b", new="a + b")


def has_sandbox() -> bool:
    """Return whether bubblewrap is installed, and permitted by the kernel."""
    try:
        command = sandbox.command_line(Path.cwd(), "true")
    except sandbox.NoSandboxError:
        return False
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


needs_sandbox = pytest.mark.skipif(
    not has_sandbox(), reason="no bubblewrap here, or it may make no namespaces"
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The agent's working directory; a secret lies beside it."""
    (tmp_path / "secret").write_text("hidden")
    work = tmp_path / "work"
    work.mkdir()
    (work / "sums.py").write_text(ADDS)
    monkeypatch.setenv("CODING_DIRECTORY", str(work))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    return work


@needs_sandbox
async def test_it_tries_changes_and_tries_again(everloop_app: StartApp, directory: Path) -> None:
    """Nothing is written before a person has seen and approved it, though the worker dies meanwhile."""
    script = Script(call("run", command=TRIES), FIXES, call("run", command=TRIES), "It adds now.")
    app = await everloop_app(agent, model=script, worker="process")

    asked = await app.ask("add(2, 2) is wrong. Mend it.")
    assert asked.questions[0].arguments == {"path": "sums.py", "old": "a - b", "new": "a + b"}
    await app.kill_worker()
    assert (directory / "sums.py").read_text() == ADDS
    result = await app.approve(asked)

    assert (result.text, (directory / "sums.py").read_text()) == ("It adds now.", ADDS.replace("-", "+"))
    assert [str(made.result).splitlines()[0] for made in result.tool_calls] == [
        "exit code 1",
        "changed",
        "exit code 0",
    ]


async def test_a_no_leaves_the_file_alone(everloop_app: StartApp, directory: Path) -> None:
    """The model reads the reason."""
    script = Script(FIXES, "It stays.")
    app = await everloop_app(agent, model=script)

    asked = await app.ask("Mend it.")
    result = await app.approve(asked, approved=False, note="add is used as minus everywhere")

    assert (result.tool_calls[0].outcome, (directory / "sums.py").read_text()) == ("rejected", ADDS)
    assert "as minus everywhere" in script.requests[-1].results[-1]


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "link", "link/below", ".git/hooks/pre-commit", "."]
)
def test_no_path_leads_out(directory: Path, path: str) -> None:
    """Neither up, nor by a link, nor to the hooks that git would run."""
    (directory / "link").symlink_to(directory.parent / "secret")
    with pytest.raises(ValueError, match=r"not in the directory|belongs to git"):
        Workspace(directory).write(path, "mine")

    assert (directory.parent / "secret").read_text() == "hidden"


@needs_sandbox
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("cat sums.py", "return a - b"),
        ("echo mine > /tmp/file && cat /tmp/file", "mine"),
        ("echo mine > sums.py", "Read-only file system"),
        ("cat ../secret /etc/shadow", "No such file or directory"),
        ("env | grep -c sk-secret", "0"),
        ("cat /proc/1/environ | grep -c sk-secret", "0"),
        ("python3 -c 'bytearray(5_000_000_000)'", "MemoryError"),
        ("yes", "[...]"),
    ],
)
async def test_a_command_sees_the_directory_and_little_else(
    directory: Path, command: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No keys, no other files, no writing, and an end of time, memory and output."""
    monkeypatch.setattr(sandbox, "SECONDS", 3)
    _, written = await sandbox.run(directory, command)

    assert says in written
    assert len(written) < 2 * sandbox.SHOWN
    assert (directory / "sums.py").read_text() == ADDS


@needs_sandbox
async def test_a_command_has_no_network(directory: Path) -> None:
    """Not even that of this machine, where a server listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1/{server.getsockname()[1]}"
        _, written = await sandbox.run(directory, f"echo > /dev/tcp/{address} && echo reached")

    assert "refused" in written
    assert "reached" not in written


async def test_without_a_sandbox_nothing_runs(
    everloop_app: StartApp, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model reads the missing program; no command runs outside."""
    app = await everloop_app(agent, model=Script(call("run", command="touch /tmp/ran"), "I cannot."))
    monkeypatch.setenv("PATH", str(directory))

    result = await app.ask("Try it.")

    assert "install bubblewrap" in str(result.tool_calls[0].result)
