"""Which checksums a thread computes."""

import contextlib
import sys
from collections.abc import Generator
from types import FrameType


@contextlib.contextmanager
def hashes_here() -> Generator[list[str]]:
    """Collect the checksums that this thread computes."""
    found: list[str] = []

    def note(_frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and (name := str(getattr(function, "__name__", ""))).endswith("sha256"):
            found.append(name)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
