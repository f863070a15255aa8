"""Where a page of a task list ends, as clients hand it back."""

import base64
import binascii
from typing import NamedTuple

from everloop.stores.task_views import InvalidPageTokenError

_SCORES = 2**53
"""Sorted sets hold whole numbers exactly up to here."""


class IndexEntry(NamedTuple):
    """A task in a list. They run from the greatest entry down; `score` is in microseconds."""

    score: int
    task_id: str


def encode_page_token(last: IndexEntry) -> str:
    """Return the token of the page that begins after this entry."""
    return base64.urlsafe_b64encode(f"{last.score}:{last.task_id}".encode()).decode()


def decode_page_token(token: str) -> IndexEntry | None:
    """Return the entry after which the page begins, None for the first page.

    Raises:
        InvalidPageTokenError: `encode_page_token` did not make this token.
    """
    if not token:
        return None
    try:
        score, _, task_id = base64.urlsafe_b64decode(token).decode().partition(":")
        entry = IndexEntry(int(score), task_id)
    except (ValueError, binascii.Error):
        entry = None
    if entry is None or abs(entry.score) >= _SCORES or encode_page_token(entry) != token:
        raise InvalidPageTokenError(
            "the page token is not one that a list of tasks returned; leave it out to start at the first page"
        )
    return entry
