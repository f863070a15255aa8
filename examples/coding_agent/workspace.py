"""The directory that the agent works in. Files outside of it are not read or written."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

LARGEST = 200_000
"""Bytes of a file that is read or written."""


@dataclass(frozen=True)
class Workspace:
    """A directory, whose path is resolved. All methods raise a ValueError that a model can act on."""

    root: Path

    def find(self, path: str) -> Path:
        """Return the resolved path of a file, which need not exist yet.

        Raises:
            ValueError: it leads out of the directory, through a link too, or into `.git`.
        """
        place = (self.root / path).resolve()
        if not place.is_relative_to(self.root) or place == self.root:
            raise ValueError(f"{path!r} is not in the directory; give a path relative to it")
        if ".git" in place.relative_to(self.root).parts:  # a hook in there would run outside of the sandbox
            raise ValueError(f"{path!r} belongs to git; leave it alone")
        return place

    def list_files(self) -> list[str]:
        """Return the paths of all files but git's."""
        found = [each for each in self.root.rglob("*") if each.is_file() and not each.is_symlink()]
        paths = [each.relative_to(self.root) for each in found]
        return sorted(str(path) for path in paths if ".git" not in path.parts)

    def read(self, path: str) -> str:
        """Return the text of a file.

        Raises:
            ValueError: it does not exist, is not a text, or is too large.
        """
        place = self.find(path)
        if not place.is_file():
            raise ValueError(f"there is no file {path!r}; list_files shows what there is")
        if place.stat().st_size > LARGEST:
            raise ValueError(f"{path!r} has more than {LARGEST} bytes")
        return place.read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        """Write a file atomically: readers find the old or the new content, even after a crash."""
        place = self.find(path)
        if len(text.encode()) > LARGEST:
            raise ValueError(f"that is more than {LARGEST} bytes")
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=place.parent, delete=False) as file:
            file.write(text)
        if place.exists():
            Path(file.name).chmod(place.stat().st_mode)
        Path(file.name).replace(place)
