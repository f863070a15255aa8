"""Read the documents as a reader does who is in a hurry: `make lint`.

A sentence has at most so many words, and no word that has to be looked up, or says nothing. Decisions
(docs/adr) and the changelog are records, and stay as they were written.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]

AT_THE_TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")

MOST_WORDS = 32

INSTEAD = {
    "aforementioned": "say which",
    "amongst": "among",
    "anew": "again",
    "hence": "so",
    "henceforth": "from now on",
    "herein": "here",
    "leverage": "use",
    "obviously": "nothing",
    "of course": "nothing",
    "seamless": "say what does not break",
    "seamlessly": "say what does not break",
    "simply": "nothing",
    "thereof": "of it",
    "utilize": "use",
    "whilst": "while",
    "e.g.": "for example",
    "etc.": "and so on",
    "i.e.": "that is",
    "afterthought": "post-completion",
    "misfit": "validation error",
    "patience": "backoff",
}
"""Words and what to write in their place: long ones, empty ones, and those that only we would understand."""

NOT_YET: frozenset[str] = frozenset()
"""Pages with longer sentences, until they are written anew."""

_WORDS = re.compile(rf"(?<![\w-])(?:{'|'.join(re.escape(word) for word in INSTEAD)})(?![\w-])", re.IGNORECASE)

_HIDDEN = re.compile(r"^[ \t]*```.*?^[ \t]*```|<!--.*?-->|^---\n.*?^---\n", re.MULTILINE | re.DOTALL)
"""Code, and comments."""

_NO_PROSE = re.compile(r"^\s*(?:\||#|===|:::|!\[|<)")
"""The beginning of a line of a table, a heading, a tab, a picture."""

_LIST_ITEM = re.compile(r"^\s*(?:[-*:]|\d+\.)\s+")

_SENTENCE_END = re.compile(r"(?<=[.!?:])[\"”)*]*\s+(?=[^a-z\s])")


def main() -> int:
    """Print what is wrong, a line for each, and return 1 if there is anything."""
    pages = [*(ROOT / name for name in AT_THE_TOP), *sorted((ROOT / "docs").rglob("*.md"))]
    problems = [problem for page in pages if "adr" not in page.parts for problem in problems_of(page)]
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


def problems_of(page: Path) -> Iterator[str]:
    """Yield what is wrong with a page."""
    name = str(page.relative_to(ROOT))
    text = _HIDDEN.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
    plain = re.sub(r"`[^`\n]*`", "Code", text)
    for number, line in enumerate(plain.splitlines(), start=1):
        for word in _WORDS.findall(line):
            yield f"{name}:{number}: “{word}”: write {INSTEAD[word.lower()]}"
    for number, paragraph in paragraphs(plain):
        for sentence in _SENTENCE_END.split(paragraph):
            count = len(re.findall(r"[\w'-]+", re.sub(r"\]\([^)]*\)", "]", sentence)))
            if count > MOST_WORDS and name not in NOT_YET:
                yield f"{name}:{number}: {count} words in a sentence, at most {MOST_WORDS}: {sentence[:60]}…"


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and list items of a page, each in one line, with the number of its first."""
    first, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        ends = not line.strip() or _NO_PROSE.match(line) or _LIST_ITEM.match(line)
        if ends and lines:
            yield first, " ".join(lines)
            lines = []
        if line.strip() and not _NO_PROSE.match(line):
            first = first if lines else number
            lines.append(_LIST_ITEM.sub("", line).strip())


if __name__ == "__main__":
    sys.exit(main())
