"""The command `everloop` as a process: help, errors, tab completion, output for programs."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from everloop.cli.commands import run
from everloop.cli.output import print_table, report
from everloop.cli.server_commands import addresses_of_stack, use_local_stack
from tests.support.servers.fork_server import can_fork, forked
from tests.support.servers.processes import ROOT

COMMANDS = (
    *("up", "new", "add", "demo", "dev", "conformance", "worker", "gateway"),
    *("send", "chat", "tasks", "artifacts", "contexts", "agents", "profiles"),
    *("keys", "schedules", "housekeeping", "reindex", "temporal", "doctor"),
)
TIMEOUT = 60.0
HEAD, ROWS = ("ID", "NOTE"), [("a", "[bold]as it is[/bold]"), ("b", "\x1b[2J gone?")]


def everloop_command(
    *arguments: str, directory: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command, without variables of Temporal or Redis except the given ones."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "EVERLOOP_", "COLUMNS"))}
    command = [sys.executable, "-m", "everloop", *arguments]
    environment = {**kept, "PYTHONPATH": str(ROOT), **variables}
    if not can_fork(command, environment):
        return subprocess.run(
            command, env=environment, cwd=directory, capture_output=True, text=True, check=False
        )
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        code = forked(command, [Path(os.devnull), out, err], environment, directory).wait(TIMEOUT)
        return subprocess.CompletedProcess(command, code, out.read_text(), err.read_text())


def test_the_help_names_every_command() -> None:
    """In plain text without a terminal, and within 80 columns."""
    done = everloop_command("--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    listed = re.findall(r"^│ ([a-z]+) ", done.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_help_loads_nothing_that_commands_need() -> None:
    """It answers at once, as tab completion does."""
    program = (
        "import sys; from everloop.cli.commands import run; "
        "early = {'pydantic', 'rich'} & sys.modules.keys(); "
        "run(['schedules', 'add', '--help']); "
        "names = {'temporalio', 'a2a', 'httpx', 'httpx2', 'redis', 'prompt_toolkit'}; "
        "sys.exit(str(sorted(early | names & sys.modules.keys())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert "--overlap" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--verbose"], "no such option: --verbose (Possible options: --version); see `everloop --help`"),
        (["schedule"], "no such command 'schedule'. Did you mean 'schedules'? See `everloop --help`"),
        (
            ["worker", "--queues", "model,"],
            "--queues: 'model,' has an empty name; give names separated by commas",
        ),
        (
            ["profiles", "add", "x", "http://h", "--auth", "foo"],
            "invalid value for '--auth': 'foo' is not one of 'api-key', 'token', 'none'; see `everloop prof",
        ),
        (["tasks", "list", "--state", "done"], "--state: there is no state 'done'; there are unspecified,"),
        (["send", "Look.", "--file", "-", "--file", "-"], "stdin can be one file only; give `-` once"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with the way to the help, and exit code 2."""
    assert run(arguments) == 2

    said = capsys.readouterr()
    assert said.out == ""
    (told,) = said.err.splitlines()
    assert told.startswith(f"everloop: {line}")


def test_a_worker_that_was_given_no_agents_says_whose_lacks_a_model(tmp_path: Path) -> None:
    """Otherwise its user searches their own files for an agent that they never wrote."""
    done = everloop_command("worker", directory=tmp_path, OPENAI_API_KEY="")

    assert done.returncode == 1
    assert "agent 'demo' names no model: set EVERLOOP_MODEL" in done.stderr
    assert done.stderr.endswith("; it is the demo agent, because EVERLOOP_AGENTS names none\n")


def test_an_address_without_its_scheme_is_no_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the beginning of an address, because an address was meant."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert run(["send", "hello", "--profile", "localhost:8080"]) == 2

    said = capsys.readouterr().err
    assert "no profile 'localhost:8080'" in said
    assert said.endswith("; an address begins with http:// or https://\n")


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"OPENAI_API_KEY": "x"}, "OPENAI_API_KEY or OPENAI_BASE_URL is set, but EVERLOOP_MODEL is not"),
        ({"OPENAI_BASE_URL": "http://p/v1"}, "OPENAI_API_KEY or OPENAI_BASE_URL is set, but EVERLOOP_MODEL"),
        ({"EVERLOOP_PORT": "70000"}, "EVERLOOP_PORT: "),
    ],
)
def test_settings_of_a_stack_that_cannot_work_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    line: str,
) -> None:
    """Nothing is started; the line names the variable, and the exit code is 1."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "EVERLOOP_MODEL"):
        monkeypatch.setenv(name, variables.get(name, ""))
    monkeypatch.setenv("EVERLOOP_PORT", variables.get("EVERLOOP_PORT", ""))

    assert run(["up", "--directory", str(tmp_path / "state")]) == 1

    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"everloop: {line}")


@pytest.mark.parametrize("command", ["up", "demo"])
def test_where_no_state_can_be_kept_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """It names the folder, the problem, and the way to choose another one."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "EVERLOOP_MODEL", "EVERLOOP_PORT"):
        monkeypatch.setenv(name, "")
    (file := tmp_path / "file").touch()

    assert run([command, "--directory", str(file / "state")]) == 1

    told = capsys.readouterr().err
    assert told.startswith(f"everloop: cannot keep state in {file / 'state'}: Not a directory; ")
    assert told.endswith("keep state elsewhere: --directory PATH\n")


def test_a_misspelt_setting_of_a_project_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the terminal, not only in the logs of the processes; the right name is suggested."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").touch()
    (tmp_path / ".env").write_text("EVERLOOP_MODLE=ollama/qwen3\n")
    monkeypatch.setenv("EVERLOOP_MODLE", "")  # so that it is restored: the command loads the values of `.env`
    (file := tmp_path / "file").touch()

    assert run(["dev", "--directory", str(file / "state")]) == 1

    (line,) = (line for line in capsys.readouterr().out.splitlines() if "EVERLOOP_MODLE" in line)
    assert line.endswith("it changes nothing; did you mean EVERLOOP_MODEL?")


@pytest.mark.parametrize("is_grouped", [False, True])
def test_what_nobody_foresaw_is_a_line_without_values(
    capsys: pytest.CaptureFixture[str], *, is_grouped: bool
) -> None:
    """A message, or a variable, may hold a secret: the line names the place, not the value."""
    with pytest.raises(KeyError) as unforeseen:
        {}["hunter2"]

    assert (
        report(ExceptionGroup("of a task group", [unforeseen.value]) if is_grouped else unforeseen.value) == 1
    )

    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        rf"everloop: this should not happen: KeyError at {re.escape(__file__)}:\d+; please report it", line
    )


def test_a_broken_installation_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    """It names the missing module and the remedy."""
    assert report(ModuleNotFoundError("No module named 'redis'", name="redis")) == 1

    assert capsys.readouterr().err == (
        "everloop: the module 'redis' is missing: install Everloop again in this environment\n"
    )


def test_tables_are_plain_where_programs_read_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns without colours, in full width; cells contain neither markup nor control sequences."""
    print_table(HEAD, [*ROWS, ("c", "x" * 300)])

    assert capsys.readouterr().out.splitlines() == [
        "ID  NOTE",
        "a   [bold]as it is[/bold]",
        "b   \\u001b[2J gone?",
        f"c   {'x' * 300}",
    ]


def running_beside(directory: Path, temporal_address: str) -> None:
    """Write the record of a stack that runs in this directory."""
    (directory / ".everloop").mkdir()
    ports = {"temporal": int(temporal_address.rpartition(":")[2])}
    (directory / ".everloop" / "ports.json").write_text(json.dumps(ports))
    (directory / ".everloop" / "redis-url").write_text("redis://:secret@127.0.0.1:1/0")


def test_temporals_command_finds_the_stack_of_the_directory(tmp_path: Path, temporal_address: str) -> None:
    """Unless the environment, or an option, names another server.

    The exit code is that of Temporal's command.
    """
    running_beside(tmp_path, temporal_address)
    ask = ("temporal", "operator", "namespace", "describe", "--command-timeout", "5s")

    found = everloop_command(*ask, "default", directory=tmp_path)
    told = everloop_command(*ask, "default", directory=tmp_path, TEMPORAL_ADDRESS="127.0.0.1:1")
    given = everloop_command(*ask, "default", "--address", "127.0.0.1:2", directory=tmp_path)
    other = everloop_command(*ask, "-n", "no-such", directory=tmp_path)

    assert (found.returncode, "NamespaceInfo.Name" in found.stdout) == (0, True), found.stderr
    assert (told.returncode, "127.0.0.1:1" in told.stderr) == (1, True)
    assert (given.returncode, "127.0.0.1:2" in given.stderr) == (1, True)
    assert (other.returncode, "no-such" in other.stderr) == (1, True)


def test_a_stack_that_does_not_run_is_not_found(tmp_path: Path) -> None:
    """Its ports may be free or used by other processes; a broken record is ignored."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        running_beside(tmp_path, f"127.0.0.1:{unused.getsockname()[1]}")
        assert addresses_of_stack(tmp_path / ".everloop") == {}
    (tmp_path / ".everloop" / "ports.json").write_text("[]")
    assert addresses_of_stack(tmp_path / ".everloop") == {}


NO_KEYS = "EVERLOOP_ENCRYPTION_KEYS_FILE: the file cannot be read"


@pytest.mark.parametrize(
    ("command", "variable", "told"),
    [
        ("worker", "EVERLOOP_ENCRYPTION_KEYS_FILE=/no/such", NO_KEYS),
        ("gateway", "EVERLOOP_ENCRYPTION_KEYS_FILE=/no/such\nEVERLOOP_PORT=0", NO_KEYS),
        ("schedules list", "EVERLOOP_ENCRYPTION_KEYS_FILE=/no/such", NO_KEYS),
        ("housekeeping status", "EVERLOOP_ENCRYPTION_KEYS_FILE=/no/such", NO_KEYS),
        ("reindex", "EVERLOOP_REDIS_URL=redis://127.0.0.1:1/0", "127.0.0.1:1"),
        ("temporal workflow list --command-timeout 2s", "TEMPORAL_ADDRESS=127.0.0.1:1", "127.0.0.1:1"),
        ("keys list", "EVERLOOP_API_KEYS_FILE=/no/such", "/no/such"),
        ("up", "EVERLOOP_PORT=many", "EVERLOOP_PORT: Input should be a valid integer"),
        ("demo", "EVERLOOP_PORT=many", "EVERLOOP_PORT: Input should be a valid integer"),
        ("conformance", "EVERLOOP_PORT=many", "EVERLOOP_PORT: Input should be a valid integer"),
    ],
)
def test_what_runs_or_asks_servers_reads_the_file_of_the_folder(
    tmp_path: Path, temporal_address: str, command: str, variable: str, told: str
) -> None:
    """`.env` applies as for `everloop dev`."""
    (tmp_path / ".env").write_text(f"{variable}\n")
    address = {} if variable.startswith("TEMPORAL_") else {"TEMPORAL_ADDRESS": temporal_address}
    agents = {"EVERLOOP_AGENTS": "everloop.examples.conformance_agent:agent"}

    done = everloop_command(*command.split(), directory=tmp_path, **address, **agents)

    assert (done.returncode, told in done.stderr) == (1, True), done


@pytest.mark.parametrize("command", ["schedules list", "worker"])
def test_a_misspelt_name_in_the_file_of_the_folder_is_told_once(tmp_path: Path, command: str) -> None:
    """As one of the environment is."""
    (tmp_path / ".env").write_text("EVERLOOP_MODLE=x\nEVERLOOP_ENCRYPTION_KEYS_FILE=/no/such\n")

    done = everloop_command(*command.split(), directory=tmp_path)

    told = [line for line in done.stderr.splitlines() if "EVERLOOP_MODLE" in line]
    assert [line.partition("; ")[2] for line in told] == ["did you mean EVERLOOP_MODEL?"], done


def test_the_stack_of_a_folder_goes_before_its_file_and_the_environment_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporal_address: str
) -> None:
    """The stack's own processes ignore the file's settings of Temporal and Redis, too."""
    for name in list(os.environ):
        if name.startswith(("TEMPORAL_", "EVERLOOP_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    running_beside(tmp_path, temporal_address)
    file = "TEMPORAL_ADDRESS=far:1\nTEMPORAL_API_KEY=key\nEVERLOOP_REDIS_URL=redis://far:1/0\n"
    (tmp_path / ".env").write_text(f"{file}EVERLOOP_MODEL=ollama/qwen3\nEVERLOOP_TASK_QUEUE=of-file\n")
    monkeypatch.setenv("EVERLOOP_TASK_QUEUE", "of-environment")

    with monkeypatch.context() as changed:
        changed.setattr(os, "environ", dict(os.environ))
        use_local_stack()
        beside = dict(os.environ)
    with monkeypatch.context() as changed:
        changed.setattr(os, "environ", {**os.environ, "EVERLOOP_REDIS_URL": "redis://near:1/0"})
        use_local_stack()
        named = dict(os.environ)

    assert (beside["TEMPORAL_ADDRESS"], "TEMPORAL_API_KEY" in beside) == (temporal_address, False)
    assert beside["EVERLOOP_REDIS_URL"] == "redis://:secret@127.0.0.1:1/0"
    assert (beside["EVERLOOP_MODEL"], beside["EVERLOOP_TASK_QUEUE"]) == ("ollama/qwen3", "of-environment")
    assert (named["TEMPORAL_ADDRESS"], named["EVERLOOP_REDIS_URL"]) == ("far:1", "redis://near:1/0")


def test_what_talks_to_agents_does_not_read_the_file_of_the_folder(tmp_path: Path) -> None:
    """A foreign folder cannot redirect keys."""
    (tmp_path / ".env").write_text("EVERLOOP_PROFILE=http://127.0.0.1:9/elsewhere\n")

    done = everloop_command("agents", directory=tmp_path, XDG_CONFIG_HOME=str(tmp_path))

    assert "elsewhere" not in done.stderr


INTERRUPTED = """
import runpy, signal, sys

_, module, interrupt = sys.argv

class SchemaError(Exception):
    pass

class Deleted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name != module:
            return
        sys.meta_path.remove(self)
        try:
            Deleted() if interrupt == "ignored" else signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if interrupt == "another error":
                raise SchemaError from None
            raise

sys.meta_path.insert(0, Interrupt())
sys.argv = ["everloop", "send", "hello", "--profile", "http://127.0.0.1:1"]
runpy.run_module("everloop", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["typer", "everloop.client"])
@pytest.mark.parametrize("interrupt", ["raised", "another error", "ignored"])
def test_ctrl_c_ends_a_command_while_it_is_imported(module: str, interrupt: str) -> None:
    """Exit code 130 and no trace, also if it becomes another error, as in pydantic, or is swallowed."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, interrupt],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (130, "everloop: interrupted\n")


@pytest.mark.parametrize("command", ["temporal"])
def test_a_program_that_is_missing_is_told(command: str) -> None:
    """With the command that installs it."""
    program = (
        f"import sys; sys.executable = '/nowhere/python'; sys.argv = ['everloop', {command!r}]; "
        "from everloop.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == (
        "everloop: Temporal's command `temporal` is not installed; install it: pip install 'everloop[local]'"
    )


@pytest.mark.parametrize(
    ("words", "expected"), [("everloop sch", "schedules"), ("everloop schedules add --ov", "--overlap")]
)
def test_tab_completes(words: str, expected: str) -> None:
    """Commands and options, in the shell that `--install-completion` found."""
    done = everloop_command(
        _EVERLOOP_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)
    )

    assert done.stdout.split() == [expected]
