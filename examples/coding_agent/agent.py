"""A coding agent: it reads a directory, tries commands in a sandbox, and changes files once people agree."""

import os
from pathlib import Path

import sandbox
from workspace import Workspace

from everloop import Agent, Limits, prompt, tool, tools


def workspace() -> Workspace:
    """Return the directory that CODING_DIRECTORY names."""
    return Workspace(Path(os.environ.get("CODING_DIRECTORY", "workspace")).resolve(strict=True))


@tool(idempotent=True)
def list_files() -> list[str]:
    """List all files of the directory."""
    return workspace().list_files()


@tool(idempotent=True)
def read_file(path: str) -> str:
    """Read a file."""
    return workspace().read(path)


@tool(idempotent=True, needs_approval=True)
def write_file(path: str, text: str) -> str:
    """Write a new file, or replace one. A person is asked first."""
    workspace().write(path, text)
    return "written"


@tool(idempotent=True, needs_approval=True)
def edit_file(path: str, old: str, new: str) -> str:
    """Replace a passage of a file, which has to be in it exactly once. A person is asked first."""
    before = workspace().read(path)
    if before.count(old) != 1:
        if new and before.count(new) == 1:
            return "that is done already"  # by an attempt of this call whose worker has died
        raise ValueError(f"the passage is {before.count(old)} times in {path}; give one that is once")
    workspace().write(path, before.replace(old, new))
    return "changed"


@tool(idempotent=True)
async def run(command: str) -> str:
    """Run a command of bash: tests, git log, grep. It sees the directory, and cannot change it.

    /tmp is its own. There is no network. A command takes 20 seconds at most.
    """
    code, written = await sandbox.run(workspace().root, command)
    how = f"exit code {code}" if code is not None else f"stopped after {sandbox.SECONDS} seconds"
    return f"{how}\n{written}"


agent = Agent(
    id="coder",
    name="Coder",
    description="Changes the code of a directory, with people's consent.",
    plugins=[
        prompt(
            "You work on the code of a directory. Look at it before you change anything, make small changes, "
            "and run the tests after each. What is rejected you do not write in another way."
        ),
        tools(list_files, read_file, write_file, edit_file, run),
    ],
    limits=Limits(iterations=60),
)
