"""What a step of the housekeeping has done."""

from typing import NamedTuple


class Cleaned(NamedTuple):
    """How much was removed, and where the next step goes on; an empty cursor: nothing is left to look at."""

    removed: int
    cursor: str = ""
