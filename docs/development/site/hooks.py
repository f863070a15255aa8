"""What the site adds to the pages: pictures, the list of decisions, the reference of the command line."""

import logging
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import cast

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[3]

DOCS = ROOT / "docs"

_log = logging.getLogger("mkdocs.hooks.site")

_RUN_NOTE = re.compile(r"^[ \t]*<!-- (?:file|not run|printed|serves)\b.*?-->\n", re.MULTILINE | re.DOTALL)
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
    """Put pages that the navigation does not name where it has a pattern for their folder."""
    named = {*_pages_in(config.nav)}
    config.nav = _expanded(config.nav, named)


def _pages_in(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, Mapping):
        for inner in cast("Mapping[str, object]", entry).values():
            yield from _pages_in(inner)
    elif isinstance(entry, list):
        for inner in cast("list[object]", entry):
            yield from _pages_in(inner)


def _expanded(entries: object, named: AbstractSet[str]) -> list[object]:
    expanded: list[object] = []
    for entry in cast("Iterable[object]", entries if isinstance(entries, list) else [entries]):
        if isinstance(entry, str) and entry.endswith("*"):
            found = sorted(str(each.relative_to(DOCS)) for each in DOCS.glob(f"{entry}.md"))
            expanded += [each for each in found if each not in named]
        elif isinstance(entry, Mapping):
            sections = cast("Mapping[str, object]", entry)
            expanded.append({name: _section(inner, named) for name, inner in sections.items()})
        else:
            expanded.append(entry)
    return expanded


def _section(entry: object, named: AbstractSet[str]) -> object:
    is_page = isinstance(entry, str) and not entry.endswith("*")
    return entry if is_page else _expanded(entry, named)


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
