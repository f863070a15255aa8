"""The result of one step of the housekeeping."""

from typing import NamedTuple, Protocol


class Cleaned(NamedTuple):
    """The number of removed objects, and the cursor of the next step, empty after the last one."""

    removed: int
    cursor: str = ""


class Cleaner(Protocol):
    """Removes expired objects of one kind. Processes may do so concurrently, and each may die."""

    async def clean(self, cursor: str, /, *, dry_run: bool) -> Cleaned:
        """Run one limited step from a cursor on (empty: from the beginning)."""
        ...
