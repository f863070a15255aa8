"""`everloop add`: add a tool, an MCP server or a sub-agent to the file of an agent."""

import difflib
import json
import keyword
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from everloop.cli.author.project import MAIN
from everloop.cli.author.source import AgentSource, UnexpectedSourceError
from everloop.cli.output import CommandError, misused, print_line, print_notice, reported
from everloop.runtime.printable import printable

app = typer.Typer(
    no_args_is_help=True,
    help="Add a tool, an MCP server or a sub-agent to an agent.",
    epilog="What is changed is shown; a file that is not as expected stays as it is.",
)

File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The file of the agent.", dir_okay=False)]

TOOL = '''\
@tool
def {name}(text: str) -> str:
    """Say here what it does: the model reads it, and decides by it when to call the tool."""
    return text
'''

AGENT = """\
{variable} = Agent(
    id="{name}",
    name="{title}",
    description="Say here what it can do.",
    plugins=[prompt("Say here what it is to do.")],
)
"""

_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@app.command()
def tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What its function is called.")],
    file: File = Path(MAIN),
) -> None:
    """Add a function that the model can call."""
    _check_function(name)
    code = TOOL.format(name=name)

    def change(source: AgentSource) -> AgentSource:
        return source.importing("tool").with_tool(name).before_agent(code)

    _add(file, name, change, f"from everloop import tool, tools\n\n\n{code}", f"tools({name})")


@app.command()
def mcp(
    server: Annotated[
        str, typer.Argument(metavar="URL|COMMAND", help="Where it is, or the command that starts it.")
    ],
    file: File = Path(MAIN),
) -> None:
    """Add the tools of an MCP server."""
    is_url = server.startswith(("https://", "http://"))
    if "://" in server and not is_url:
        raise misused(f"{server!r} is no address of an MCP server; expected https://… or a command")
    with reported(ValueError):  # unclosed quotes
        words = shlex.split(server)
    if not words:
        raise misused("which server? Give its address, or the command that starts it")
    where = json.dumps(server if is_url else words, ensure_ascii=False)
    plugin = f"mcp({where})" if is_url else f"mcp(command={where})"

    def change(source: AgentSource) -> AgentSource:
        return source.importing("mcp").with_plugin(plugin)

    _add(file, "", change, "from everloop import mcp", plugin)


@app.command(name="sub-agent")
def sub_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The id of the new agent.")],
    file: File = Path(MAIN),
) -> None:
    """Add an agent that does a part of the work, as a task of its own."""
    if not _AGENT_NAME.fullmatch(name):
        raise misused(f"no agent can be called {name!r}: expected letters, digits, '-' and '_', 64 at most")
    variable = name.replace("-", "_")
    _check_function(variable)
    title = name.replace("-", " ").replace("_", " ").capitalize()
    code = AGENT.format(variable=variable, name=name, title=title)
    plugin = f"sub_agent({variable})"

    def change(source: AgentSource) -> AgentSource:
        if name in source.ids:
            raise CommandError(f"{file} has an agent {name!r} already; give another name")
        return source.importing("Agent", "prompt", "sub_agent").with_plugin(plugin).before_agent(code)

    _add(file, variable, change, f"from everloop import Agent, prompt, sub_agent\n\n\n{code}", plugin)


def _add(file: Path, name: str, change: Callable[[AgentSource], AgentSource], code: str, plugin: str) -> None:
    """Change the file and show the change; if its layout is unexpected, show the code to add by hand.

    Raises:
        CommandError: the file was not changed.
    """
    if not file.is_file():
        raise CommandError(
            f"{str(file)!r} is not there; go to the folder of the project, or name the file: --file FILE"
        )
    with reported(OSError, UnicodeDecodeError):
        source = AgentSource(file.read_bytes().decode())
    try:
        if name in source.names:
            raise CommandError(f"{file} has a {name!r} already; give another name")
        changed = change(source)
        _ = changed.tree  # it can be parsed
    except UnexpectedSourceError as error:
        print_notice(f"{file} is left as it is: {error}. Write this into it:\n")
        print_line(f"{code.strip()}\n\n# and among the plugins of the agent:\n{plugin},")
        raise typer.Exit(1) from error
    with reported(OSError):
        file.write_bytes(changed.text.encode())
    _show(source.text, changed.text, str(file))


def _check_function(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise misused(f"{name!r} is no name of Python; expected letters, digits and '_', such as 'find_city'")


def _show(before: str, after: str, file: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), file, file, lineterm="", n=2)
    for line in lines:
        console.print(Text(printable(line), _COLOURS.get(line[:1], "")))
