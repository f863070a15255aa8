"""Validation of names of parts and artifacts: the same rules for clients, agents and the store.

Each function returns the problem of a value and the expected form, to be put behind the name of its
field; empty if the value is valid. Source: RFC 6838 §4.2 (media types), A2A 1.0 §4.1.6 (Part).
"""

import codecs
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from pydantic import JsonValue

MAX_URL = 2_000
"""Characters of the URL of a file."""

MAX_FILENAME_BYTES = 255
"""Limit of the name of a file, as in file systems."""

MAX_MEDIA_TYPE = 255
"""Characters of a media type with its parameters."""

PATH_STEPS = frozenset({".", ".."})
"""Invalid segments of addresses: clients and proxies resolve them (RFC 3986 §5.2.4)."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_WORD = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_QUOTED = r'"[ !#-\[\]-~]*"'
_MEDIA_TYPE = re.compile(rf"{_NAME}/{_NAME}(?:\s*;\s*{_WORD}=(?:{_WORD}|{_QUOTED}))*", re.ASCII)

_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_NO_ADDRESS = "is no web address; give one with http:// or https:// and a host"


def media_type_problem(written: str) -> str:
    """Check a media type; an empty one is valid."""
    if not written or (len(written) <= MAX_MEDIA_TYPE and _MEDIA_TYPE.fullmatch(written)):
        return ""
    return (
        "is no media type; give a type and a subtype, such as image/png, in at most "
        f"{MAX_MEDIA_TYPE} characters"
    )


def filename_problem(name: str) -> str:
    """Check the name of one file; an empty one is valid."""
    if any(unicodedata.category(character) in _UNPRINTABLE for character in name):
        return "has control characters; use letters, digits and punctuation"
    if len(name.encode()) > MAX_FILENAME_BYTES:
        return f"is too long; a file name may have {MAX_FILENAME_BYTES} bytes"
    if "/" in name or "\\" in name or name in PATH_STEPS:
        return "is a path; give the name of the file alone"
    return ""


def url_problem(url: str) -> str:
    """Check the address of a file, or of a peer."""
    if len(url) > MAX_URL:
        return f"has {len(url)} characters; a URL may have {MAX_URL}"
    if not is_http_url(url) or " " in url:
        return _NO_ADDRESS
    if "@" in urlsplit(url).netloc:
        return "has a user name or a password, which everybody who sees it could read; leave them out"
    return ""


def is_http_url(url: str) -> bool:
    """Return True if requests can be sent to the URL."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port; its text may show the end of a password
        return False
    return is_address and url.isprintable()


def text_problem(text: str, limit: int) -> str:
    """Check a text for people."""
    if len(text) > limit:
        return f"has {len(text)} characters; it may have {limit}"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "has halves of surrogate pairs, which are no characters; leave them out"
    return ""


# Media types: detection of text, and matching against patterns.

_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/x-ndjson"})
_TEXT_SUFFIXES = ("+json", "+xml")


def is_text(media_type: str) -> bool:
    """Return True for content that can be read as text, if it is in an encoding (`encoding_of`)."""
    plain = essence(media_type)
    return plain.startswith("text/") or plain in _TEXT_TYPES or plain.endswith(_TEXT_SUFFIXES)


TEXT_BEGINNING = 100_000
"""Bytes of a text that its encoding is detected from."""

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)
_CHARSETS = re.compile(r"ascii|big5|cp\d|euc_|gb|iso8859|koi8|mac_|shift_jis|utf-(8|16|32)")
"""Python codecs that are charsets of texts."""
_WINDOWS = "cp1252"
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def encoding_of(media_type: str, beginning: bytes, *, is_complete: bool) -> str:
    """Return the encoding of a text: that of its mark, else of its type, else UTF-8 or Windows-1252.

    Empty if it is not a text. Files without a declared encoding that are not in UTF-8 are usually from
    Windows.
    """
    mark = next((name for mark, name in _MARKS.items() if beginning.startswith(mark)), "")
    named = _CHARSET.search(media_type)
    tried = [mark] if mark else [_codec(named[1]) if named else "", "utf-8", _WINDOWS]
    return next((each for each in tried if each and _is_in(each, beginning, is_complete=is_complete)), "")


def _codec(charset: str) -> str:
    try:
        name = codecs.lookup(charset).name
    except LookupError:
        return ""
    return name if _CHARSETS.match(name) else ""


def _is_in(encoding: str, beginning: bytes, *, is_complete: bool) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(beginning, final=is_complete)
    except UnicodeError:
        return False
    return encoding != _WINDOWS or not _CONTROL.search(beginning)


def is_named(media_type: str, patterns: Iterable[str]) -> bool:
    """Return True if one of the patterns (`image/*`, `application/pdf`) matches the type."""
    plain = essence(media_type)
    return any(fnmatchcase(plain, pattern.lower()) for pattern in patterns)


def essence(media_type: str) -> str:
    """Return the type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()


# JSON values for clients: A2A carries them as `google.protobuf.Value`, numbers as doubles.

MAX_DEPTH = 30
"""Maximum nesting of lists and objects. Protobuf reads 100 nested messages; a level of JSON is up to three
of them, and the task around it takes some as well."""


MAX_EXCERPT_BYTES = 16_000
"""Limit of a tool's result in its end event, in UTF-8; clients can fetch the rest."""


def beginning(text: str) -> str:
    """Truncate a text to `MAX_EXCERPT_BYTES`, in whole characters."""
    return text if len(text) * 4 <= MAX_EXCERPT_BYTES else cut_bytes(text, MAX_EXCERPT_BYTES)


def cut(text: str, length: int) -> str:
    """Truncate a text with an ellipsis to at most `length` characters."""
    return text if len(text) <= length else f"{text[: max(length - 1, 0)]}…"


def shorten(text: str, length: int) -> str:
    """Return the text on one line, truncated with an ellipsis to at most `length` characters."""
    return cut(" ".join(text.split()), length)


def cut_bytes(text: str, most: int) -> str:
    """Truncate a text to at most `most` bytes of UTF-8, in whole characters, without a mark."""
    return text[:most].encode(errors="replace")[:most].decode(errors="ignore")


def cut_for_model(text: str, length: int) -> str:
    """Truncate a text after `length` characters, and say how many more there were."""
    more = len(text) - length
    return f"{text[:length]}\n[{more} more characters were cut off]" if more > 0 else text


NO_DOUBLE = "has a whole number that no double is; send it as a text"
"""Error text for a value that protobuf would change."""


def is_sendable(value: JsonValue) -> bool:
    """Return True if protobuf can hold a value: limited nesting, and each number is a double."""
    levels = enumerate(levels_of(value))
    return all(depth <= MAX_DEPTH and all(map(_is_double, level)) for depth, level in levels)


def has_doubles(value: JsonValue) -> bool:
    """Return True if each number is a double, which protobuf carries unchanged."""
    return all(_is_double(each) for level in levels_of(value) for each in level)


def with_doubles(value: JsonValue) -> JsonValue:
    """Return a value with the nearest double in place of each other whole number."""
    match value:
        case dict():
            return {key: with_doubles(each) for key, each in value.items()}
        case list():
            return [with_doubles(each) for each in value]
        case int() if abs(value) <= _LARGEST and not _is_double(value):
            return float(value)
        case _:
            return value


def levels_of(value: JsonValue) -> Iterator[Sequence[JsonValue]]:
    """Yield the contents of a value, level by level, beginning with the value."""
    level: list[JsonValue] = [value]
    while level:
        yield level
        level = [inner for outer in level for inner in _inner(outer)]


_WHOLE_NUMBER = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9]+)\.0(?![0-9eE])')
"""A string, which is skipped, or a whole number. Takes time in proportion to the text."""


def with_whole_numbers(text: str) -> str:
    """Return JSON with whole numbers as integers: `12.0` as `12`."""
    return _WHOLE_NUMBER.sub(lambda found: found[1] or found[0], text) if ".0" in text else text


def _inner(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


_LARGEST = int(sys.float_info.max)


def _is_double(value: JsonValue) -> bool:
    if not isinstance(value, int | float):
        return True
    return abs(value) <= _LARGEST and float(value) == value
