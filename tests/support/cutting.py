"""Cuts texts into pieces, as a stream does."""

from collections.abc import Set as AbstractSet
from itertools import pairwise


def cut(text: str, places: AbstractSet[int]) -> list[str]:
    """Cut a text at the given places; those beyond its end are ignored."""
    ends = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[start:end] for start, end in pairwise(ends)]
