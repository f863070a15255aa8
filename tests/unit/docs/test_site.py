"""The reference names all that there is, and the rules of language are kept."""

import importlib
import re
from pathlib import Path

import pytest

from docs.development.site import build, examples, language, settings
from tests.support.servers.processes import ROOT

PYTHON = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference/python").glob("*.md"))


def test_the_page_of_settings_and_the_list_of_their_names_are_what_the_code_says() -> None:
    """Run docs/development/site/settings.py after a change of a setting."""
    assert settings.PAGE.read_text(encoding="utf-8") == settings.page()
    assert settings.NAMES.read_text(encoding="utf-8") == settings.names()


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


PYTHON_FILE = '''
"""What is read."""

SIZE = 1
"""Bytes.

Nobody counts more than
what is none."""

TEXT = "whoever"  # a string, not text for readers

def keep():
    # It is told by
    # what is there: `nobody`. There is none; none of them is no longer read.
    """Let it be."""
'''


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "a.py",
            PYTHON_FILE,
            [
                "2: “What”",
                "7: “Nobody”",
                "7: “than what is”",
                "8: “is none”",
                "13: “by what is”",
                "15: “Let”",
            ],
        ),
        ("a.lua", "local a = 1  -- a list that\nreturn a\n-- it is\n-- no list\n", ["3: “it is no”"]),
        (
            "a.ts",
            "f(); // ://a.b\n\n/** Let it go. */\n/*\n * Made anew.\n */",
            ["3: “Let”", "5: “anew”"],
        ),
        ("a.yaml", "anew: 1 # a key\nb: 2 # It is a gateway that\n# knows it.", []),
        ("Makefile", "# The gateway\n# wants it.", ["1: “gateway wants”"]),
        ("docs/adr/0001-a.md", "# 1. Nobody\n\n- What it\n  is.\n", ["3: “What”"]),
        ("docs/page.md", "Whoever reads it.", []),
        ("node_modules/a.py", "# Whoever reads it.", []),
    ],
)
def test_a_clause_that_has_to_be_decoded_is_found(
    name: str, text: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In docstrings, comments and decisions, also across lines. Code and strings do not count."""
    monkeypatch.setattr(language, "ROOT", tmp_path)
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")

    problems = [problem for each in language.sources() for problem in language.clauses_of(each)]
    said = {problem.removeprefix(f"{name}:").partition("”")[0] + "”" for problem in problems}
    assert said == {*found}


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
