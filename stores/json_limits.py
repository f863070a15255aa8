"""JSON values that clients are sent: A2A carries them as `google.protobuf.Value`, numbers as doubles."""

import math
import re
from collections.abc import Iterable

from pydantic import JsonValue

MAX_DEPTH = 30
"""Lists and objects within each other. Protobuf reads 100 messages within each other; a level of JSON is up
to three of them, and the task around it takes some as well."""


MAX_SHOWN_BYTES = 16_000
"""Of a tool's result, in UTF-8, that clients are told with its end; the rest they can fetch."""


def beginning(text: str) -> str:
    """Return as much of a text as is shown at once, in whole characters."""
    if len(text) * 4 <= MAX_SHOWN_BYTES:
        return text
    return text[:MAX_SHOWN_BYTES].encode(errors="replace")[:MAX_SHOWN_BYTES].decode(errors="ignore")


def is_sendable(value: JsonValue) -> bool:
    """Whether protobuf can hold a value: it is not nested too deeply, and each number fits a double."""
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH + 1):
        if not all(map(_is_double, level)):
            return False
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return True
    return False


_WHOLE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9]+)\.0(?![0-9eE])')
"""A string, which is passed over, or a number that is whole. Takes time in proportion to the text."""


def with_whole_numbers(text: str) -> str:
    """Return JSON in which whole numbers are written as such: `12.0` as `12`."""
    return _WHOLE.sub(lambda found: found[1] or found[0], text) if ".0" in text else text


def _inner(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _is_double(value: JsonValue) -> bool:
    """Whether a value is no number, or one that a double can hold."""
    if not isinstance(value, int | float):
        return True
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
