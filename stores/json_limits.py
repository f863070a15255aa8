"""Which JSON values clients can be sent: A2A carries them as `google.protobuf.Value`."""

import math
from collections.abc import Iterable

from pydantic import JsonValue

MAX_DEPTH = 30
"""Lists and objects within each other. Protobuf reads 100 messages within each other; a level of JSON is up
to three of them, and the task around it takes some as well."""


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
