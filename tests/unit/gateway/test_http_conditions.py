"""Ranges and entity tags of RFC 9110."""

import pytest

from everloop.gateway.http.http_errors import RangeError
from everloop.gateway.http.requests import ByteRange, names_tag, read_range


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        ("bytes=0-0", 10, (0, 1)),
        ("bytes=2-4", 10, (2, 5)),
        ("bytes=2-", 10, (2, 10)),
        ("bytes=2-99", 10, (2, 10)),
        ("bytes=-3", 10, (7, 10)),
        ("bytes=-99", 10, (0, 10)),
        ("BYTES=9-", 10, (9, 10)),
        (f"bytes=0-{'9' * 30}", 10, (0, 10)),
        ("bytes=-3", 0, None),
        ("bytes=0-1,3-4", 10, None),
        ("bytes=4-2", 10, None),
        ("bytes=-", 10, None),
        ("bytes=a-b", 10, None),
        ("bytes=1-2x", 10, None),
        ("rows=0-1", 10, None),
        ("", 10, None),
    ],
)
def test_a_range_is_one_range_of_bytes_or_all(
    header: str, size: int, expected: tuple[int, int] | None
) -> None:
    """A malformed range, several ranges, or another unit requests everything."""
    assert read_range(header, size) == (expected and ByteRange(*expected))


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=11-12", 10), ("bytes=0-", 0), ("bytes=-0", 9)]
)
def test_a_range_behind_the_end_cannot_be_satisfied(header: str, size: int) -> None:
    """RFC 9110 §14.1.2: it begins after the end of the content, or has no length."""
    with pytest.raises(RangeError):
        read_range(header, size)


@pytest.mark.parametrize(
    ("header", "strongly", "weakly"),
    [
        ('"1-2"', True, True),
        ('"x", "1-2"', True, True),
        ("*", True, True),
        ('W/"1-2"', False, True),
        ('"x", W/"1-2"', False, True),
        ('"1-20"', False, False),
        ("1-2", False, False),
        ("", False, False),
    ],
)
def test_a_tag_is_named_strongly_or_weakly(header: str, *, strongly: bool, weakly: bool) -> None:
    """If-Match compares strongly, If-None-Match weakly; a list names each of its tags."""
    assert names_tag(header, '"1-2"', weakly=False) == strongly
    assert names_tag(header, '"1-2"', weakly=True) == weakly
