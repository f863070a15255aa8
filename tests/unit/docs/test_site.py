"""The reference names all that there is, and the rules of language are kept."""

import importlib
import re
from pathlib import Path

import pytest

from docs.development.site import build, examples, language, settings
from tests.support.servers.processes import ROOT

PYTHON = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference/python").glob("*.md"))


def test_the_page_of_settings_is_what_the_code_says() -> None:
    """Run docs/development/site/settings.py after a change of a setting."""
    assert settings.PAGE.read_text(encoding="utf-8") == settings.page()


@pytest.mark.parametrize("package", ["everloop", "everloop.client", "everloop.testing"])
def test_the_reference_has_every_public_name(package: str) -> None:
    """Each once, and no other one."""
    public = set(importlib.import_module(package).__all__)
    documented = re.findall(rf"^::: {re.escape(package)}\.(\w+)$", PYTHON, re.MULTILINE)

    assert sorted(documented) == sorted(public)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A word. " * 50, None),
        ("Word " * 40 + "end.", "41 words"),
        ("- " + "word " * 20 + "\n- " + "word " * 20, None),
        ("We utilize it.", "write use"),
        ("`utilize` is code.", None),
        ("```text\n" + "word " * 40 + "\n```\n", None),
        ("| " + "word " * 40 + "|", None),
    ],
)
def test_a_sentence_is_short_and_has_plain_words(
    text: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code and tables do not count; items of a list are sentences of their own."""
    monkeypatch.setattr(language, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")

    found = [*language.problems_of(page)]
    assert [problem in each for each in found if problem] == ([True] if problem else [])
    assert len(found) == (1 if problem else 0)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="other/">', None),
        ('<a href="other/#here">', None),
        ('<a href="other/#gone">', "leads nowhere"),
        ('<a href="../gone.html">', "leads nowhere"),
        ('<a href="https://elsewhere.example/">', None),
        ('<img src="https://elsewhere.example/a.png">', "from another host"),
        ('<link rel="stylesheet" href="//elsewhere.example/a.css">', "from another host"),
        ("<style>@font-face { src: url(https://elsewhere.example/a.woff) }</style>", "from another host"),
    ],
)
def test_the_site_has_no_dead_link_and_fetches_nothing_from_elsewhere(
    body: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anchors count, and so do styles; a link to another host is no more than a link."""
    monkeypatch.setattr(build, "SITE", tmp_path)
    (tmp_path / "index.html").write_text(body, encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/index.html").write_text('<p id="here">', encoding="utf-8")

    found = [*build.problems()]
    assert [bool(problem and problem in each) for each in found] == ([True] if problem else [])


def test_examples_of_docstrings_are_code() -> None:
    """With what they print; what comes before and after stays text."""
    text = "Add.\n\n>>> add(\n...     1, 2)\n3\n>>> add(2, 2)\n4\n\nRaises:\n    Error: it cannot."

    fenced = "```pycon\n>>> add(\n...     1, 2)\n3\n>>> add(2, 2)\n4\n```\n"
    assert examples.fenced(text) == f"Add.\n\n{fenced}\nRaises:\n    Error: it cannot."
