"""Splits inline <thinking id="…">…</thinking> tags out of a text that comes in pieces.

The result does not depend on where the text is cut. The rules:

- An opening tag is `<thinking>`, or has an id in quotes: `<thinking id="plan">`. It ends at the first `>` and
  has at most `MAX_TAG_LENGTH` characters. Whatever else begins like one (`<thinkingcap>`) is text.
- Tags do not nest: inside a thought an opening tag is part of the thought, and the first `</thinking>` ends
  it. A model that only mentions the tag cannot swallow its own answer this way.
- A closing tag outside of a thought is text. A thought that is never closed goes to the end.
"""

import re
from collections.abc import Iterator

from everloop.activities.deltas import Delta, TextDelta, ThoughtDelta

MAX_TAG_LENGTH = 200
_OPENING = re.compile(r"""<thinking(?:\s+id\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'))?\s*>""")
_NAME = "<thinking"
_CLOSING = "</thinking>"


class ThinkingSplitter:
    """Takes text, gives deltas. Holds back only what may still turn out to be a tag."""

    def __init__(self) -> None:
        self._held = ""
        self._thought_id: str | None = None

    def feed(self, text: str) -> list[Delta]:
        """Return what is certain now."""
        self._held += text
        return list(self._split())

    def close(self) -> list[Delta]:
        """Return what was held back; the text ends here."""
        rest, self._held = self._held, ""
        return self._delta(rest)

    def _split(self) -> Iterator[Delta]:
        """Cut off one certain piece after the other, until none is left."""
        while self._held:
            before = len(self._held)
            yield from self._split_text() if self._thought_id is None else self._split_thought()
            if len(self._held) == before:
                return

    def _split_text(self) -> list[Delta]:
        plain, bracket, _ = self._held.partition("<")
        if plain or not bracket:
            return self._take(len(plain))
        length = tag_length(self._held)
        if length is None:
            return []
        tag = _OPENING.fullmatch(self._held, 0, length)
        if tag is None:
            return self._take(1)
        self._held = self._held[length:]
        self._thought_id = tag["double"] or tag["single"] or ""
        return []

    def _split_thought(self) -> list[Delta]:
        thought, closing, rest = self._held.partition(_CLOSING)
        if not closing:
            return self._take(len(self._held) - overlap(self._held, _CLOSING))
        deltas = self._delta(thought)
        self._held, self._thought_id = rest, None
        return deltas

    def _take(self, length: int) -> list[Delta]:
        taken, self._held = self._held[:length], self._held[length:]
        return self._delta(taken)

    def _delta(self, text: str) -> list[Delta]:
        if not text:
            return []
        return [TextDelta(text) if self._thought_id is None else ThoughtDelta(text, self._thought_id)]


def tag_length(text: str) -> int | None:
    """Return how long the tag at the head of the text is, 0 if there is none, None while that is open."""
    head = text[: len(_NAME)]
    if not _NAME.startswith(head):
        return 0
    end = text.find(">", 0, MAX_TAG_LENGTH)
    if "<" in text[1 : end if end >= 0 else MAX_TAG_LENGTH]:
        return 0
    if end >= 0:
        return end + 1
    if len(text) >= MAX_TAG_LENGTH or not (text[len(_NAME) :] or " ")[0].isspace():
        return 0
    return None


def overlap(text: str, word: str) -> int:
    """Return how many characters at the end of the text may begin the word, which is not in it."""
    return next((n for n in range(len(word) - 1, 0, -1) if text.endswith(word[:n])), 0)
