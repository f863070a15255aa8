"""The result of a tool call: from a Python value to the text that the model reads."""

from pydantic_core import to_json

MAX_RESULT_BYTES = 10 * 1024 * 1024
"""UTF-8 bytes of a result that reach the model; the rest is cut."""

EXCERPT_LENGTH = 200


def result_text(value: object) -> str:
    """Return a string as it is and everything else as JSON."""
    return value if isinstance(value, str) else to_json(value, fallback=str).decode()


def render_result(text: str) -> str:
    """Return the text, cut to `MAX_RESULT_BYTES` with a note."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= MAX_RESULT_BYTES:
        return encoded.decode()
    kept = encoded[:MAX_RESULT_BYTES].decode(errors="ignore")
    cut = len(encoded) - len(kept.encode())
    return (
        f"{kept}\n[{cut} of {len(encoded)} bytes were cut: a tool result may have {MAX_RESULT_BYTES}; "
        "ask for less at once]"
    )


def excerpt(text: str) -> str:
    """Return the beginning of a result, for subscribers."""
    return text if len(text) <= EXCERPT_LENGTH else f"{text[: EXCERPT_LENGTH - 1]}…"
