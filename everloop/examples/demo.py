"""The demo agent: reads one directory, calculates, writes reports, and writes notes that can be counted."""

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from everloop.agents.agent import Agent
from everloop.agents.artifact_tools import artifacts
from everloop.agents.plugins import prompt, tools
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.examples.demo_tools import Folder
from everloop.examples.demo_tools import calculate as calculate_exactly
from everloop.runtime.environment import Settings

MAX_NOTE = 500

PROMPT = """\
You answer questions about the files of one directory. Look before you answer: list the files, read or \
search those that matter (several at once where you can), and use calculate for every sum, however easy. \
When you are asked to take notes, write each one with note, one finding a note, as soon as you have it. \
A report, a table or whatever else the user wants to keep you write as an artifact. \
Then answer in a few short paragraphs, and name the files that you read."""


class DemoSettings(Settings):
    """Paths and delays of the demo agent."""

    model_config = SettingsConfigDict(env_prefix="EVERLOOP_DEMO_")

    directory: Path = Path(__file__).parents[2]
    """The folder that its file tools see. Unset: the one that holds the package."""
    ledger: Path = Path(".everloop/ledger.jsonl")
    """The file that its notes go to."""
    tool_delay: float = Field(default=0.0, ge=0, le=10)
    """Seconds that a reading tool waits before it reads, for people who want to watch."""

    @field_validator("directory")
    @classmethod
    def _resolve_directory(cls, directory: Path) -> Path:
        if not directory.is_dir():
            raise ValueError(f"EVERLOOP_DEMO_DIRECTORY: {directory} is not a directory; name one that exists")
        return directory.resolve()


class DemoTools:
    """The tools of the demo agent; the docstrings are what the model reads."""

    def __init__(self, settings: DemoSettings) -> None:
        self._folder = Folder(settings.directory)
        self._ledger = settings.ledger
        self._delay = settings.tool_delay

    async def list_files(self, path: str = ".") -> str:
        """List a directory: subdirectories end with '/', files are shown with their size in bytes.

        Paths are relative to the directory you work in; '.' is that directory itself.
        """
        await asyncio.sleep(self._delay)
        return await asyncio.to_thread(self._folder.list_files, path)

    async def read_file(self, path: str, first_line: int = 1) -> str:
        """Read a text file from first_line on. The first line of the result tells its lines and bytes."""
        await asyncio.sleep(self._delay)
        return await asyncio.to_thread(self._folder.read_file, path, first_line)

    async def search_files(self, text: str, path: str = ".") -> str:
        """Find the lines that contain a text (upper and lower case alike) in a file or below a directory."""
        await asyncio.sleep(self._delay)
        return await asyncio.to_thread(self._folder.search_files, text, path)

    async def calculate(self, expression: str) -> str:
        """Work out an arithmetic expression exactly: numbers, parentheses and + - * / // % **."""
        return calculate_exactly(expression)

    async def note(self, text: str, context: ToolContext) -> str:
        """Write down one finding, in at most 500 characters. Every call adds one line to the notes."""
        if not text.strip() or len(text) > MAX_NOTE:
            raise ValueError(f"a note has 1 to {MAX_NOTE} characters; this one has {len(text.strip())}")
        line = {
            "call_id": context.call_id,
            "task_id": context.task_id,
            "attempt": context.attempt,
            "at": datetime.now(UTC).isoformat(),
            "text": text,
        }
        await asyncio.to_thread(_append, self._ledger, json.dumps(line))
        return "noted"


def _append(ledger: Path, line: str) -> None:
    """Append a line in one write, and flush it to the disk before the call counts as done."""
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("ab") as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def make_agent(settings: DemoSettings) -> Agent:
    """Return the demo agent. Only `note` is not idempotent: a second call would add a second line."""
    offered = DemoTools(settings)
    repeatable = tool(idempotent=True)
    return Agent(
        id="demo",
        name="Everloop demo",
        description="Reads the files of one directory, calculates exactly, takes notes, and writes reports.",
        plugins=(
            prompt(PROMPT),
            tools(
                repeatable(offered.list_files),
                repeatable(offered.read_file),
                repeatable(offered.search_files),
                repeatable(offered.calculate),
                tool(offered.note),
            ),
            artifacts(),
        ),
    )


agent = make_agent(DemoSettings())
