"""Text as tools return it: prose, of which a compressor leaves two fifths."""

from functools import cache
from itertools import count

_STEP = 7919
_numbers = count()


def prose(size: int) -> str:
    """Return so many characters of English, others at each call."""
    text = _text()
    start = next(_numbers) * _STEP % (len(text) - size % len(text))
    return (text[start:] + text * (size // len(text)))[:size]


@cache
def _text() -> str:
    from pydoc_data.topics import topics  # noqa: PLC0415 -- idle processes are weighed without it

    words = "".join(topics.values()).encode("ascii", "ignore").decode().split()
    return " ".join(words)
