"""Text media types, and matching by a list of patterns."""

import pytest

from everloop.workflows.contract.parts import is_named, is_text


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        ("text/plain", True),
        ("Text/HTML; charset=utf-8", True),
        ("application/json", True),
        ("application/ld+json", True),
        ("image/svg+xml", True),
        ("application/x-ndjson", True),
        ("application/pdf", False),
        ("image/png", False),
        ("", False),
    ],
)
def test_some_types_are_text(media_type: str, *, expected: bool) -> None:
    """Their content is shown as text, if it is valid UTF-8."""
    assert is_text(media_type) is expected


@pytest.mark.parametrize(
    ("media_type", "patterns", "expected"),
    [
        ("image/png", ["image/*"], True),
        ("IMAGE/PNG; q=1", ["Image/*"], True),
        ("application/pdf", ["image/*", "application/pdf"], True),
        ("application/pdfx", ["application/pdf"], False),
        ("image/png", [], False),
        ("image/png", ["*/*"], True),
    ],
)
def test_patterns_name_types(media_type: str, patterns: list[str], *, expected: bool) -> None:
    """Parameters and case do not count."""
    assert is_named(media_type, patterns) is expected
