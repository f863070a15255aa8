"""The command `everloop` in an unusual environment: it works, or prints one line with the remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everloop.cli.commands import run
from everloop.cli.server_commands import read_env, use_env
from tests.support.servers.processes import ROOT
from tests.unit.cli.test_command_line import everloop_command

FULL = Path("/dev/full")


def in_shell(line: str, *, optimize: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell with the command `everloop`, and its Python as `$PYTHON`."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "EVERLOOP_", "LC_", "LANG"))
    }
    python = f"{sys.executable} {optimize}"
    return subprocess.run(
        ["sh", "-c", f'everloop() {{ {python} -m everloop "$@"; }}; {line}'],
        env={**kept, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_nowhere(closed: str) -> None:
    """As services start: no output is written, and no later file takes its descriptor."""
    done = in_shell(f"everloop --version {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    failed = in_shell(f"everloop nonsense {closed}")
    assert (failed.returncode, "Traceback" in failed.stderr) == (2, False)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["--version", "--help", "doctor --json"])
def test_a_full_output_is_told(command: str) -> None:
    """With the reason, and exit code 1."""
    done = in_shell(f"everloop {command} >{FULL}")
    assert (done.returncode, done.stderr) == (
        1,
        "everloop: the output cannot be written: No space left on device; free some, or write it elsewhere\n",
    )


def test_an_output_that_knows_fewer_letters_gets_others_in_their_place(tmp_path: Path) -> None:
    """Umlauts and marks do not fail; in JSON they are escaped."""
    add = "everloop profiles add home http://grün.example --auth none"
    variables = {"PYTHONIOENCODING": "ascii", "XDG_CONFIG_HOME": str(tmp_path)}
    done = in_shell(f"{add} >/dev/null; everloop profiles list; everloop profiles list --json", **variables)
    assert done.returncode == 0
    assert "http://gr?n.example" in done.stdout
    assert r"http://gr\u00fcn.example" in done.stdout


@pytest.mark.parametrize(
    "variables", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}], ids=str
)
def test_arguments_are_read_in_utf_8_whatever_the_locale(variables: dict[str, str]) -> None:
    """Without a locale, as in containers and services, arguments are UTF-8 too."""
    done = in_shell("everloop send grüß --profile http://127.0.0.1:9", **variables)
    assert done.returncode == 1
    assert done.stderr.startswith("everloop: no answer from http://127.0.0.1:9 ")


def test_an_argument_in_another_encoding_is_told() -> None:
    """With its position, and the expected encoding."""
    done = in_shell("everloop send \"$(printf 'gr\\374n')\" --profile http://127.0.0.1:9")
    assert (done.returncode, done.stderr) == (
        2,
        "everloop: argument 2 is not in UTF-8; set the terminal to UTF-8, or give the text by a file\n",
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_file_of_a_folder_is_read_in_the_usual_encodings(tmp_path: Path, encoding: str) -> None:
    """PowerShell writes UTF-16, old editors Windows-1252."""
    (tmp_path / ".env").write_bytes("# Schlüssel\nEVERLOOP_MODEL=größe/modell\n".encode(encoding))
    assert read_env(tmp_path) == {"EVERLOOP_MODEL": "größe/modell"}


def test_a_file_of_a_folder_that_is_no_text_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_bytes(b"\0\1\xff\xfe")
    assert run(["keys", "list"]) == 1
    assert capsys.readouterr().err == (
        f"everloop: {tmp_path / '.env'} is no text in UTF-8; save it as that, or remove it\n"
    )


def test_an_empty_variable_does_not_hide_that_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty counts as not set, everywhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("OPENAI_API_KEY=of-file\nEVERLOOP_MODEL=of-file\n")
    monkeypatch.setattr(os, "environ", {"OPENAI_API_KEY": "", "EVERLOOP_MODEL": "of-environment"})
    use_env()
    assert os.environ == {"OPENAI_API_KEY": "of-file", "EVERLOOP_MODEL": "of-environment"}


UNUSABLE = {
    "EVERLOOP_MODEL": ("ollama/\udcff", "EVERLOOP_MODEL is not in UTF-8"),
    "SSL_CERT_FILE": (
        "/nowhere/ca.pem",
        "SSL_CERT_FILE names /nowhere/ca.pem, which cannot be used (No such",
    ),
    "all_proxy": ("socks://user:hunter2@127.0.0.1:9", "ALL_PROXY is no address of a proxy; expected http"),
    "HTTPS_PROXY": ("http://proxy:many", "HTTPS_PROXY is no address of a proxy"),
}


@pytest.mark.parametrize("command", ["worker", "gateway"])
@pytest.mark.parametrize("variable", UNUSABLE)
def test_a_process_names_the_variable_that_a_library_would_fail_on(command: str, variable: str) -> None:
    """In one line, at its start, and without a possible password."""
    value, line = UNUSABLE[variable]
    agents = {"EVERLOOP_AGENTS": "everloop.examples.conformance_agent:agent", "EVERLOOP_MODEL": "ollama/x"}
    done = everloop_command(command, directory=ROOT, **{**agents, variable: value})
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert done.stderr.startswith(f"{command}: {line}")
    assert "hunter2" not in done.stderr


def test_what_others_set_in_another_encoding_does_no_harm() -> None:
    """The native part of Temporal's SDK panicked over it, and printed it."""
    done = everloop_command("schedules", "list", GREETING="gr\udcfc", TEMPORAL_ADDRESS="127.0.0.1:9")
    assert done.returncode == 1
    assert done.stderr.startswith("everloop: cannot reach Temporal at 127.0.0.1:9: ")
    told = everloop_command("schedules", "list", TEMPORAL_NAMESPACE="gr\udcfc")
    assert (told.returncode, told.stderr) == (
        1,
        "everloop: TEMPORAL_NAMESPACE is not in UTF-8; write it in UTF-8\n",
    )


@pytest.mark.parametrize("command", ["everloop worker", "everloop gateway", "$PYTHON -OO -m everloop.worker"])
def test_processes_that_lack_docstrings_say_so(command: str) -> None:
    """Models read docstrings of tools. Processes that need none work."""
    done = in_shell(command, optimize="-OO")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert done.stderr.startswith("everloop: Python runs with -OO ")
    assert in_shell("everloop --version", optimize="-OO").returncode == 0
