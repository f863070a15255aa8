"""Find the agents of a project."""

import os
from dataclasses import dataclass
from pathlib import Path

from everloop.cli.output import CommandError

MAIN = "agent.py"
FOLDER = "agents"


@dataclass(frozen=True)
class Project:
    """A working directory, and the value of EVERLOOP_AGENTS in it."""

    directory: Path
    agents: str

    @property
    def watched(self) -> list[Path]:
        """The directories of the files of agents and of their imports."""
        places = [self.directory / place.strip() for place in self.agents.split(",") if _is_path(place)]
        folders = [place if place.is_dir() else place.parent for place in places]
        every = {self.directory, *(folder.resolve() for folder in folders)}
        return sorted(each for each in every if not any(other in each.parents for other in every))


def find_project(where: Path | None) -> Project:
    """Return the project of a file, of a directory, or of the working directory.

    Raises:
        CommandError: it has no agents.
    """
    here = Path.cwd()
    if where is None:
        if named := os.environ.get("EVERLOOP_AGENTS"):
            return Project(here, named)
        if found := _agents_below(here):
            return found
        raise CommandError(
            f"here is neither {MAIN} nor a folder {FOLDER}; name the file or folder of your agents "
            "(everloop dev FILE), or begin a project: everloop new NAME"
        )
    if where.is_file() and where.suffix == ".py":
        return Project(here, str(where))
    if where.is_dir():
        # A separator in it makes it a path under any name.
        return _agents_below(where) or Project(here, f"{where}{os.sep}")
    wrong = "is no Python file" if where.exists() else "is not there"
    raise CommandError(f"{str(where)!r} {wrong}; expected a file NAME.py, or a folder of such files")


def _agents_below(directory: Path) -> Project | None:
    names = [name for name in (MAIN, FOLDER) if (directory / name).exists()]
    return Project(directory.resolve(), names[0]) if names else None


def _is_path(place: str) -> bool:
    return ":" not in place
