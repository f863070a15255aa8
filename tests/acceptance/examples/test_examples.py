"""Each folder of examples/ is a project of its own; the pages of the folders are run by `documents`."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deploy.documents import NOT_COPIED, PAGES, blocks_of, folder_of
from tests.support.servers.processes import ROOT

IN_THE_GATE = "migration"
"""The others take minutes: their pages have the command for their tests, so the test of pages runs them."""


def test_a_folder_that_is_copied_passes_its_tests(tmp_path: Path) -> None:
    """Everloop is installed, and nothing else of the clone is there."""
    folder = tmp_path / IN_THE_GATE
    shutil.copytree(ROOT / "examples" / IN_THE_GATE, folder, ignore=NOT_COPIED)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error"],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_pages_tell_to_run_the_tests_of_each_example() -> None:
    """Readers find the command, and the test of pages runs all of them."""
    folders = {str(file.parent.relative_to(ROOT)) for file in ROOT.glob("examples/*/test_*.py")}
    run = {
        found[1] or folder_of(page)
        for page in PAGES
        for block in blocks_of(page)
        if block.is_run and (found := re.match(r"(?:cd (\S+)\n)?pytest\b", block.text))
    }

    assert folders - run == set()


@pytest.mark.parametrize("page", sorted(ROOT.glob("examples/*/README.md")), ids=lambda each: each.parent.name)
def test_the_page_of_all_examples_leads_to_each(page: Path) -> None:
    """Each example has a link, so that readers need not search folders."""
    pages = (ROOT / "examples/README.md").read_text(encoding="utf-8")

    assert f"]({page.parent.name}/README.md)" in pages
