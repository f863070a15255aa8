"""Functions on the corpus: search it, read it, and check a quotation."""

import re
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
SHOWN = 12
"""Greatest number of lines that a search returns."""


@dataclass(frozen=True)
class Passage:
    """A line of a document."""

    document: str
    line: int
    text: str


def search(words: str) -> list[Passage]:
    """Return the lines that have most of these words, the best first."""
    wanted = set(re.findall(r"\w+", words.casefold()))
    found = [
        (len(wanted & set(re.findall(r"\w+", passage.text.casefold()))), passage)
        for document in sorted(CORPUS.glob("*.md"))
        for passage in lines_of(document.stem)
    ]
    best = sorted((each for each in found if each[0]), key=lambda each: -each[0])
    return [passage for _, passage in best[:SHOWN]]


def lines_of(document: str) -> list[Passage]:
    """Return the lines of a document, counted from 1.

    Raises:
        LookupError: the document does not exist.
    """
    if document not in {file.stem for file in CORPUS.glob("*.md")}:  # so no name leads out of the folder
        raise LookupError(f"there is no document {document!r}; `search` says what documents are called")
    text = (CORPUS / f"{document}.md").read_text(encoding="utf-8")
    return [Passage(document, number, line) for number, line in enumerate(text.splitlines(), start=1)]


def find_quotation(document: str, quotation: str) -> int | None:
    """Return the line where a quotation begins; None if it does not occur. White space is ignored."""
    words = quotation.split()
    lines = [(each.line, word) for each in lines_of(document) for word in each.text.split()]
    texts = [word for _, word in lines]
    for start in range(len(texts) - len(words) + 1):
        if words and texts[start : start + len(words)] == words:
            return lines[start][0]
    return None
