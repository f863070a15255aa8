"""What the site adds to the pages: pictures, the list of decisions, the reference of the command line."""

import logging
import re
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[3]

_log = logging.getLogger("mkdocs.hooks.site")

_RUN_NOTE = re.compile(r"^[ \t]*<!-- (?:file|not run|runs|before)\b.*?-->\n", re.MULTILINE | re.DOTALL)
"""What tests of the pages read, and readers need not (docs/development/contributing.md)."""

_MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\ssrc=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\shref=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|url\([\"']?(?:https?:)?//[^)\"']+",
    re.IGNORECASE,
)
"""What a browser would fetch from another host."""


def on_config(config: MkDocsConfig) -> None:
    """Add the decisions to the navigation: there are many, and their names say what they are."""
    for section in config.nav or []:
        for name, entries in section.items():
            if name == "Why":
                decisions = sorted((ROOT / "docs/adr").glob("*.md"))
                entries.append({"Decisions": [f"adr/{file.name}" for file in decisions]})


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the reference of the command line, as typer writes it."""
    files.append(File.generated(config, "reference/command-line.md", content=_command_line()))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the diagrams, and leave out what only tests read."""
    return _MERMAID.sub(lambda found: _picture(found[1]), _RUN_NOTE.sub("", markdown))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Warn, which ends a strict build, of what a browser would fetch from another host."""
    for fetched in _FETCHED.findall(output):
        _log.warning("%s loads something from another host: %s", page.file.src_uri, fetched)


@cache
def _picture(source: str) -> str:
    """Return a diagram as SVG, within the page: nothing is fetched, and no script runs."""
    svg = mermaidx.render(source, theme="neutral").svg()
    own_id = f"diagram-{sha256(source.encode()).hexdigest()[:8]}"  # a page may have several
    line = re.sub(r"\s*\n\s*", " ", svg.replace("my-svg", own_id))
    return f'<div class="diagram">{line}</div>'


def _command_line() -> str:
    command = [sys.executable, "-m", "typer", "everloop.cli.app", "utils", "docs", "--name", "everloop"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    text = text.replace("# `everloop`", "# Command line", 1)
    return text.replace("docs/settings.md lists them", "[these](../settings.md)")
