"""Agents of users, found in modules and directories; each broken one gets an error of one line."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everloop.agents.errors import AgentDefinitionError
from everloop.agents.plugins import SystemPrompt
from everloop.agents.registry import AgentRegistry, load_agents

Write = Callable[..., Path]

ONE = """
from everloop import Agent
{name} = Agent(id="{name}", name="A", description="")
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write files into a directory below the working one, and drop their cached modules."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)

    def write(directory: str = "mine", **files: str) -> Path:
        folder = tmp_path / directory
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        return folder

    yield write
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def refused(location: str) -> str:
    with pytest.raises(AgentDefinitionError) as caught:
        load_agents(location)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def ids(registry: AgentRegistry) -> list[str]:
    return [agent.id for agent in registry]


def test_all_files_of_a_directory_define_agents(write: Write) -> None:
    """By name of the file, then in order of definition; lists count, private names do not."""
    several = """
from everloop import Agent
last, first, hidden, made = (Agent(id=id_, name="A", description="") for id_ in ("z", "a", "hidden", "made"))
_hidden = hidden
del hidden
more = [made]
"""
    folder = write(several=several, editor=ONE.format(name="editor"), _private="1 / 0")
    (folder / "notes.txt").write_text("no agent")
    write("mine/deeper", below=ONE.format(name="below"))

    assert ids(load_agents("mine")) == ["editor", "z", "a", "made"]


def test_the_list_agents_says_the_order(write: Write) -> None:
    """Its first agent is the default one, in any order of definition or import."""
    boss = """
from helper import helper
from everloop import Agent
older = [Agent(id="older", name="Older", description="")]
boss = Agent(id="boss", name="Boss", description="")
agents = [boss, helper]
"""
    folder = write(boss=boss, helper=ONE.format(name="helper"))

    assert ids(load_agents(f"{folder}/boss.py")) == ["boss", "helper", "older"]


def test_files_of_a_directory_may_import_each_other(write: Write) -> None:
    """A helper, or another file with an agent, which is one agent in every file that names it."""
    boss = """
from dataclasses import dataclass
from _shared_words import TEXT
from the_writer import writer
from everloop import Agent, prompt
boss = Agent(id="boss", name="Boss", description="", plugins=[prompt(TEXT)])
@dataclass
class Needs:
    its_module: "str"
"""
    write(a_boss=boss, the_writer=ONE.format(name="writer"), _shared_words="TEXT = 'Work.'")

    registry = load_agents("mine")

    assert ids(registry) == ["writer", "boss"]
    assert registry.find("boss").plugins[0].prompts == (SystemPrompt("Work."),)


def test_one_file_may_be_named(write: Write) -> None:
    """Others beside it are not served; it may import them, and modules of the working directory."""
    boss = f"import mine, _words\n{ONE.format(name='boss')}"
    write(boss=boss, other=ONE.format(name="other"), _words="ID = 'boss'", __init__="")

    assert ids(load_agents("mine/boss.py")) == ["boss"]
    assert ids(load_agents("./mine/boss.py,mine/other.py")) == ["boss", "other"]


def test_a_file_does_not_shadow_what_is_installed(write: Write) -> None:
    """A file with the name of a package does not replace it in other imports."""
    write(
        openai=ONE.format(name="openai"), json=ONE.format(name="json"), **{"with-dash": ONE.format(name="x")}
    )
    installed = sys.modules["json"]

    assert ids(load_agents("mine")) == ["json", "openai", "x"]
    assert sys.modules["json"] is installed
    assert isinstance(__import__("openai").__version__, str)


TWO_TOOLS = """
from everloop import Agent, tool, tools

@tool
def look(at: str) -> str:
    \"\"\"Look.\"\"\"
    return at

writer = Agent(
    id="writer", name="W", description="", plugins=[tools(look), tools(look)]
)
"""

WRONG_LIMIT = """
from everloop import Agent, Limits
limits = {
    "tokens": 0,
}
writer = Agent(id="writer", name="W", description="", limits=Limits(**limits))
"""

NO_LIMIT = "Limits: tokens is 0; give a whole number from 1, or None for no limit"

SECRET = """
from pydantic import SecretStr
from pydantic_settings import BaseSettings
class Mine(BaseSettings):
    token: int = "s3cr3t"
    model_config = {"validate_default": True}
Mine()
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TWO_TOOLS, "{file}:9: agent 'writer': more than one tool is called 'look'"),
        (WRONG_LIMIT, "{file}:6: " + NO_LIMIT),
        ("x = 1\nimport no_such_thing", "{file}:2: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("import json\njson.loads(\n'{')", "{file}:2: JSONDecodeError: Expecting property name"),
        ("import sys\nsys.exit('no\\nkey')", "{file}:2: SystemExit: no key"),
        ("class Panic(BaseException): ...\nraise Panic('no')", "{file}:2: Panic: no"),
        ("\nraise ExceptionGroup('all', [ValueError('no')])", "{file}:1: ValueError: no"),
        (SECRET, "{file}:7: Mine: token: Input should be a valid integer"),
    ],
    ids=["agent", "setting", "import", "library", "exit", "panic", "group", "settings"],
)
def test_a_broken_definition_is_told_by_file_line_and_reason(write: Write, text: str, expected: str) -> None:
    """The innermost line of the user's own; one line in all, without the input of pydantic."""
    write(broken_definition=text)

    said = refused("mine")

    assert said.startswith(expected.format(file="mine/broken_definition.py"))
    assert "s3cr3t" not in said
    assert len(said) < 600


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("mine", "mine/helping.py:1: it defines no agent; give one a public name, or call the file _h"),
        ("./mine/helping.py", "mine/helping.py:1: it defines no agent; give one a public name"),
        (
            "./mine/notes.txt",
            "'mine/notes.txt' is no Python file; expected a file NAME.py, a directory, or m",
        ),
        ("empty", "the directory 'empty' has no agents"),
        ("nothing:here", "cannot load 'nothing:here': No module named 'nothing'; expected module:attribute"),
        ("", "no agent is defined; set EVERLOOP_AGENTS to a file"),
        ("users_module:missing", "mine_too/users_module.py has no 'missing'"),
        ("users_module:mixed", "in mine_too/users_module.py is a list; expected an Agent or a list of them"),
    ],
)
def test_a_place_without_agents_is_told(
    write: Write, monkeypatch: pytest.MonkeyPatch, location: str, expected: str
) -> None:
    """With the expected content."""
    write(helping="x = [1]\n_agent = None").joinpath("notes.txt").write_text("no agent")
    write("empty", _only_helping="")
    module = f"{ONE.format(name='one')}\nnumber = 1\nmixed = [one, 1]"
    monkeypatch.syspath_prepend(write("mine_too", users_module=module))

    assert expected in refused(location)


def test_two_agents_that_cannot_be_told_apart_are_named_with_their_files(write: Write) -> None:
    """An id and a version identify one agent."""
    write(a_one=ONE.format(name="same"), b_one=ONE.format(name="same"))
    assert refused("mine").startswith("mine/b_one.py:3: agent 'same': mine/a_one.py:3 has one of the same id")


def test_files_that_would_be_taken_for_each_other_are_refused(write: Write) -> None:
    """Two files of one name in two directories, or a helper with the name of an installed module."""
    write("first", one=ONE.format(name="one"), _words="")
    write("second", two=ONE.format(name="two"), _words="")
    write("third", three=ONE.format(name="three"), _bisect="")

    assert refused("first,second").startswith("second/_words.py:1: first/_words.py has the same name")
    assert refused("third").startswith("third/_bisect.py:1: Python has another module '_bisect'")
    assert ids(load_agents("first,first/")) == ["one"]


def test_a_broken_helper_is_told_by_its_own_line(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by that of the file which imports it; also if it is the package above a module."""
    write(one="import _helping_badly", _helping_badly="\n\nraise KeyError('KEY')")
    write("pack_that_breaks", __init__="\n1 / 0", agent="")
    monkeypatch.syspath_prepend(Path.cwd())

    assert refused("mine") == "mine/_helping_badly.py:3: KeyError: 'KEY'"
    assert refused("pack_that_breaks.agent:x") == (
        "pack_that_breaks/__init__.py:2: ZeroDivisionError: division by zero"
    )
