"""The numbers of the chunks that one activity attempt publishes of one artifact."""

from everloop.activities.attempt_number import is_shared
from everloop.workflows.contract.events import FINAL_ATTEMPT

DRAFTS_PER_ATTEMPT = 10
"""How many draft numbers an attempt has; the last one is for the end of the call. The others last for a
minute of failed publishes."""

_LAST_ATTEMPT = FINAL_ATTEMPT // DRAFTS_PER_ATTEMPT - 1
"""The workflow completes the answer under FINAL_ATTEMPT, so every draft number must stay below."""


class DraftNumbers:
    """Counts drafts, and the chunks of each, so that the fold keeps one whole draft.

    Nobody can tell whether a publish that failed took effect. What follows is therefore a new draft
    (`restart`), from the first character on. An attempt has its own range of draft numbers; when that
    `is_spent`, nothing is published until the end of the call, which has the last number (`end`). `attempt`
    is numbered by `attempt_number`.
    """

    def __init__(self, attempt: int) -> None:
        attempt = min(attempt, _LAST_ATTEMPT)
        first = attempt * DRAFTS_PER_ATTEMPT
        self._last = first + DRAFTS_PER_ATTEMPT - 1
        # A draft that another attempt may have begun under the same number cannot be continued.
        self.draft = self._first = self._last if is_shared(attempt) else first
        self.index = 0
        self.is_first_attempt = attempt <= 1
        self.is_newest = attempt < _LAST_ATTEMPT
        """Whether the end surely takes the place of every earlier draft."""

    @property
    def is_spent(self) -> bool:
        return self.draft == self._last

    @property
    def has_begun(self) -> bool:
        """Whether a chunk of the current draft has been made."""
        return self.index > 0

    @property
    def is_first(self) -> bool:
        """Whether this is the first draft of all: no other attempt made one, nor did this one."""
        return self.is_first_attempt and self.draft == self._first

    def next_index(self) -> int:
        """Return the index of the next chunk, and count it."""
        index, self.index = self.index, self.index + 1
        return index

    def restart(self) -> None:
        """Let the next chunk begin a new draft; one that has not begun needs none."""
        if self.has_begun:
            self.draft, self.index = self.draft + 1, 0

    def end(self) -> None:
        """Let the next chunk begin the last draft of the attempt."""
        self.draft, self.index = self._last, 0
