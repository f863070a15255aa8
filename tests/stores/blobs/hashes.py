"""Which checksums a thread computes, and what it compresses."""

import contextlib
import sys
from collections.abc import Generator
from types import FrameType


@contextlib.contextmanager
def hashes_here() -> Generator[list[str]]:
    """Collect the checksums and compressions that this thread computes."""
    found: list[str] = []

    def note(_frame: FrameType, event: str, function: object) -> None:
        name = str(getattr(function, "__name__", ""))
        if event == "c_call" and name.endswith(("sha256", "compress")):
            found.append(name)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
