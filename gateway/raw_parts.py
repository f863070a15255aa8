"""Whether the bytes of file parts are in base64. Pure.

Source: RFC 4648 §4 and §5 (both alphabets), ProtoJSON (padding may be left out). Decoders leave out what is
no base64: a file that was sent as plain text would become another file.
"""

import base64
from collections.abc import Iterable
from typing import cast

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_QUANTUM = 4
_MAX_PADDING = 2
_FILE_FIELDS = ("fileWithUri", "file_with_uri", "fileWithBytes", "file_with_bytes")


def is_base64(text: str) -> bool:
    """Whether a text is base64 in either alphabet, padded or not."""
    digits = text.rstrip("=")
    padding = len(text) - len(digits)
    is_padded = padding <= _MAX_PADDING and len(text) % _QUANTUM == 0
    if not is_padded and (padding or len(digits) % _QUANTUM == 1):
        return False
    return digits.isascii() and not digits.encode().translate(None, _ALPHABET)


def legacy_file_flaw(params: object) -> str:
    """Return what is wrong with the first file of a message of A2A 0.3 (§6.6.2); empty: nothing.

    There it has to be padded, and in the first alphabet: its decoder knows no other.
    """
    for index, part in _elements(_field(_field(params, "message"), "parts")):
        content = _field(_field(part, "file"), "bytes")
        if isinstance(content, str) and not _is_strict(content):
            name = f"message.parts[{index}].file.bytes"
            return f"{name} is no base64; encode the bytes of the file (RFC 4648 §4)"
    return ""


def legacy_upload_flaw(params: object) -> str:
    """Return what is wrong with the first file of a message of A2A 0.3 over REST; empty: nothing.

    Clients of 0.3 encode files twice there: as JSON-RPC has them, and that once more as ProtoJSON has bytes.
    """
    message = _field(params, "message") or _field(params, "request")
    for index, part in _elements(_field(message, "content")):
        file = _field(part, "file")
        if _is_empty(part, ("text", "file", "data")) or _is_empty(file, _FILE_FIELDS):
            return empty_part(index)
        content = _field(file, "fileWithBytes") or _field(file, "file_with_bytes")
        if isinstance(content, str) and is_base64(content) and not _is_strict(_decoded(content)):
            name = f"message.content[{index}].file.fileWithBytes"
            return f"{name} is not encoded twice; encode the file in base64, and that text once more"
    return ""


def empty_part(index: int) -> str:
    """Return what is wrong with a part of A2A 0.3 that holds nothing."""
    return f"message.content[{index}] is empty; it needs a text, data, or a file with its address or bytes"


def _is_empty(value: object, names: Iterable[str]) -> bool:
    return isinstance(value, dict) and all(_field(cast("object", value), name) is None for name in names)


def _is_strict(text: str) -> bool:
    return is_base64(text) and len(text) % _QUANTUM == 0 and not set("-_") & set(text)


def _decoded(text: str) -> str:
    digits = text.rstrip("=")
    padding = "=" * (-len(digits) % _QUANTUM)
    return base64.urlsafe_b64decode(digits.replace("+", "-").replace("/", "_") + padding).decode("latin-1")


def _elements(value: object) -> Iterable[tuple[int, object]]:
    return enumerate(cast("list[object]", value)) if isinstance(value, list) else ()


def _field(value: object, name: str) -> object:
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None
