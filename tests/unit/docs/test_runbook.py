"""The runbook has what the alerts lead to, and links of all pages lead somewhere."""

import re
from pathlib import Path
from typing import cast

import yaml

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
PARTS = ("means", "look", "do")

_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([\w./-]*)(?:#([\w-]+))?\)")


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub derives them from its headings."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _leads_somewhere(page: Path, target: str, anchor: str) -> bool:
    linked = page.parent / target if target else page
    return linked.exists() and (not anchor or anchor in _anchors(linked))


def _named_by_alerts() -> set[str]:
    groups = cast(
        "list[dict[str, list[dict[str, dict[str, str]]]]]", yaml.safe_load(ALERTS.read_text())["groups"]
    )
    return {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}


def test_each_alert_has_a_section() -> None:
    """Which says what it means, what to look at, and what to do; and no section is left over."""
    text = (DOCS / "operation/runbook.md").read_text(encoding="utf-8")
    alerts = text.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    sections = dict(re.findall(r"### ([\w-]+)\n(.*?)(?=\n### |\Z)", alerts, re.DOTALL))

    assert {f"docs/operation/runbook.md#{title}" for title in sections} == _named_by_alerts()
    for title, body in sections.items():
        assert [word.lower() for word in re.findall(r"^\*\*(\w+)\*\*: ", body, re.MULTILINE)] == list(
            PARTS
        ), title


def test_links_lead_somewhere() -> None:
    """Of every page, the README among them, to others and to their sections."""
    broken = {
        f"{page.name}: {target}#{anchor}"
        for page in (*ROOT.glob("*.md"), *DOCS.glob("**/*.md"))
        for target, anchor in _LINK.findall(page.read_text(encoding="utf-8"))
        if not _leads_somewhere(page, target, anchor)
    }

    assert broken == set()
