"""What a part, and an artifact, may be called: the same rules for clients, agents and the store.

Each function returns what is wrong with a value and what is expected instead, to be put behind the name of
its field; empty if the value is fine. Source: RFC 6838 §4.2 (media types), A2A 1.0 §4.1.6 (Part).
"""

import re
import unicodedata
from urllib.parse import urlsplit

MAX_URL = 2_000
"""Characters of the URL of a file."""

MAX_FILENAME_BYTES = 255
"""Of the name of a file: as long as file systems take."""

MAX_MEDIA_TYPE = 255
"""Characters of a media type with its parameters."""

PATH_STEPS = frozenset({".", ".."})
"""What no address can hold as a segment: clients and proxies resolve them (RFC 3986 §5.2.4)."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_WORD = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_QUOTED = r'"[ !#-\[\]-~]*"'
_MEDIA_TYPE = re.compile(rf"{_NAME}/{_NAME}(?:\s*;\s*{_WORD}=(?:{_WORD}|{_QUOTED}))*", re.ASCII)

_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_NO_ADDRESS = "is no address of a file; give one with http:// or https:// and a host"


def media_type_flaw(written: str) -> str:
    """Check a media type; none at all is fine."""
    if not written or (len(written) <= MAX_MEDIA_TYPE and _MEDIA_TYPE.fullmatch(written)):
        return ""
    return (
        "is no media type; give a type and a subtype, such as image/png, in at most "
        f"{MAX_MEDIA_TYPE} characters"
    )


def filename_flaw(name: str) -> str:
    """Check the name of one file; none at all is fine."""
    if any(unicodedata.category(character) in _UNPRINTABLE for character in name):
        return "has control characters; use letters, digits and punctuation"
    if len(name.encode()) > MAX_FILENAME_BYTES:
        return f"is too long; a file name may have {MAX_FILENAME_BYTES} bytes"
    if "/" in name or "\\" in name or name in PATH_STEPS:
        return "is a path; give the name of the file alone"
    return ""


def url_flaw(url: str) -> str:
    """Check the address of a file."""
    if len(url) > MAX_URL:
        return f"has {len(url)} characters; a URL may have {MAX_URL}"
    if not url.isprintable() or " " in url:
        return _NO_ADDRESS
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return _NO_ADDRESS
    if is_address and "@" in parts.netloc:
        return "has a user name or a password, which everybody who sees it could read; leave them out"
    return "" if is_address else _NO_ADDRESS


def text_flaw(text: str, limit: int) -> str:
    """Check a text for people."""
    if len(text) > limit:
        return f"has {len(text)} characters; it may have {limit}"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "has halves of surrogate pairs, which are no characters; leave them out"
    return ""
