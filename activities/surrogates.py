"""Mends characters that a provider cut in two.

JSON escapes a character beyond U+FFFF as two halves (RFC 8259 §7); a provider that cuts its stream between
them sends text that no encoder takes.
"""

import codecs


class SurrogateJoiner:
    """Joins halves across pieces of a text; a half that stays alone becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-16-le")("replace")

    def feed(self, text: str) -> str:
        """Return the text that is whole now."""
        return self._decoder.decode(text.encode("utf-16-le", "surrogatepass"))

    def close(self) -> str:
        """Return what is left; the text ends here."""
        return self._decoder.decode(b"", final=True)


def mend(text: str) -> str:
    """Join the halves in a whole text."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
