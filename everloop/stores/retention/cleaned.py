"""The result of one step of the housekeeping."""

from typing import NamedTuple, Protocol


class Cleaned(NamedTuple):
    """How much was removed, and where the next step goes on; an empty cursor: nothing is left to look at."""

    removed: int
    cursor: str = ""


class Cleaner(Protocol):
    """Removes one kind of what has expired. Any number of processes may do so at once, and each may die."""

    async def clean(self, cursor: str, /, *, dry_run: bool) -> Cleaned:
        """Take one limited step from a cursor on (empty: from the beginning)."""
        ...
