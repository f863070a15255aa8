"""Media types: which ones are text, and which ones a list of patterns names."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/x-ndjson"})
_TEXT_SUFFIXES = ("+json", "+xml")


def is_text(media_type: str) -> bool:
    """Whether content of this type can be read as text, if it is valid UTF-8."""
    plain = essence(media_type)
    return plain.startswith("text/") or plain in _TEXT_TYPES or plain.endswith(_TEXT_SUFFIXES)


def is_named(media_type: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns (`image/*`, `application/pdf`) names the type."""
    plain = essence(media_type)
    return any(fnmatchcase(plain, pattern.lower()) for pattern in patterns)


def essence(media_type: str) -> str:
    """Return the type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()
