"""The code blocks in README, docs/ and the pages of examples/, and how each is run.

A block runs unless a comment in the line before it, which readers do not see, says otherwise:

    <!-- file: PATH -->      its lines are in that file, which tests of its own run
    <!-- not run: REASON --> it cannot be run, and why
    <!-- fails: HOW -->      it runs, and ends with another code than 0
    <!-- serves: WORDS -->   it runs until the page ends; the next block waits until it has printed WORDS
    <!-- printed: BY -->     the block before prints these lines, among others; so for a `text` after it
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers.processes import ROOT

PAGES = [
    str(page.relative_to(ROOT))
    for pages in ("README.md", "docs/**/*.md", "examples/*.md", "examples/*/*.md")
    for page in sorted(ROOT.glob(pages))
]

NOT_COPIED = shutil.ignore_patterns(
    *("__pycache__", ".everloop", ".pytest_cache", "*.db", "*.key", "keys.jsonl", "calendar.json"),
    *("data", "notes", "workspace"),
)
"""Files that examples leave behind in their folders."""

RUNNABLE = frozenset({"python", "sh", "js"})

PLAIN = frozenset(
    {"caddyfile", "dockerfile", "html", "ini", "json", "makefile", "mermaid", "nginx", "text", "toml", "yaml"}
)
"""Languages of blocks that are not run: formats, and the output of commands (`text`)."""

ADDRESS = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=EVERLOOP_PORT=)\d+")
"""The port of a gateway, as in pages."""

GRPC_PORT = re.compile(r"(?<=EVERLOOP_GRPC_PORT=)\d+")
"""The same for gRPC, which clients find in the agent card."""

RUN_ELSEWHERE = {
    "docs/agents/testing.md": "tests/acceptance/testing/test_examples.py",
    "docs/client.md": "tests/acceptance/client/test_examples.py",
    "docs/models.md": "tests/unit/docs/test_models_docs.py",
}
"""Pages whose blocks need parts that only tests of their own have."""

_COMMANDS = (
    "cd chmod cp curl docker everloop export git kubectl make node npm openssl pip pytest python python3 "
    "redis-cli source temporal"
)

_CODE = re.compile(
    rf"^\s*(?:\$ |(?:[A-Z_]+=\S+ +)*(?:{_COMMANDS.replace(' ', '|')}|\.venv/bin/\S+) "
    r"|(?:async def|class|def|from|import|@\w+) ?\w)",
    re.MULTILINE,
)
"""A line of a shell or of Python."""

_TRANSCRIPT = re.compile(r"^\$ ", re.MULTILINE)
"""A command, with what it prints behind it."""

_FENCE = re.compile(
    r"^(?:[ \t]*<!-- (?P<note>[\w ]+): (?P<value>.*?) -->\n)?"
    r"(?P<indent>[ \t]*)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)

_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """A block of a page, with the comment before it."""

    page: str
    line: int
    language: str
    text: str
    note: str
    value: str

    @property
    def is_run(self) -> bool:
        """True if it is run as it is."""
        return self.language in RUNNABLE and self.note in {"", "fails", "serves"}

    @property
    def needs_processes(self) -> bool:
        """True if it calls a gateway, or is not Python."""
        return self.language != "python" or bool(ADDRESS.search(self.text))

    @property
    def is_unclear(self) -> bool:
        """True if it has an unknown language, or looks like code without a language."""
        if self.note:
            return self.note != "not run" and self.language not in RUNNABLE | PLAIN
        if self.language == "text":
            return bool(_TRANSCRIPT.search(self.text))
        return bool(_CODE.search(self.text)) if not self.language else self.language not in RUNNABLE | PLAIN

    @property
    def file_name(self) -> str:
        """The file named in its first line, or empty."""
        named = _FILE_NAME.match(self.text)
        return named[1] if named else ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def folder_of(page: str) -> str:
    """Return the working directory of a page's commands: the folder of its example, or of the clone."""
    return str(Path(page).parent) if Path(page).match("examples/*/*.md") else "."


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page from the top."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield Block(
            page=page,
            line=text.count("\n", 0, found.start("language")) + 1,
            language=found["language"],
            text=re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            note=found["note"] or "",
            value=found["value"] or "",
        )


def definitions_of(page: str) -> list[Block]:
    """Return the self-contained Python of a page, or none if a test of its own runs it."""
    return [each for each in _run_here(page) if not each.needs_processes]


def commands_of(page: str) -> list[Block]:
    """Return the blocks that run commands or call a gateway, or none if a test of its own runs them."""
    return [each for each in _run_here(page) if each.needs_processes]


def _run_here(page: str) -> list[Block]:
    return [] if page in RUN_ELSEWHERE else [block for block in blocks_of(page) if block.is_run]


def in_a_file(text: str, file: Path) -> bool:
    """Return True if the file has these lines in a row, at any indentation."""
    wanted = [line.strip() for line in text.strip().splitlines()]
    there = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    return any(there[start : start + len(wanted)] == wanted for start in range(len(there)))
