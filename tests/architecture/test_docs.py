"""Links and module names in documents are valid, and decisions have a status."""

import re
from pathlib import Path

import pytest

DOCUMENTS = [
    *(Path(name) for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(Path("docs").rglob("*.md")),
    *sorted(Path("examples").rglob("*.md")),
]

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([\w-]+))?[^)\s]*\)")

HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

MODULE = re.compile(
    r"`((?:activities|bench|deploy|docs|everloop|gateway|runtime|stores|tests|workers|workflows)/[a-z0-9_/]+(?:\.py|/))`"
)
"""A module or folder of the repository, as documents name them."""


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub derives them from its headings."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(document: Path, target: str, anchor: str) -> bool:
    page = document.parent / target if target else document
    return page.exists() and (not anchor or anchor in anchors(page))


DECISIONS = sorted(Path("docs/adr").glob("*.md"))

STATUS = re.compile(
    r"# \d+\. .+\n\n\*Status: (?:accepted|accepted, in part overtaken|overtaken by \[ADR \d+\]\(\S+\))\. "
    r"Date: \d{4}-\d{2}-\d{2}\.[^*]*\*\n\n"
)
"""The head of a decision."""


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem[:4])
def test_a_decision_begins_with_its_status_and_date(decision: Path) -> None:
    """A decision that is overtaken says by which one."""
    assert STATUS.match(decision.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_what_a_document_names_is_there(document: Path) -> None:
    """Links lead to pages and to sections of them, and modules are where it says."""
    text = document.read_text(encoding="utf-8")

    assert [link for link in LINK.findall(text) if not leads_somewhere(document, *link)] == []
    assert [name for name in MODULE.findall(text) if not Path(name).exists()] == []
