"""`everloop new` and `everloop add`: written files, and unchanged ones."""

import ast
import shlex
from pathlib import Path

import pytest

from everloop.agents.registry import load_agents
from everloop.cli.author.dev import show_problem
from everloop.cli.commands import run

BY_HAND = '''"""An agent on one line, and another import."""
import everloop as library
from everloop import Agent, tool, tools


@tool
def first() -> None: "It is a tool."


assistant: Agent = Agent(id="one", name="One", description="ünïcode", plugins=[tools(first)])
'''

WITHOUT_PLUGINS = """from everloop import (
    Agent,
)

agent = Agent(
    id="two",
    name="Two",
    description="It has none.",
)
"""

LISTED_ELSEWHERE = """from everloop import Agent

plugins = []
agent = Agent(id="three", name="Three", description="It lists them elsewhere.", plugins=plugins)
"""

ADDED = (
    ("sub-agent", "helper"),
    ("tool", "second"),
    ("mcp", "https://tools.example/mcp"),
    ("mcp", "uvx 'a server'"),
    ("sub-agent", "other"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_that_is_added_to_a_new_project_is_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command shows its addition, and the agent then has it, not one of its sub-agents."""
    assert run(["new", "some-agent"]) == 0
    for kind, name in ADDED:
        assert run(["add", kind, name, "--file", "some-agent/agent.py"]) == 0
        assert "+++ some-agent/agent.py" in capsys.readouterr().out

    agents = {agent.id: agent for agent in load_agents("some-agent/agent.py")}

    assert list(agents) == ["some-agent", "helper", "other"]
    assert list(agents["some-agent"].tools) == ["temperature", "second", "helper", "other"]
    assert [plugin.name for plugin in agents["some-agent"].plugins][3:5] == ["tools.example", "uvx"]


def test_what_to_type_next_can_be_typed_as_it_stands(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the path has a space, as users' folders often have."""
    path = folder / "My projects" / "some-agent"
    assert run(["new", str(path)]) == 0

    (step,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  cd "))

    assert shlex.split(step) == ["cd", str(path)]


@pytest.mark.parametrize("text", [BY_HAND, WITHOUT_PLUGINS, BY_HAND.replace("\n", "\r\n")])
def test_files_that_people_wrote_are_added_to(folder: Path, text: str) -> None:
    """In any layout of the agent; existing lines stay unchanged."""
    file = folder / "mine.py"
    file.write_bytes(text.encode())
    for kind, name in ADDED:
        assert run(["add", kind, name, "--file", "mine.py"]) == 0

    changed = file.read_bytes().decode()
    agent = next(iter(load_agents("mine.py")))

    assert {"second", "helper"} <= set(agent.tools)
    assert {line for line in text.splitlines() if _stays(line)} <= set(changed.splitlines())


def _stays(line: str) -> bool:
    return not any(word in line for word in ("import", "plugins", "Agent,"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LISTED_ELSEWHERE, "line 4 has no list of plugins in brackets"),
        ("x = 1\n", "there is no agent such as `agent = Agent(…)` at the top of the file"),
        ("agent = (\n", "line 1 is no Python: '(' was never closed"),
    ],
)
def test_a_file_that_is_not_as_expected_stays_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    """Instead the command prints the Python lines to add."""
    (folder / "mine.py").write_text(text)

    assert run(["add", "tool", "second", "--file", "mine.py"]) == 1

    printed = capsys.readouterr()
    assert problem in printed.err
    assert ast.parse(printed.out)
    assert "tools(second)," in printed.out
    assert (folder / "mine.py").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["new", "full"], 1, "the folder 'full' is not empty; name one that is, or a new one"),
        (["new", "full/file"], 1, "'full/file' is a file; give another name"),
        (["new", "My Agent"], 2, "'my-agent' would do"),
        (["new", "class"], 2, "'class' means something else here"),
        (["add", "tool", "a-b"], 2, "'a-b' is no name of Python"),
        (["add", "tool", "second"], 1, "'agent.py' is not there; go to the folder of the project"),
        (["add", "tool", "first", "--file", "mine.py"], 1, "mine.py has a 'first' already"),
        (["add", "mcp", "ftp://example"], 2, "'ftp://example' is no address of an MCP server"),
        (["add", "sub-agent", "a b"], 2, "no agent can be called 'a b'"),
        (["add", "sub-agent", "one", "--file", "mine.py"], 1, "mine.py has an agent 'one' already"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, problem: str
) -> None:
    """Folders that are not empty, bad names, missing files."""
    (folder / "full").mkdir()
    (folder / "full" / "file").write_text("")
    (folder / "mine.py").write_text(BY_HAND)
    before = sorted(folder.rglob("*"))

    assert run(arguments) == code

    said = capsys.readouterr()
    assert problem in said.err
    assert (said.err.count("\n"), said.out) == (1, "")
    assert sorted(folder.rglob("*")) == before
    assert (folder / "mine.py").read_text() == BY_HAND


def test_each_line_that_a_process_wrote_is_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except unknown names of settings, which were reported when the settings were read."""
    monkeypatch.setenv("EVERLOOP_MODLE", "x")
    (folder / "agent.py").write_text("agent = 1\n")
    misspelt = "EVERLOOP_MODLE is set, but no setting is called so: it changes nothing"
    lines = (f"{misspelt}; did you mean EVERLOOP_MODEL?", "agent.py:1: no agent", "so it ends")

    shown = show_problem("\n".join(f"worker: {line}" for line in lines))

    assert shown.splitlines() == ["✗ agent.py:1: no agent", "  so it ends", "  >    1 │ agent = 1"]
    assert capsys.readouterr().out.splitlines() == shown.splitlines()
