"""Build the site of the documents into build/site: `make docs`.

Pages are prepared first: diagrams become pictures, and the reference of the command line is written. Then
all links are followed, and it is looked for what a browser would fetch from another host.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
PREPARED = ROOT / "build/docs"
SITE = ROOT / "build/site"
OURS = "https://site.invalid/"
"""Where links are followed as if the site were there."""

_FILE_NOTE = re.compile(r"^([ \t]*)<!-- file: (\S+) -->\n[ \t]*```(\w+)$", re.MULTILINE)
"""Of a block that stands in a file, whose name becomes its title."""

_RUN_NOTE = re.compile(r"^[ \t]*<!-- (?:fails|not run|printed|serves)\b.*?-->\n", re.MULTILINE | re.DOTALL)
"""Notes for tests of the pages (docs/development/contributing.md), which the site leaves out."""

_OUTWARDS = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]*)([^)]*)\)")
"""A link to a file of a folder above, maybe out of the documents; and its anchor."""

INSTEAD = {
    ROOT / "README.md": Path("index.md"),
    ROOT / "CONTRIBUTING.md": Path("development/contributing.md"),
}
"""Pages that say on the site what files of the repository say."""

_MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_PATTERN = re.compile(r"^( *)- (\S*)\*$", re.MULTILINE)
"""Of a navigation: all pages of a folder that it does not name."""

_FETCHED_BY_STYLES = re.compile(r"(?:url\(|@import )[\"']?((?:https?:)?//[^)\"']+)")


class Page(HTMLParser):
    """The links of a page of the site, the files that a browser fetches for it, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = _FETCHED_BY_STYLES.findall(text)
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values.get("id", ""), values.get("name", "")}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") != "canonical":
            self.fetched.append(values.get("href", ""))
        elif tag in {"audio", "embed", "iframe", "img", "script", "source", "video"}:
            self.fetched.append(values.get("src", ""))


def main() -> int:
    """Build all, and return 1 if something of it is wrong."""
    shutil.rmtree(PREPARED, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    _prepare()
    configuration = PREPARED.parent / "mkdocs.yml"
    configuration.write_text(_configuration(), encoding="utf-8")
    builder = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [builder, "build", "--strict", "--config-file", configuration], check=False, cwd=ROOT
    )
    found = [*problems()] if done.returncode == 0 else []
    sys.stderr.writelines(f"{problem}\n" for problem in found)
    return 1 if found or done.returncode else 0


def _prepare() -> None:
    for source in sorted([*DOCS.rglob("*"), *EXAMPLES.rglob("*.md")]):
        place = _place(source)
        if not place or not source.is_file() or Path(__file__).parent in source.parents:
            continue
        target = PREPARED / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(_prepared(source), encoding="utf-8")
        else:
            shutil.copy(source, target)
    shutil.copy(Path(__file__).with_name("site.css"), PREPARED)
    (PREPARED / "reference/command-line.md").write_text(_command_line(), encoding="utf-8")
    (PREPARED / "adr/index.md").write_text(_decisions(), encoding="utf-8")


def _place(source: Path) -> Path | None:
    """Return where a file of the repository is on the site, if it is there."""
    if source.is_relative_to(DOCS):
        return source.relative_to(DOCS)
    is_page = source.suffix == ".md" and "corpus" not in source.parts and source.is_relative_to(EXAMPLES)
    return source.relative_to(ROOT) if is_page else INSTEAD.get(source)


def _prepared(source: Path) -> str:
    folder = (_place(source) or source).parent

    def link(found: re.Match[str]) -> str:
        target = (source.parent / found[2]).resolve()
        place = _place(target)
        if place is None:
            return f"{found[1]} (`{target.relative_to(ROOT)}`)"
        anchor = "" if target in INSTEAD else found[3]
        return f"[{found[1]}]({os.path.relpath(place, folder)}{anchor})"

    titled = _FILE_NOTE.sub(r'\1```\3 title="\2"', source.read_text(encoding="utf-8"))
    text = _RUN_NOTE.sub("", titled)
    return _MERMAID.sub(lambda found: _picture(found[1]), _OUTWARDS.sub(link, text))


def _picture(source: str) -> str:
    """Return a diagram as SVG, within the page: nothing is fetched, and no script runs."""
    import mermaidx  # noqa: PLC0415 -- tests need no diagrams, and it says things at their end

    svg = mermaidx.render(source, theme="neutral").svg()
    own_id = f"diagram-{sha256(source.encode()).hexdigest()[:8]}"  # a page may have several
    line = re.sub(r"\s*\n\s*", " ", svg.replace("my-svg", own_id))
    return f'<div class="diagram">{line}</div>'


def _command_line() -> str:
    command = [sys.executable, "-m", "typer", "everloop.cli.commands", "utils", "docs", "--name", "everloop"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    helps = dict(re.findall(r"^#+ `(everloop[^`]*)`\n\n(.+)$", text, re.MULTILINE))
    lines, parent = list[str](), ""
    for line in text.splitlines():
        parent = line.strip("# `") if line.startswith("#") else parent
        item = re.match(r"\* `([a-z][\w-]*)`: ", line)  # of a list of commands, where typer cuts what they do
        lines.append(f"{item[0]}{helps[f'{parent} {item[1]}']}" if item else line)
    whole = "\n".join(lines).replace("docs/settings.md lists", "[the page of settings](../settings.md) lists")
    return whole.replace("# `everloop`", "# Command line", 1)


def _decisions() -> str:
    titles = {
        each.name: each.open(encoding="utf-8").readline() for each in sorted((DOCS / "adr").glob("*.md"))
    }
    lines = [f"- [{title.lstrip('# ').strip()}]({name})" for name, title in titles.items()]
    return "\n".join(
        ["# Decisions\n", "Why things are as they are, in the order in which it was decided.\n", *lines, ""]
    )


def _configuration() -> str:
    """Return the configuration, with the pages that its patterns stand for."""
    text = (Path(__file__).parent / "mkdocs.yml").read_text(encoding="utf-8")

    def pages(found: re.Match[str]) -> str:
        there = sorted(str(each.relative_to(DOCS)) for each in DOCS.glob(f"{found[2]}*.md"))
        return "\n".join(f"{found[1]}- {page}" for page in there if page not in text)

    return _PATTERN.sub(pages, text)


def problems() -> Iterator[str]:
    """Yield each link of the site that leads nowhere, and what pages load from other hosts."""
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(SITE.rglob("*.html"))}
    for file, page in pages.items():
        name = file.relative_to(SITE)
        for fetched in page.fetched:
            if urlsplit(fetched).netloc:
                yield f"{name}: it loads something from another host: {fetched}"
        for link in [] if file.name == "404.html" else page.links:
            if not _leads_somewhere(urljoin(f"{OURS}{name}", link), pages):
                yield f"{name}: a link leads nowhere: {link}"


def _leads_somewhere(address: str, pages: dict[Path, Page]) -> bool:
    if not address.startswith(OURS):
        return True
    parts = urlsplit(address)
    target = SITE / unquote(parts.path).lstrip("/")
    file = target / "index.html" if target.is_dir() else target
    return file.exists() and (file not in pages or unquote(parts.fragment) in pages[file].anchors)


if __name__ == "__main__":
    sys.exit(main())
