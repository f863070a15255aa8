"""Whether the bytes of file parts are in base64. Pure.

Source: RFC 4648 §4 and §5 (both alphabets), ProtoJSON (padding may be left out). The protobuf decoder leaves
out what is no base64: a file that was sent as plain text would become another file.
"""

from typing import cast

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_QUANTUM = 4
_MAX_PADDING = 2


def raw_flaw(request: object) -> str:
    """Return what is wrong with the first `raw` of the message of a JSON-RPC request; empty: nothing."""
    parts = _field(_field(_field(request, "params"), "message"), "parts")
    for index, part in enumerate(cast("list[object]", parts) if isinstance(parts, list) else ()):
        raw = _field(part, "raw")
        if isinstance(raw, str) and not _is_base64(raw):
            return f"message.parts[{index}].raw is no base64; encode the bytes of the file (RFC 4648)"
    return ""


def _field(value: object, name: str) -> object:
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None


def _is_base64(text: str) -> bool:
    digits = text.rstrip("=")
    padding = len(text) - len(digits)
    is_padded = padding <= _MAX_PADDING and len(text) % _QUANTUM == 0
    if not is_padded and (padding or len(digits) % _QUANTUM == 1):
        return False
    return digits.isascii() and not digits.encode().translate(None, _ALPHABET)
