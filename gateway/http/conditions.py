"""Conditions and ranges of HTTP requests. Pure.

Source: RFC 9110 §13 (conditional requests) and §14 (range requests).
"""

import re
from typing import NamedTuple

_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_RANGE = re.compile(r"bytes=\s*(\d{0,30})-(\d{0,30})\s*", re.IGNORECASE)


class ByteRange(NamedTuple):
    """Bytes from `start` to `end` (exclusive)."""

    start: int
    end: int


class RangeUnsatisfiableError(Exception):
    """There are no such bytes."""


def names_tag(header: str, etag: str, *, weakly: bool) -> bool:
    """Whether If-Match or If-None-Match names a strong entity tag, which is given with its quotes.

    If-None-Match compares weakly: `W/"x"` names `"x"` too (RFC 9110 §8.8.3.2).
    """
    if header.strip() == "*":
        return True
    return any((weakly or not found[1]) and f'"{found[2]}"' == etag for found in _TAG.finditer(header))


def read_range(header: str, size: int) -> ByteRange | None:
    """Return the range that a Range header asks for, of content of this size; None: all of it.

    What is no single range of bytes asks for all, as RFC 9110 §14.2 allows: several ranges at once, another
    unit, or what is malformed.

    Raises:
        RangeUnsatisfiableError: the content ends before the range begins, or the range is empty.
    """
    found = _RANGE.fullmatch(header)
    if not found or found[1] == found[2] == "":
        return None
    if not found[1]:
        return _suffix(int(found[2]), size)
    start = int(found[1])
    last = int(found[2]) if found[2] else size - 1
    if found[2] and last < start:
        return None
    if start >= size:
        raise RangeUnsatisfiableError
    return ByteRange(start, min(last + 1, size))


def _suffix(length: int, size: int) -> ByteRange | None:
    if not length:
        raise RangeUnsatisfiableError
    # Nothing is the last bytes of nothing, which Content-Range cannot say.
    return ByteRange(max(0, size - length), size) if size else None
