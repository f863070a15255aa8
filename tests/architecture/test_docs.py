"""What the documents name is there."""

import re
from pathlib import Path

import pytest

DOCUMENTS = [Path("README.md"), Path("CHANGELOG.md"), *sorted(Path("docs").rglob("*.md"))]

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)[^)\s]*\)")

MODULE = re.compile(
    r"`((?:activities|bench|deploy|docs|everloop|gateway|runtime|stores|tests|workers|workflows)/[a-z0-9_/]+(?:\.py|/))`"
)
"""A module or folder of the repository, as documents name them."""


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_what_a_document_names_is_there(document: Path) -> None:
    """Links lead somewhere, and modules are where it says."""
    text = document.read_text(encoding="utf-8")
    wanted = [document.parent / target for target in LINK.findall(text)]
    wanted += [Path(name) for name in MODULE.findall(text)]

    assert [str(path) for path in wanted if not path.exists()] == []
